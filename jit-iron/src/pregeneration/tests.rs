//! Runs with compilers that fail, and directories that others have written to.

use super::*;
use crate::configuration::{Document, KernelSet, Rules, parse};
use crate::double::Double;
use aie_hal::ArchRegistry;
use aie_hal::format::hsaco::{Hsaco, HsacoContent};
use aie_ops::F16Policy;
use aie_ops::compiler::{CompileError, Failure, KernelCompiler, ReferenceCompiler};
use rstest::rstest;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};
use tempfile::TempDir;

/// Sums of so many floats, under names `s<elements>` or, for 0, under the name that is looked for.
fn sums(elements: &[usize], named: bool) -> KernelSet {
    let kernel = |elements: &usize| {
        let tensor = format!("({elements},1,1,1)/f32");
        let name = if named { format!(r#", "exported_name": "s{elements}""#) } else { String::new() };
        format!(
            r#"{{"kernel_name": "ggml_op_add", "kernel_source": "binary_ops.py", "arch": "aie2p",
                "input_tensors": ["{tensor}", "{tensor}"], "output_tensor": "{tensor}"{name}}}"#
        )
    };
    configuration(&elements.iter().map(kernel).collect::<Vec<_>>())
}

fn configuration(kernels: &[String]) -> KernelSet {
    let arches = ArchRegistry::builtin();
    let document = Document::new("c.json", format!("{{\"kernels\": [{}]}}", kernels.join(", ")));
    parse(&document, &Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: None }).unwrap()
}

fn options(jobs: usize) -> Options {
    Options { jobs, force: false, arches: Vec::new() }
}

fn run_with(wanted: &KernelSet, compiler: &dyn KernelCompiler, path: &Path, options: &Options) -> (Report, bool) {
    let output = OutputDirectory::open(path).unwrap();
    generate(wanted, &[compiler], &output, options, &Progress::silent(), &Interruption::default())
}

fn run(wanted: &KernelSet, path: &Path) -> Report {
    run_with(wanted, &ReferenceCompiler, path, &options(2)).0
}

fn statuses(report: &Report) -> Vec<Status> {
    report.kernels.iter().map(|kernel| kernel.status).collect()
}

