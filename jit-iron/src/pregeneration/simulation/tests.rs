//! The simulator's side of the conversation is a double here; the real one runs the project's designs in jit-iron/iron/tests.

use super::*;
use crate::configuration::{Document, Rules, parse};
use aie_hal::ArchRegistry;
use aie_ops::F16Policy;
use rstest::rstest;
use std::os::unix::fs::PermissionsExt as _;

/// Reads the request as `request`, which `BODY` answers.
const DOUBLE: &str = "
import json, struct, sys, time
request = json.loads(sys.stdin.readline())['simulate']
def numbers(path):
    data = open(path, 'rb').read()
    return struct.unpack(f'<{len(data) // 4}f', data)
def done(values):
    open(request['output'], 'wb').write(struct.pack(f'<{len(values)}f', *values))
    print(json.dumps({'done': {'id': 1, 'transfers': 3, 'core_calls': 1, 'cores': 4, 'columns': 2}}))
first, second = map(numbers, request['inputs'])
";

/// A Python in `folder` whose numpy is the text `numpy`.
fn python(folder: &Path, numpy: &str) -> PathBuf {
    let path = folder.join("python");
    fs::write(&path, "#!/bin/sh\nPYTHONPATH=${0%/*} exec python3 \"$@\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("numpy.py"), numpy).unwrap();
    fs::write(folder.join("ml_dtypes.py"), "").unwrap();
    path
}

/// What `function` makes of twice 16 elements of f32.
fn wanted(function: &str, kernels_dir: Option<&Path>) -> KernelSet {
    let text = format!(
        r#"{{"kernels": [{{"kernel_name": "{function}", "kernel_source": "binary_ops.py", "arch": "aie2",
            "input_tensors": ["(16,1,1,1)/f32", "(16,1,1,1)/f32"], "output_tensor": "(16,1,1,1)/f32"}}]}}"#
    );
    let arches = ArchRegistry::builtin();
    let rules = Rules { arches: &arches, f16: F16Policy::default(), kernels_dir };
    parse(&Document::new("kernels.json", text), &rules).unwrap()
}

/// A sum of 16 elements of f32.
fn simulated(body: &str, other: Option<&OtherWay<'_>>) -> Simulated {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(KERNELS)).unwrap();
    fs::write(root.path().join("kernels/binary_ops.py"), "").unwrap();
    fs::write(root.path().join(SIMULATOR), format!("{DOUBLE}{body}\n")).unwrap();
    let wanted = wanted("ggml_op_add", None);
    let simulator = Simulator::new(root.path(), None, Some(python(root.path(), "")), Duration::from_secs(5)).unwrap();
    assert!(simulator.run(&wanted, &["aie2p".to_owned()], 1, None).is_empty());
    let [one] = <[_; 1]>::try_from(simulator.run(&wanted, &[], 4, other)).unwrap();
    assert_eq!((one.arch.as_str(), one.operation.as_str()), ("aie2", "ADD"));
    one
}

fn verdict(body: &str) -> Verdict {
    let one = simulated(body, None);
    assert_eq!(one.other, None);
    one.verdict
}

#[test]
fn another_way_is_compared_with_both() {
    let sums = "done([a + b for a, b in zip(first, second)])";
    let one_off = |_: &KernelRequest, sources: &[&[u8]]| {
        let floats =
            |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect() };
        let mut sums: Vec<f32> = floats(sources[0]).iter().zip(floats(sources[1])).map(|(a, b)| a + b).collect();
        sums[5] += 1.0;
        Ok(sums.iter().flat_map(|sum| sum.to_le_bytes()).collect())
    };
    let one = simulated(sums, Some(&one_off));
    assert!(one.is_bad() && !one.verdict.is_bad());
    let other = one.other.unwrap();
    assert!(matches!(other.verdict, Verdict::Wrong { element: 5, .. }));
    let difference = other.beside.unwrap();
    assert!(difference.elements == 1 && difference.of == 16 && difference.nmse > 1e-3, "{difference:?}");

    let unsupported = || Verdict::Unsupported { cause: "no such way".into() };
    let failed = || Verdict::Failed { cause: "a lock is never released".into(), place: None };
    for (verdict, is_bad) in [(unsupported(), false), (failed(), true)] {
        let one = simulated(sums, Some(&|_, _| Err(verdict.clone())));
        assert_eq!((one.is_bad(), one.other), (is_bad, Some(Other { verdict: verdict.clone(), beside: None })));
    }
}

#[test]
fn what_the_reference_kernel_computes_is_right() {
    assert_eq!(verdict("done([a + b for a, b in zip(first, second)])"), Verdict::Right { nmse: 0.0 });
}

#[test]
fn the_element_that_differs_most_is_named() {
    let Verdict::Wrong { nmse, allowed, element, found, expected } =
        verdict("done([a + b + (i == 7) for i, (a, b) in enumerate(zip(first, second))])")
    else {
        panic!()
    };
    assert!(nmse > 1e-3 && allowed == 1e-7 && element == 7);
    assert!((found - expected - 1.0).abs() < 1e-6, "{found} {expected}");
}

