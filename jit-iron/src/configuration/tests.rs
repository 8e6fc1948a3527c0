//! Whole configurations: the installed examples, and random texts.

use super::*;
use aie_hal::ArchRegistry;
use aie_ops::F16Policy;
use rstest::rstest;
use std::collections::BTreeSet;

#[rstest]
#[case("minimal-kernel-config.json", 2, 1)]
#[case("example-kernel-config.json", 8, 2)]
fn the_examples_are_valid(#[case] file: &str, #[case] kernels: usize, #[case] generations: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kernels").join(file);
    let arches = ArchRegistry::builtin();
    for f16 in [F16Policy::F32, F16Policy::Bf16] {
        let found = load(&path, &Rules { arches: &arches, f16, kernels_dir: None }).unwrap();
        assert_eq!(found.notes, []);
        assert_eq!(found.kernels.len(), kernels);
        let names: BTreeSet<_> = found.kernels.iter().map(|kernel| kernel.arch.name.as_str()).collect();
        assert_eq!(names.len(), generations);
    }
}

/// xorshift64*: enough for making up texts, and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn one_of<'a>(&mut self, pieces: &[&'a str]) -> &'a str {
        pieces[self.below(pieces.len())]
    }
}

const PIECES: &[&str] = &[
    "(",
    ")",
    ",",
    "/",
    " ",
    "1",
    "0",
    "8",
    "64",
    "-1",
    "4294967296",
    "18446744073709551616",
    "f32",
    "f16",
    "q4_0",
    "bf16",
    "x",
    "\u{e4}",
    "\n",
    "\t",
    "(8,1,1,1)",
    "(64,2,1,1)/q4_0/(1,64,128,128)",
    "/f32",
    "()",
];

/// What is accepted is a tensor that makes sense, whose text gives it back.
#[test]
fn random_tensor_texts_never_panic() {
    let mut random = Random(0x5eed_0001);
    let mut accepted = 0;
    for _ in 0..200_000 {
        let text: String = (0..random.below(9)).map(|_| random.one_of(PIECES)).collect();
        match tensor_text::parse(&text) {
            Ok(tensor) => {
                accepted += 1;
                tensor.validate().unwrap();
                assert_eq!(tensor_text::parse(&tensor_text::describe(&tensor)).map(|again| again.ne), Ok(tensor.ne));
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error:?}"),
        }
    }
    assert!(accepted > 100, "{accepted} of the texts are tensors");
}

#[test]
fn random_configurations_never_panic() {
    const VALUES: &[&str] = &[
        "null",
        "1",
        "1.5",
        "-3",
        "[]",
        "{}",
        "true",
        "\"\"",
        "\"aie2\"",
        "\"aie2p\"",
        "\"ggml_op_add\"",
        "\"binary_ops.py\"",
        "\"(8,1,1,1)/f32\"",
        "[\"(8,1,1,1)/f32\", \"(8,1,1,1)/f32\"]",
        "[null]",
        "[1, 1.0]",
        "\"ggml_op_mul_mat\"",
        "\"mul_mat.py\"",
        "[\"(0,1,1,1)/f32\"]",
        "\"(1048576,1048576,1048576,1)/i8\"",
        "[\"(64,1,1,1)/q4_0\", null, \"(1,1,1,1)/i64\"]",
        "\"a\"",
    ];
    const KEYS: &[&str] = &[
        "kernel_name",
        "kernel_source",
        "arch",
        "input_tensors",
        "output_tensor",
        "exported_name",
        "op_params",
        "description",
        "x",
    ];
    let arches = ArchRegistry::builtin();
    let rules = Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: None };
    let mut random = Random(0x5eed_0002);
    for _ in 0..5_000 {
        let kernels: Vec<String> = (0..random.below(4))
            .map(|_| {
                let members = KEYS.iter().filter(|_| random.below(6) > 0).copied().collect::<Vec<_>>();
                let member = |key: &str| format!("\"{key}\": {}", random.one_of(VALUES));
                format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(", "))
            })
            .collect();
        let text = format!("{{\"kernels\": [{}]}}", kernels.join(", "));
        if let Err(problems) = parse(&Document::new("r.json", text), &rules) {
            assert!(!problems.is_empty());
        }
    }
}

/// Every operation's own examples, as texts: whatever the operation takes is taken, and nothing panics.
#[test]
fn every_operation_can_be_configured() {
    let arches = ArchRegistry::builtin();
    let rules = Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: None };
    let mut configured = BTreeSet::new();
    for op in aie_ops::table::all() {
        for node in aie_ops::DataType::ALL.iter().flat_map(|dtype| op.examples(*dtype)) {
            let Some(text) = configuration(op, &node) else { continue };
            if parse(&Document::new("o.json", text), &rules).is_ok() {
                configured.insert(op.name());
            }
        }
    }
    assert!(configured.len() > 90, "{} operations: {configured:?}", configured.len());
}

/// The configuration of one node, if it can be told: fused operations with several results cannot.
fn configuration(op: &dyn aie_ops::Operation, node: &aie_ops::Node) -> Option<String> {
    if !node.further_outputs.is_empty() {
        return None;
    }
    let source = crate::KernelSource::of(op);
    let tensor = |tensor: &aie_ops::Tensor| format!("\"{}\"", tensor_text::describe(tensor));
    let inputs: Vec<String> =
        node.sources.iter().map(|source| source.as_ref().map_or_else(|| "null".to_owned(), tensor)).collect();
    let params: String = node.params.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(
        r#"{{"kernels": [{{"kernel_name": "{}", "kernel_source": "{}", "arch": "aie2p", "input_tensors": [{}],
            "output_tensor": {}, "op_params": "{params}"}}]}}"#,
        source.function,
        source.file,
        inputs.join(", "),
        tensor(&node.output),
    ))
}

/// Every text that is cut off, or has one byte changed, is either refused with a place or still a configuration.
#[test]
fn damaged_examples_never_panic() {
    let text = include_str!("../../examples/kernels/minimal-kernel-config.json");
    let arches = ArchRegistry::builtin();
    let rules = Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: None };
    for length in (0..text.trim_end().len()).filter(|length| text.is_char_boundary(*length)) {
        let problems = parse(&Document::new("d.json", &text[..length]), &rules).unwrap_err();
        assert!(problems[0].to_string().starts_with("d.json:"), "{length}: {problems:?}");
    }
    for index in 0..text.len() {
        for replacement in ["\"", "{", "}", "0", ",", "\\", "\u{1}"] {
            let mut damaged = text.to_owned();
            damaged.replace_range(index..=index, replacement);
            if let Err(problems) = parse(&Document::new("d.json", damaged), &rules) {
                assert!(!problems.is_empty());
            }
        }
    }
}