fn files(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn kernels_are_made_and_then_kept() {
    let root = TempDir::new().unwrap();
    let wanted = sums(&[8, 16], false);
    let first = run(&wanted, root.path());
    assert_eq!(statuses(&first), [Status::Made, Status::Made]);
    assert_eq!(first.summary(), "Generated 2/2 kernel(s) successfully");
    let stems = ["add-16f32-16f32-16f32", "add-8f32-8f32-8f32"];
    let expected = stems.iter().flat_map(|stem| ["_insts.bin", ".json", ".pdi"].map(|end| format!("{stem}{end}")));
    assert_eq!(files(&root.path().join("aie2p")), expected.collect());
    let second = run(&wanted, root.path());
    assert_eq!(statuses(&second), [Status::Kept, Status::Kept]);
    assert_eq!(second.kernels[0].bytes, first.kernels[0].bytes);
    let forced = Options { force: true, ..options(1) };
    let third = run_with(&wanted, &ReferenceCompiler, root.path(), &forced).0;
    assert_eq!(statuses(&third), [Status::Made, Status::Made]);
}

/// A compiler without designs of others says so, one behind it is asked, and another design is another kernel.
#[test]
fn designs_that_are_named_reach_the_compiler() {
    let (root, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(folder.path().join("fast.py"), "def one(): ...\ndef two(): ...\n").unwrap();
    let wanted = |function: &str| {
        let text = format!(
            r#"{{"kernels": [{{"kernel_name": "{function}", "kernel_source": "fast.py", "operation": "SQR", "arch": "aie2p",
                "input_tensors": ["(8,1,1,1)/f32"], "output_tensor": "(8,1,1,1)/f32"}}]}}"#
        );
        let arches = ArchRegistry::builtin();
        let rules = Rules { arches: &arches, f16: F16Policy::F32, kernels_dir: Some(folder.path()) };
        parse(&Document::new("c.json", text), &rules).unwrap()
    };
    let double = Arc::new(Double::new("1"));
    let behind = Arc::clone(&double);
    let deferred = Deferred::new("double", move || Ok(Arc::clone(&behind) as Arc<dyn KernelCompiler>));
    let run = |function: &str| {
        let output = OutputDirectory::open(root.path()).unwrap();
        let compilers: [&dyn KernelCompiler; 2] = [&ReferenceCompiler, &deferred];
        let (silent, never) = (Progress::silent(), Interruption::default());
        generate(&wanted(function), &compilers, &output, &options(1), &silent, &never).0
    };
    let first = run("one");
    assert_eq!((statuses(&first), &*double.design.lock()), (vec![Status::Made], &"one of fast.py".to_owned()));
    assert_eq!((first.kernels[0].compiler.as_str(), first.kernels[0].kernel.as_str()), ("double", "sqr-8f32-8f32"));
    assert_eq!(statuses(&run("one")), [Status::Kept]);
    let second = run("two");
    assert_eq!((statuses(&second), &*double.design.lock()), (vec![Status::Made], &"two of fast.py".to_owned()));
    let cause = second.kernels[0].cause.clone().unwrap();
    assert!(cause.starts_with("rebuilt: it was built with sources"), "{cause}");
    let alone = run_with(&wanted("one"), &ReferenceCompiler, root.path(), &options(1)).0;
    let cause = alone.kernels[0].cause.clone().unwrap();
    assert!(
        cause.contains("reference does not support it: it does not read designs, and this is one of fast.py"),
        "{cause}"
    );
}

/// Kernels of whole numbers, as files that a simulated device computes with.
#[test]
fn kernels_of_whole_numbers_are_made() {
    let root = TempDir::new().unwrap();
    let kernel = |name: &str, source: &str, inputs: &[&str], output: &str| {
        let inputs: Vec<String> = inputs.iter().map(|input| format!("\"{input}\"")).collect();
        let inputs = inputs.join(", ");
        format!(
            r#"{{"kernel_name": "{name}", "kernel_source": "{source}", "arch": "aie2p", "input_tensors": [{inputs}],
                "output_tensor": "{output}"}}"#
        )
    };
    let element_wise = ["i8", "i16", "i32"].iter().flat_map(|dtype| {
        let tensor = format!("(1024,1,1,1)/{dtype}");
        [
            kernel("ggml_op_mul", "binary_ops.py", &[&tensor, &tensor], &tensor),
            kernel("ggml_unary_op_abs", "unary_ops.py", &[&tensor], &tensor),
        ]
    });
    let products = [("i8", "i8"), ("i8", "i32"), ("i16", "i16"), ("i16", "f32")].map(|(dtype, result)| {
        let sources = ["(64,32,1,1)", "(64,16,1,1)"].map(|extents| format!("{extents}/{dtype}"));
        kernel("ggml_op_mul_mat", "mul_mat.py", &[&sources[0], &sources[1]], &format!("(32,16,1,1)/{result}"))
    });
    let wanted = configuration(&element_wise.chain(products).collect::<Vec<_>>());
    let report = run(&wanted, root.path());
    assert_eq!(report.summary(), "Generated 10/10 kernel(s) successfully");
    let made = files(&root.path().join("aie2p"));
    for stem in ["mul-1024i16-1024i16-1024i16", "abs-1024i8-1024i8", "mul_mat-32x16f32-64x32i16-64x16i16"] {
        assert!(made.contains(&format!("{stem}.pdi")), "{stem} is not in {made:?}");
    }
}