#[rstest]
#[case::no_number("float('nan')")]
#[case::infinity("float('inf')")]
fn what_is_no_number_is_wrong(#[case] value: &str) {
    let body = format!("done([{value} if i == 3 else a + b for i, (a, b) in enumerate(zip(first, second))])");
    assert!(matches!(verdict(&body), Verdict::Wrong { element: 3, .. }));
}

#[rstest]
#[case::failed(r#"print('{"failed": {"id": 1, "cause": "deadlock", "place": "a.py:7"}}')"#, "deadlock")]
#[case::rubbish("print('hello')", "the simulator ended without an answer (exit status: 0)")]
#[case::dead("sys.exit('no space left')", "(exit status: 1): no space left")]
#[case::hanging("time.sleep(60)", "it took longer than 5 s and was ended")]
#[case::short("done([1.0])", "the simulator wrote 4 bytes of 64")]
#[case::none(r#"print('{"done": {"id": 1, "cores": 1, "columns": 1}}')"#, "the simulator left no result")]
fn failures_are_reported(#[case] body: &str, #[case] expected: &str) {
    let Verdict::Failed { cause, .. } = verdict(body) else { panic!() };
    assert!(cause.contains(expected), "{cause}");
}

#[test]
fn what_a_design_declines_is_no_failure() {
    let answer = r#"print('{"unsupported": {"id": 1, "cause": "not this type"}}')"#;
    assert_eq!(verdict(answer), Verdict::Unsupported { cause: "not this type".into() });
    assert!(!verdict(answer).is_bad());
}

/// There is nothing to compare with what a function computes that only the configuration knows.
#[test]
fn designs_that_the_table_does_not_have_run_without_a_verdict() {
    let root = tempfile::tempdir().unwrap();
    let kernels = root.path().join(KERNELS);
    fs::create_dir(&kernels).unwrap();
    fs::write(kernels.join("binary_ops.py"), "def blend(): ...").unwrap();
    let body = "assert (request['source'], request['function']) == ('binary_ops.py', 'blend'), request\ndone(first)\n";
    fs::write(root.path().join(SIMULATOR), format!("{DOUBLE}{body}")).unwrap();
    let simulator = Simulator::new(root.path(), None, Some(python(root.path(), "")), Duration::from_secs(5)).unwrap();
    let [one] = <[_; 1]>::try_from(simulator.run(&wanted("blend", Some(&kernels)), &[], 1, None)).unwrap();
    assert_eq!((one.operation.as_str(), one.verdict, one.cores), ("binary_ops.blend", Verdict::Unjudged, 4));
}

#[test]
fn a_folder_without_the_simulator_or_designs_is_named() {
    let root = tempfile::tempdir().unwrap();
    let error = |kernels| Simulator::new(root.path(), kernels, None, Duration::MAX).unwrap_err().to_string();
    assert!(error(None).contains("there is no simulate.py in"));
    fs::write(root.path().join(SIMULATOR), "").unwrap();
    assert!(error(None).contains("there are no designs in"));
}

#[test]
fn a_python_without_packages_is_reported_before_anything_runs() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(KERNELS)).unwrap();
    fs::write(root.path().join(SIMULATOR), "").unwrap();
    let error = |python| Simulator::new(root.path(), None, Some(python), Duration::MAX).unwrap_err().to_string();
    let lacking = error(python(root.path(), "raise ImportError('no numpy')"));
    assert!(lacking.contains("ImportError: no numpy; install the packages (`pip install"), "{lacking}");
    assert!(error(root.path().join("none")).contains("none cannot be started"));
}

/// Every type that designs take: what is written is read, in every operation's range.
#[rstest]
fn values_are_of_their_type(#[values("f32", "f16", "bf16", "i8", "i16", "i32")] name: &str) {
    use aie_ops::{DataType, Node, OpParams, Tensor};
    let tensor = Tensor::contiguous(DataType::from_name(name).unwrap(), [64, 1, 1, 1]);
    let node = Node::new("DIV", OpParams::default(), tensor, vec![Some(tensor), None, Some(tensor)]);
    let inputs = values::inputs("SQRT", &node).unwrap();
    let [Some(first), None, Some(third)] = &inputs[..] else { panic!() };
    assert_ne!(first, third);
    assert_eq!(values::inputs("SQRT", &node).unwrap(), inputs);
    assert_eq!(values::compared("SQRT", &node, first, first).unwrap(), Verdict::Right { nmse: 0.0 });
    assert!(values::compared("SQRT", &node, first, third).unwrap().is_bad());
}

#[test]
fn blocks_are_those_of_random_numbers() {
    use aie_ops::{DataType, Node, OpParams, Tensor, blocks};
    let tensor = Tensor::contiguous(DataType::from_name("q4_0").unwrap(), [64, 2, 1, 1]);
    let node = Node::new("MUL_MAT", OpParams::default(), tensor, vec![Some(tensor)]);
    let inputs = values::inputs("MUL_MAT", &node).unwrap();
    let mut numbers = [0.0; 128];
    assert!(blocks::decode(tensor.dtype, inputs[0].as_ref().unwrap(), &mut numbers));
    assert!(numbers.iter().all(|number| number.abs() <= 2.1) && numbers.iter().any(|number| *number != numbers[0]));
}
