//! Models whose graph is of another kind than a decoder of dense layers.
//!
//! They are recognised by tensors and keys unique to them, and so is a family that no list names.

use super::file::ModelFile;

/// Parts of the names of tensors, and what has them.
const TENSORS: [(&str, &str); 7] = [
    ("_exps.", "a mixture of experts"),
    (".ffn_gate_inp.", "a mixture of experts"),
    (".ssm_", "recurrent layers (a state space)"),
    (".time_mix_", "recurrent layers (RWKV)"),
    (".shortconv.", "layers of short convolutions"),
    (".attn_kv_a_mqa.", "attention with compressed keys and values"),
    ("enc.blk.", "an encoder"),
];

/// What this model has whose operations are not built here.
pub fn other(file: &ModelFile) -> Option<String> {
    let named = |part: &str| file.tensors.keys().find(|name| name.contains(part) || name.starts_with(part));
    let found = TENSORS.iter().find_map(|(part, kind)| Some(format!("{kind}, as in the tensor {}", named(part)?)));
    let encodes = || {
        (file.flag("attention.causal") == Some(false))
            .then(|| format!("attention to later tokens ({}.attention.causal is false)", file.architecture))
    };
    found.or_else(encodes)
}

#[cfg(test)]
mod tests {
    use super::super::parts::Model;
    use super::super::tests::Made;
    use super::other;
    use aie_ops::DataType::F32;
    use gguf_rs_lib::format::metadata::MetadataValue;
    use rstest::rstest;

    #[rstest]
    #[case("blk.0.ffn_gate_exps.weight", "a mixture of experts")]
    #[case("blk.0.ffn_gate_inp.weight", "a mixture of experts")]
    #[case("blk.0.ssm_conv1d.weight", "a state space")]
    #[case("blk.0.time_mix_key.weight", "RWKV")]
    #[case("blk.0.shortconv.conv.weight", "short convolutions")]
    #[case("blk.0.attn_kv_a_mqa.weight", "compressed keys")]
    #[case("enc.blk.0.attn_q.weight", "an encoder")]
    fn a_tensor_tells_the_kind(#[case] tensor: &str, #[case] kind: &str) {
        let mut made = Made::new("newcomer");
        assert_eq!(other(&Made::new("newcomer").file()), None);
        made.tensor(tensor, F32, 64, 1);
        let model = made.model();
        let found = model.other.as_deref().unwrap();
        assert!(found.contains(kind) && found.contains(tensor), "{found}");
        assert!(!model.is_whole());
        assert!(model.reservations()[0].contains(kind), "{:?}", model.reservations());
    }

    /// Also where no layer has a part that is known.
    #[test]
    fn layers_of_one_kind_alone_are_told() {
        let mut made = Made::new("mamba2");
        made.tensors.retain(|name, _| !name.starts_with("blk."));
        made.tensor("blk.0.ssm_in.weight", F32, 64, 1);
        let error = Model::find(&made.file()).unwrap_err().to_string();
        assert!(
            error.contains("it has recurrent layers (a state space), as in the tensor blk.0.ssm_in.weight"),
            "{error}"
        );
    }

    #[test]
    fn an_encoder_is_told_by_its_attention() {
        let mut made = Made::new("bert");
        made.number("attention.causal", MetadataValue::Bool(false));
        assert!(made.model().other.unwrap().contains("bert.attention.causal is false"));
        let mut made = Made::new("llama");
        made.number("attention.causal", MetadataValue::Bool(true));
        assert_eq!(made.model().other, None);
    }
}