#[test]
fn what_is_stale_or_damaged_is_made_again_with_the_reason() {
    let root = TempDir::new().unwrap();
    let wanted = sums(&[8], true);
    let make = |compiler: &Double| {
        let report = run_with(&wanted, compiler, root.path(), &options(1)).0;
        (report.kernels[0].status, report.kernels[0].cause.clone().unwrap_or_default())
    };
    assert_eq!(make(&Double::new("1")), (Status::Made, String::new()));
    let (status, cause) = make(&Double::new("2"));
    assert_eq!(status, Status::Made);
    assert_eq!(cause, "rebuilt: it was built with toolchain `1`, now it is `2`");
    for (file, expected) in [("s8.pdi", "s8.pdi"), ("s8_insts.bin", "s8_insts.bin"), ("s8.json", "not a manifest")] {
        fs::write(root.path().join("aie2p").join(file), "x").unwrap();
        let (status, cause) = make(&Double::new("2"));
        assert_eq!(status, Status::Made);
        assert!(cause.contains(expected), "{file}: {cause}");
    }
    fs::remove_file(root.path().join("aie2p/s8_insts.bin")).unwrap();
    assert_eq!(make(&Double::new("2")).0, Status::Made);
    assert_eq!(make(&Double::new("2")), (Status::Kept, String::new()));
}

#[test]
fn the_first_compiler_that_has_a_kernel_makes_it() {
    let root = TempDir::new().unwrap();
    let output = OutputDirectory::open(root.path()).unwrap();
    let first = Double { name: "first", ..Double::failing(16, CompileError::Unsupported("16 is too much".into())) };
    let second = Double { name: "second", ..Double::new("2") };
    let make = |compilers: &[&dyn KernelCompiler]| {
        let (wanted, progress, interruption) = (sums(&[8, 16], false), Progress::silent(), Interruption::default());
        generate(&wanted, compilers, &output, &options(1), &progress, &interruption).0
    };
    let makers = |report: &Report| report.kernels.iter().map(|kernel| kernel.compiler.clone()).collect::<Vec<_>>();
    let report = make(&[&first, &second]);
    assert_eq!((makers(&report), statuses(&report)), (vec!["first".into(), "second".into()], vec![Status::Made; 2]));
    assert_eq!((report.compiler.as_str(), report.toolchain.as_str()), ("first, second", "1; 2"));
    // Each recognises its own.
    assert_eq!(statuses(&make(&[&first, &second])), [Status::Kept; 2]);
    // Only the first has lost a kernel to another compiler.
    let report = make(&[&second, &first]);
    assert_eq!((makers(&report), statuses(&report)), (vec!["second".into(); 2], vec![Status::Made, Status::Kept]));
    let missing = Double::failing(16, CompileError::Unavailable("no Python".into()));
    fs::remove_dir_all(root.path().join("aie2p")).unwrap();
    let report = make(&[&first, &missing]);
    assert_eq!(statuses(&report), [Status::Made, Status::Failed]);
    let cause = "compiler first does not support it: 16 is too much; compiler double: no Python";
    assert_eq!(report.kernels[1].cause.as_deref(), Some(cause));
}

#[rstest]
#[case(CompileError::Failed(Failure { cause: "no".into(), output: b"line 1\nline 2".as_slice().into() }), "no", "line 1\nline 2")]
#[case(CompileError::Unsupported("no".into()), "compiler double does not support it: no", "")]
#[case(CompileError::Unavailable("no".into()), "no", "")]
fn one_failure_does_not_keep_the_others_from_being_made(
    #[case] error: CompileError,
    #[case] cause: &str,
    #[case] output: &str,
) {
    let root = TempDir::new().unwrap();
    let double = Double::failing(16, error);
    let (report, nothing_tried) = run_with(&sums(&[8, 16, 32], false), &double, root.path(), &options(2));
    assert_eq!(statuses(&report), [Status::Made, Status::Failed, Status::Made]);
    let failed = &report.kernels[1];
    assert_eq!((failed.cause.as_deref(), failed.output.as_str(), failed.bytes), (Some(cause), output, 0));
    assert_eq!(nothing_tried, matches!(*double.error.lock(), Some(CompileError::Unavailable(_))));
    assert!(!root.path().join("aie2p/add-16f32-16f32-16f32.pdi").exists());
    assert_eq!(report.summary(), "Generated 2/3 kernel(s) successfully");
}

