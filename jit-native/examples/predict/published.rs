//! What others measured, to put predictions beside.

/// Tokens per second of decoding, with where it was published. XDNA 2 unless said otherwise.
const OTHERS: &[(&str, &str, &str)] = &[
    ("XDNA 1, 8700G", "a small model, decoding on the NPU by products of blocks", "7.8 (llama.cpp PR 28800)"),
    ("Krackan", "Llama-3.2-1B, 4 bits, one dispatch a token", "52.3 to 58.8 (mlir-air fused_decode)"),
    ("Krackan", "Llama-3.2-1B", "66 (FastFlowLM 0.9.21, vendor)"),
    ("Ryzen AI 9 365", "Llama-3.2-1B q4_0, 16 layers fused", "42.8 to 48.7 (llama.cpp issue 21725, closed kernels)"),
    ("Strix Halo", "Llama-3.2-1B bf16", "5.4 to 6.0 (llama.cpp-xdna)"),
    ("Krackan", "Llama-3.1-8B, 4 bits, 1k keys", "13.1 (mlir-air fused_decode)"),
    ("Krackan", "Llama 8B", "13 (FastFlowLM 0.9.21, vendor)"),
];

/// Prints the list.
pub fn print() {
    println!("\nPublished by others, tokens/s:");
    for (machine, what, result) in OTHERS {
        println!("  {machine:<16} {what:<56} {result}");
    }
}
