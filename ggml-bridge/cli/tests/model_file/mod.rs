//! A small file of a model.

/// Tokens that the model was trained for.
const CONTEXT: u32 = 512;

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// The beginning of a GGUF file with one layer of the Llama family, of another name.
pub fn model(architecture: &str) -> Vec<u8> {
    let integers = [
        ("block_count", 1),
        ("context_length", CONTEXT),
        ("embedding_length", 64),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ];
    let (f32, q8_0) = (0_u32, 8_u32);
    let tensors = [
        ("token_embd", q8_0, [64, 96]),
        ("output_norm", f32, [64, 1]),
        ("blk.0.attn_norm", f32, [64, 1]),
        ("blk.0.attn_q", q8_0, [64, 64]),
        ("blk.0.attn_k", q8_0, [64, 32]),
        ("blk.0.attn_v", q8_0, [64, 32]),
        ("blk.0.attn_output", q8_0, [64, 64]),
        ("blk.0.ffn_norm", f32, [64, 1]),
        ("blk.0.ffn_gate", q8_0, [64, 128]),
        ("blk.0.ffn_up", q8_0, [64, 128]),
        ("blk.0.ffn_down", q8_0, [128, 64]),
    ];
    let counts = [tensors.len() as u64, integers.len() as u64 + 2].map(u64::to_le_bytes).concat();
    let mut file = [b"GGUF".to_vec(), 3_u32.to_le_bytes().to_vec(), counts].concat();
    file.extend([text("general.architecture"), 8_u32.to_le_bytes().to_vec(), text(architecture)].concat());
    let name = format!("{architecture}.attention.layer_norm_rms_epsilon");
    file.extend([text(&name), 6_u32.to_le_bytes().to_vec(), 1e-5_f32.to_le_bytes().to_vec()].concat());
    for (key, value) in integers {
        file.extend([text(&format!("{architecture}.{key}")), [4, value].map(u32::to_le_bytes).concat()].concat());
    }
    for (name, kind, extents) in tensors {
        file.extend([text(&format!("{name}.weight")), 2_u32.to_le_bytes().to_vec()].concat());
        file.extend(extents.map(u64::to_le_bytes).concat());
        file.extend([kind.to_le_bytes().to_vec(), vec![0; 8]].concat());
    }
    file
}