#[test]
fn a_long_output_is_cut_at_its_beginning() {
    let root = TempDir::new().unwrap();
    let mut output = vec![b'x'; 1 << 20];
    output.extend_from_slice(b"error: the end");
    let error = CompileError::Failed(Failure { cause: "no".into(), output: output.into() });
    let double = Double::failing(16, error);
    let (report, _) = run_with(&sums(&[16], false), &double, root.path(), &options(1));
    let output = &report.kernels[0].output;
    assert!(output.starts_with("[...] x") && output.ends_with("error: the end") && output.len() < 70_000);
}

/// Three kernels wait for each other inside the compiler, which ends only if all three are in hand at once.
#[test]
fn jobs_run_at_the_same_time() {
    let root = TempDir::new().unwrap();
    let double = Double { together: Barrier::new(3), ..Double::new("1") };
    let report = run_with(&sums(&[8, 32, 64], false), &double, root.path(), &options(3)).0;
    assert_eq!((report.generated, double.calls.load(SeqCst)), (3, 3));
}

#[test]
fn an_interrupted_run_is_taken_up() {
    let root = TempDir::new().unwrap();
    let output = OutputDirectory::open(root.path()).unwrap();
    let wanted = sums(&[8, 16], false);
    let interruption = Interruption::default();
    interruption.request();
    let progress = Progress::silent();
    let (report, _) = generate(&wanted, &[&ReferenceCompiler], &output, &options(1), &progress, &interruption);
    assert_eq!((report.interrupted, statuses(&report)), (true, vec![Status::Failed; 2]));
    assert!(report.kernels[0].cause.as_ref().unwrap().contains("run the same command again"));
    assert_eq!(run(&wanted, root.path()).generated, 2);
}

#[test]
fn links_follow_a_new_name_and_give_way_to_files() {
    let root = TempDir::new().unwrap();
    let folder = root.path().join("aie2p");
    assert_eq!(run(&sums(&[8], true), root.path()).kernels[0].links, ["add-8f32-8f32-8f32"]);
    let mut renamed = sums(&[8], true);
    renamed.kernels[0].exported_name = "other".into();
    assert_eq!(run(&renamed, root.path()).generated, 1);
    let link = folder.join("add-8f32-8f32-8f32.pdi");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("other.pdi"));
    // The kernel is there, whole and current, if only through a link.
    assert_eq!(statuses(&run(&sums(&[8], false), root.path())), [Status::Kept]);
    let forced = Options { force: true, ..options(1) };
    run_with(&sums(&[8], false), &ReferenceCompiler, root.path(), &forced);
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
    assert!(folder.join("other.pdi").is_file() && folder.join("s8.pdi").is_file());
    fs::write(&link, "damaged").unwrap();
    let output = OutputDirectory::open(root.path()).unwrap();
    assert!(write_packs(&output, [renamed.kernels[0].arch.as_ref()]).unwrap_err().to_string().contains("add-8f32"));
}

