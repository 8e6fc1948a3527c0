//! Whole configurations: what operations make of entries, the installed examples, and random texts.

use super::reader::{OPTIONAL, REQUIRED};
use super::request::check;
use super::*;
use aie_hal::ArchRegistry;
use aie_ops::{DataType, F16Policy, Placement, table};
use rstest::rstest;
use std::collections::BTreeSet;
use std::fs;

fn kernel(name: &str, source: &str, inputs: &[&str], output: &str, more: &str) -> String {
    let inputs = inputs.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ");
    format!(
        r#"{{"kernel_name": "{name}", "kernel_source": "{source}", "arch": "aie2",
            "input_tensors": [{inputs}], "output_tensor": "{output}"{more}}}"#
    )
}

fn sum(extents: &str, more: &str) -> String {
    let tensor = format!("({extents})/f32");
    kernel("ggml_op_add", "binary_ops.py", &[&tensor, &tensor], &tensor, more)
}

fn run_with(kernels: &[String], f16: F16Policy, folder: Option<&Path>) -> Result<KernelSet, Vec<String>> {
    let document = Document::new("c.json", format!("{{\"kernels\": [\n{}\n]}}", kernels.join(",\n")));
    let arches = ArchRegistry::builtin();
    let result = parse(&document, &Rules { arches: &arches, f16, kernels_dir: folder });
    result.map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

fn run(kernels: &[String]) -> Result<KernelSet, Vec<String>> {
    run_with(kernels, F16Policy::F32, None)
}

fn one_problem(kernels: &[String]) -> String {
    let problems = run(kernels).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems[0].clone()
}

#[test]
fn a_kernel_has_the_name_that_the_backend_looks_for() {
    let found = run(&[sum("32,4,1,1", "")]).unwrap();
    let kernel = &found.kernels[0];
    assert_eq!(kernel.name, "add-128f32-128f32-128f32");
    assert_eq!(kernel.exported_name, kernel.name);
    assert_eq!(kernel.node.output.ne, [128, 1, 1, 1]);
    assert_eq!((kernel.arch.name.as_str(), found.notes.len()), ("aie2", 0));
    let found = run(&[sum("32,4,1,1", r#", "exported_name": "add_f32""#)]).unwrap();
    assert_eq!(found.kernels[0].exported_name, "add_f32");
}

#[test]
fn parameters_and_strides_reach_the_node() {
    let scale = kernel("ggml_op_scale", "scale.py", &["(8,1,1,1)/f32"], "(8,1,1,1)/f32", r#", "op_params": [1.5]"#);
    let found = run(&[scale]).unwrap();
    assert_eq!(found.kernels[0].name, "scale-8f32-8f32-925a34a8500216b0");
    let strided = sum("8,1,1,1", "").replacen("(8,1,1,1)/f32", "(8,1,1,1)/f32/(2,16,16,16)", 1);
    assert_eq!(run(&[strided]).unwrap().kernels[0].name, "add-8f32-8f32-8f32");
}

#[test]
fn holes_keep_their_slots_and_trailing_ones_go() {
    let inputs = r#"["(8,4,1,1)/f32", null, null]"#;
    let rows = sum("8,4,1,1", "").replace("ggml_op_add", "ggml_op_soft_max").replace("binary_ops", "soft_max");
    let text = rows.replace(r#"["(8,4,1,1)/f32", "(8,4,1,1)/f32"]"#, inputs).replace("}", r#", "op_params": [1.0]}"#);
    assert_eq!(run(&[text]).unwrap().kernels[0].node.sources.len(), 1);
}

#[test]
fn sources_of_unknown_kernels_must_be_there() {
    let problems = run(&[sum("8,1,1,1", "").replace("binary_ops.py", "x.py").replace("op_add", "op_ddx")]).unwrap_err();
    assert!(problems[1].contains("Kernel source not found: x.py; "), "{problems:#?}");
    assert!(problems[1].contains("binary_ops.py, "), "{problems:#?}");
}

#[test]
fn a_folder_of_designs_must_have_the_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("scale.py"), "").unwrap();
    let kernels = [sum("8,1,1,1", "")];
    let message = run_with(&kernels, F16Policy::F32, Some(folder.path())).unwrap_err().remove(0);
    let path = folder.path().join("binary_ops.py");
    let expected =
        format!("Kernel source not found: {}; the folder has scale.py; correct --kernels-dir", path.display());
    assert!(message.ends_with(&expected), "{message}");
    fs::write(path, "").unwrap();
    assert!(run_with(&kernels, F16Policy::F32, Some(folder.path())).is_ok());
}

/// A kernel's name comes from what is computed, its source is what the entry says.
#[test]
fn designs_that_the_table_does_not_have_are_taken_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("fast.py"), "def my_add(): ...\ndef ggml_op_add(): ...\ndef blend(): ...\n").unwrap();
    fs::write(folder.path().join("binary_ops.py"), "def ggml_op_add(): ...\n").unwrap();
    let take = |kernels: &[String]| run_with(kernels, F16Policy::F32, Some(folder.path()));
    let mine = |function: &str, more: &str| {
        sum("32,4,1,1", more).replace("ggml_op_add", function).replace("binary_ops", "fast")
    };
    let kernels = [
        sum("32,4,1,1", ""),
        mine("my_add", r#", "operation": "ADD", "exported_name": "mine""#),
        mine("ggml_op_add", r#", "exported_name": "also_mine""#),
        mine("blend", ""),
    ];
    let found = take(&kernels).unwrap();
    let said = |kernel: &KernelRequest| {
        (kernel.op.name().to_owned(), kernel.name.clone(), kernel.design().name().to_string(), kernel.is_listed())
    };
    let sum_name = "add-128f32-128f32-128f32";
    let of = |op: &str, name: &str, design: &str, listed| (op.to_owned(), name.to_owned(), design.to_owned(), listed);
    let expected = [
        of("ADD", sum_name, "ggml_op_add of binary_ops.py", true),
        of("ADD", sum_name, "my_add of fast.py", true),
        of("ADD", sum_name, "ggml_op_add of fast.py", true),
        // Nobody knows what it computes, so its tensors stay as they are.
        of("fast.blend", "fast.blend-32x4f32-32x4f32-32x4f32", "blend of fast.py", false),
    ];
    assert_eq!(found.kernels.iter().map(said).collect::<Vec<_>>(), expected);
    let notes: Vec<String> = found.notes.iter().map(ToString::to_string).collect();
    let expected = [
        "kernels[1]: computes the same as c.json:2:1: kernels[0], by another design; backends find that one",
        "kernels[2]: computes the same as c.json:2:1: kernels[0], by another design",
        "kernels[3]: blend is no design of ggml's operations, so that no backend looks for its kernel; if it computes",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.contains(expected), "{note}");
    }
    // Under one name there is one of them.
    let problems = take(&[sum("32,4,1,1", ""), mine("my_add", r#", "operation": "ADD""#)]).unwrap_err();
    assert!(problems[0].contains("which is another kernel; choose another 'exported_name'"), "{problems:?}");
    // The rules of an operation hold for every design of it.
    let problems = take(&[mine("my_add", r#", "operation": "RELU""#)]).unwrap_err();
    assert!(problems[0].contains("RELU"), "{problems:?}");
    let problems = take(&[mine("my_add", r#", "operation": "ADDX""#)]).unwrap_err();
    assert!(problems[0].contains("unknown operation 'ADDX'; did you mean ADD"), "{problems:?}");
    let problems = run(&[mine("my_add", r#", "operation": "ADD""#)]).unwrap_err();
    assert!(
        problems[0].contains("designs of others are read from the folder that --kernels-dir names"),
        "{problems:?}"
    );
}

/// The types that the C++ tool's documents list beside the floats.
#[rstest]
fn whole_numbers_are_taken(
    #[values("i8", "i16", "i32")] dtype: &str,
    #[values(("ggml_op_add", "add"), ("ggml_op_sub", "sub"), ("ggml_op_mul", "mul"))] binary: (&str, &str),
    #[values(("ggml_unary_op_abs", "abs"), ("ggml_unary_op_neg", "neg"), ("ggml_unary_op_sgn", "sgn"),
             ("ggml_unary_op_step", "step"), ("ggml_unary_op_relu", "relu"))]
    unary: (&str, &str),
) {
    let [whole, row] = ["(64,3,1,1)", "(64,1,1,1)"].map(|extents| format!("{extents}/{dtype}"));
    let kernels = [
        kernel(binary.0, "binary_ops.py", &[&whole, &row], &whole, ""),
        kernel(unary.0, "unary_ops.py", &[&whole], &whole, ""),
    ];
    let found = run(&kernels).unwrap();
    let names: Vec<&str> = found.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let [sum, function] =
        [format!("{}-64x3{dtype}-64x3{dtype}-64{dtype}", binary.1), format!("{}-192{dtype}-192{dtype}", unary.1)];
    assert_eq!((names, found.notes.len()), (vec![sum.as_str(), function.as_str()], 0));
}

#[rstest]
#[case("i8", "i8")]
#[case("i8", "i16")]
#[case("i8", "i32")]
#[case("i8", "f32")]
#[case("i16", "i16")]
#[case("i16", "i32")]
#[case("i16", "f32")]
fn products_of_whole_numbers_are_taken(#[case] dtype: &str, #[case] result: &str) {
    let [a, b] = ["(64,96,1,1)", "(64,5,1,1)"].map(|extents| format!("{extents}/{dtype}"));
    let product = kernel("ggml_op_mul_mat", "mul_mat.py", &[&a, &b], &format!("(96,5,1,1)/{result}"), "");
    let found = run(&[product]).unwrap();
    assert_eq!(found.kernels[0].name, format!("mul_mat-96x5{result}-64x96{dtype}-64x5{dtype}"));
}

/// What is wrong with the shape is said in the type of the result, what is wrong with the type once.
#[rstest]
#[case(
    "(5,96,1,1)/i16",
    "in a product the result has the extents [96, 5, 1, 1], here [5, 96, 1, 1]; write the result as (96,5,1,1)/i16"
)]
#[case("(96,5,1,1)/i8", "MUL_MAT: type i8 of the result; possible: i32; f32 or i16 of i8 and i16; i8 of i8")]
fn mistakes_in_products_of_whole_numbers_are_explained(#[case] output: &str, #[case] expected: &str) {
    let sources = ["(64,96,1,1)/i16", "(64,5,1,1)/i16"];
    let message = one_problem(&[kernel("ggml_op_mul_mat", "mul_mat.py", &sources, output, "")]);
    assert!(message.ends_with(expected), "{message}");
}

/// The C++ documents' product breaks three of ggml's rules, and all three are reported.
#[test]
fn the_product_of_the_cpp_documents_is_rejected_with_every_reason() {
    let product = kernel(
        "ggml_op_mul_mat",
        "mul_mat.py",
        &["(1024,768,1,1)/bf16", "(768,1024,1,1)/bf16"],
        "(1024,1024,1,1)/bf16",
        "",
    );
    let message = one_problem(&[product]);
    assert!(
        message.starts_with("c.json:2:1: kernels[0]: MUL_MAT: type bf16 of the result; possible: f32; "),
        "{message}"
    );
    assert!(message.contains("src0.ne0 must equal src1.ne0, here 1024 and 768"), "{message}");
    assert!(message.contains("the result has the extents [768, 1024, 1, 1], here [1024, 1024, 1, 1]"), "{message}");
    assert!(message.contains("the result is f32, here bf16"), "{message}");
    assert!(message.ends_with("write the result as (768,1024,1,1)/f32"), "{message}");
}

/// One change to the sum of eight floats, and what is said about it.
#[rstest]
#[case::kernel(
    "op_add",
    "op_ad",
    "c.json:2:17: kernels[0].kernel_name: unknown kernel 'ggml_op_ad'; did you mean ggml_op_add"
)]
#[case::prefix("ggml_op_add", "add", "unknown kernel 'add'; did you mean ggml_op_add?")]
#[case::word("ggml_op_add", "quite_wrong_it_is", "'quite_wrong_it_is'; kernels are named ggml_op_add, ")]
#[case::arch("\"aie2\"", "\"aie3\"", "kernels[0].arch: unknown arch 'aie3'; did you mean aie2? possible: aie2, aie2p")]
#[case::arch_files("\"aie2\"", "\"aie3\"", "in the folders of AIE_HAL_ARCH_PATH")]
#[case::source(
    "binary_ops.py",
    "../unary_ops.py",
    "Kernel source not found: ../unary_ops.py has no ggml_op_add; it is in binary_ops.py"
)]
#[case::rule("[\"(8,", "[\"(3,", "ADD: source 0 has extents")]
#[case::count("[\"(8,1,1,1)/f32\", ", "[", "ADD: source 1 is missing")]
#[case::empty("(8,", "(0,", "has no elements")]
#[case::name("}", ", \"exported_name\": \"../a\"}", "'exported_name' cannot name files: `../a` contains '/'")]
fn mistakes_are_explained(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
    let message = one_problem(&[sum("8,1,1,1", "").replace(from, to)]);
    assert!(message.contains(expected), "{message}");
}

#[test]
fn operations_of_the_host_have_no_kernel() {
    let op = table::all().find_map(|op| {
        let mut nodes = DataType::ALL.iter().flat_map(|dtype| op.examples(*dtype));
        let node = nodes.find(|node| op.check(node).is_ok() && matches!(op.placement(node), Placement::Host(_)))?;
        Some((op, node))
    });
    let (op, node) = op.expect("some operation runs on the host");
    let message = check(op, &node, F16Policy::F32).unwrap_err().to_string();
    assert!(message.contains("is computed on the CPU") && message.ends_with("remove it"), "{message}");
}

#[test]
fn equal_entries_are_made_once_and_different_ones_need_different_names() {
    let found = run(&[sum("8,1,1,1", ""), sum("4,2,1,1", "")]).unwrap();
    assert_eq!(found.kernels.len(), 1);
    let note = found.notes[0].to_string();
    assert!(note.contains("kernels[1]: the same kernel as c.json:2:1: kernels[0]; it is generated once"), "{note}");

    let named = r#", "exported_name": "sum""#;
    let message = one_problem(&[sum("8,1,1,1", named), sum("16,1,1,1", named)]);
    assert!(
        message.contains("kernels[1]: 'sum' of aie2 is also the name of c.json:2:1: kernels[0] (add-8f32-"),
        "{message}"
    );
    let other_arch = sum("16,1,1,1", named).replace("\"aie2\"", "\"aie2p\"");
    assert_eq!(run(&[sum("8,1,1,1", named), other_arch]).unwrap().kernels.len(), 2);
}

#[test]
fn names_of_other_kernels_are_rejected_in_both_orders() {
    let thief = sum("16,1,1,1", r#", "exported_name": "add-8f32-8f32-8f32""#);
    for kernels in [
        [sum("8,1,1,1", r#", "exported_name": "x""#), thief.clone()],
        [thief, sum("8,1,1,1", r#", "exported_name": "x""#)],
    ] {
        let message = one_problem(&kernels);
        assert!(message.contains("is the name under which the backend looks for"), "{message}");
    }
}

#[test]
fn names_of_kernels_that_are_not_in_the_file_are_rejected_too() {
    let message = one_problem(&[sum("16,1,1,1", r#", "exported_name": "add-8f32-8f32-8f32""#)]);
    assert!(
        message.contains("`add-8f32-8f32-8f32` is the name under which the backend looks for another kernel, and this one is add-16f32"),
        "{message}"
    );
    let own = run(&[sum("8,1,1,1", r#", "exported_name": "add-8f32-8f32-8f32""#)]).unwrap();
    assert_eq!(own.kernels[0].exported_name, "add-8f32-8f32-8f32");
}

#[test]
fn results_need_memory_of_their_own() {
    let output = |strides: &str| {
        sum("8,4,1,1", "")
            .replace(r#""output_tensor": "(8,4,1,1)/f32"#, &format!(r#""output_tensor": "(8,4,1,1)/f32{strides}"#))
    };
    assert!(run(&[output("")]).is_ok());
    let message = one_problem(&[output("/(1,4,16,16)")]);
    assert!(message.contains("output_tensor: the rows of 'output_tensor' overlap"), "{message}");
}

#[test]
fn kernels_whose_names_leave_out_what_differs_have_different_stems() {
    let leaky = |slope: &str, more: &str| {
        let more = format!(r#", "op_params": [{slope}]{more}"#);
        kernel("ggml_op_leaky_relu", "unary_ops.py", &["(8,1,1,1)/f32"], "(8,1,1,1)/f32", &more)
    };
    let found = run(&[leaky("0.1", ""), leaky("0.2", "")]).unwrap().kernels;
    assert_eq!(found[0].name, found[1].name);
    assert_ne!(found[0].exported_name, found[1].exported_name);
    let named = r#", "exported_name": "leaky_relu-8f32-8f32""#;
    assert_eq!(run(&[leaky("0.1", named), leaky("0.2", "")]).unwrap().kernels.len(), 2);
    assert!(one_problem(&[leaky("0.1", named), leaky("0.2", named)]).contains("which is another kernel"));
}

#[test]
fn mistakes_of_all_entries_come_in_the_order_of_the_file() {
    let kernels = [
        sum("8,1,1", ""),
        sum("8,1,1,1", "").replace("op_add", "op_adx").replace("aie2", "aie9"),
        sum("8,1,1,1", "").replace("binary_ops", "bin"),
    ];
    let problems = run(&kernels).unwrap_err();
    let lines: Vec<&str> = problems.iter().map(|problem| problem.split(": ").nth(1).unwrap()).collect();
    let expected = [
        "kernels[0].input_tensors[0]",
        "kernels[0].input_tensors[1]",
        "kernels[0].output_tensor",
        "kernels[1].kernel_name",
        "kernels[1].arch",
        "kernels[2].kernel_source",
    ];
    assert_eq!(lines, expected);
}

const PIECES: &str = "( ) , / 1 0 8 64 -1 4294967296 18446744073709551616 f32 f16 q4_0 bf16 x \u{e4} (8,1,1,1) \
    (64,2,1,1)/q4_0/(1,64,128,128) /f32 ()";

/// What is accepted is a tensor that makes sense, whose text gives it back.
#[test]
fn random_tensor_texts_never_panic() {
    let mut random = fastrand::Rng::with_seed(0x5eed_0001);
    let pieces: Vec<&str> = PIECES.split(' ').chain([" ", "\n", "\t"]).collect();
    let mut accepted = 0;
    for _ in 0..200_000 {
        let text: String = (0..random.usize(..9)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        match tensor_text::parse(&text) {
            Ok(tensor) => {
                accepted += 1;
                tensor.validate().unwrap();
                assert_eq!(tensor_text::parse(&tensor_text::describe(&tensor)).map(|again| again.ne), Ok(tensor.ne));
            }
            Err(error) => assert!(!error.contains('\n'), "{error:?}"),
        }
    }
    assert!(accepted > 100, "{accepted} of the texts are tensors");
}

#[test]
fn random_configurations_never_panic() {
    const VALUES: &str = r#"null 1 1.5 -3 [] {} true "" "aie2" "aie2p" "ggml_op_add" "binary_ops.py" "(8,1,1,1)/f32"
        ["(8,1,1,1)/f32","(8,1,1,1)/f32"] [null] [1,1.0] "ggml_op_mul_mat" "mul_mat.py" ["(0,1,1,1)/f32"]
        "(1048576,1048576,1048576,1)/i8" ["(64,1,1,1)/q4_0",null,"(1,1,1,1)/i64"] "a""#;
    let values: Vec<&str> = VALUES.split_whitespace().collect();
    let keys: Vec<&str> = REQUIRED.into_iter().chain(OPTIONAL).chain(["x"]).collect();
    let arches = ArchRegistry::builtin();
    let rules = Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: None };
    let mut random = fastrand::Rng::with_seed(0x5eed_0002);
    for _ in 0..5_000 {
        let kernels: Vec<String> = (0..random.usize(..4))
            .map(|_| {
                let members = keys.iter().filter(|_| random.usize(..6) > 0).copied().collect::<Vec<_>>();
                let member = |key: &str| format!("\"{key}\": {}", values[random.usize(..values.len())]);
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
    for op in table::all() {
        for node in DataType::ALL.iter().flat_map(|dtype| op.examples(*dtype)) {
            let Some(text) = configuration(op, &node) else { continue };
            if parse(&Document::new("o.json", text), &rules).is_ok() {
                configured.insert(op.name());
            }
        }
    }
    assert!(configured.len() > 90, "{} operations: {configured:?}", configured.len());
}

/// The configuration of one node, if it has one: fused operations with several results do not.
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

/// Every text that is cut off, or has one byte changed, is either rejected with a place or still a configuration.
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