#[test]
fn code_objects_have_their_kernel_under_each_name() {
    let root = TempDir::new().unwrap();
    let wanted = sums(&[8], true);
    let report = run(&wanted, root.path());
    let output = OutputDirectory::open(root.path()).unwrap();
    let written = write_hsacos(&output, [(&wanted.kernels[0], &report.kernels[0].links[..])]).unwrap();
    let folder = root.path().join("aie2p");
    assert_eq!(written, ["s8.hsaco", "add-8f32-8f32-8f32.hsaco"].map(|name| folder.join(name)));
    let pdi = fs::read(folder.join("s8.pdi")).unwrap();
    for (path, name) in written.iter().zip(["s8", "add-8f32-8f32-8f32"]) {
        let bytes = fs::read(path).unwrap();
        let hsaco = Hsaco::parse(&bytes).unwrap();
        let [kernel] = hsaco.kernels("aie2p") else { panic!("{hsaco:?}") };
        let HsacoContent::Code(code) = kernel.content else { panic!("{kernel:?}") };
        assert_eq!((kernel.name, kernel.arguments, code.pdi), (name, 3, &pdi[..]));
    }
    // The kernel is there without the other files, and gone with all.
    for end in [".pdi", "_insts.bin", ".json"] {
        fs::remove_file(folder.join(format!("s8{end}"))).unwrap();
    }
    assert!(write_hsacos(&output, [(&wanted.kernels[0], &[][..])]).is_ok());
    fs::remove_file(folder.join("s8.hsaco")).unwrap();
    let error = write_hsacos(&output, [(&wanted.kernels[0], &[][..])]).unwrap_err().to_string();
    assert!(error.contains("s8.hsaco") && error.contains("there is no") && error.contains("s8.pdi"), "{error}");
}

#[test]
fn a_file_of_somebody_else_is_not_replaced_by_a_link() {
    let root = TempDir::new().unwrap();
    let folder = root.path().join("aie2p");
    fs::create_dir(&folder).unwrap();
    let theirs = folder.join("add-8f32-8f32-8f32.pdi");
    fs::write(&theirs, "theirs").unwrap();
    let report = run(&sums(&[8], true), root.path());
    assert_eq!(statuses(&report), [Status::Failed]);
    let cause = report.kernels[0].cause.as_ref().unwrap();
    assert!(cause.ends_with("exists and is not a link; remove it, or leave out 'exported_name'"), "{cause}");
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
}

#[test]
fn ambiguous_names_get_no_link_but_a_note() {
    let leaky = |slope: &str| {
        format!(
            r#"{{"kernel_name": "ggml_op_leaky_relu", "kernel_source": "unary_ops.py", "arch": "aie2",
                "input_tensors": ["(8,1,1,1)/f32"], "output_tensor": "(8,1,1,1)/f32", "op_params": [{slope}]}}"#
        )
    };
    let one = plan_links(&configuration(&[leaky("0.1")]).kernels);
    assert_eq!((one.names, one.notes.len()), (vec![vec!["leaky_relu-8f32-8f32".to_owned()]], 0));
    let two = plan_links(&configuration(&[leaky("0.1"), leaky("0.2")]).kernels);
    assert_eq!((two.names, two.notes.len()), (vec![vec![], vec![]], 2));
    assert!(two.notes[0].to_string().contains("the C++ backend will find neither"), "{}", two.notes[0]);
}

#[test]
fn leftovers_of_killed_runs_are_swept_up() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("aie2p")).unwrap();
    for file in ["aie2p/.making-abc", ".making-def", "aie2p/keep.pdi"] {
        fs::write(root.path().join(file), "x").unwrap();
    }
    OutputDirectory::open(root.path()).unwrap();
    assert_eq!(files(&root.path().join("aie2p")), BTreeSet::from(["keep.pdi".to_owned()]));
    assert!(!root.path().join(".making-def").exists());
}

#[test]
fn plans_tell_what_is_there() {
    let root = TempDir::new().unwrap();
    run(&sums(&[8], true), root.path());
    let wanted = sums(&[8, 16], true);
    let report = plan(&wanted, Some(root.path()), &options(1));
    assert_eq!(statuses(&report), [Status::Kept, Status::Planned]);
    assert_eq!(statuses(&plan(&wanted, None, &options(1))), [Status::Planned, Status::Planned]);
    let elsewhere = Options { arches: vec!["aie2".into()], ..options(1) };
    assert_eq!(statuses(&plan(&wanted, None, &elsewhere)), [Status::Skipped, Status::Skipped]);
}
