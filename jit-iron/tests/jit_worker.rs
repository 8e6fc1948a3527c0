//! `ggml-hsa-jit-worker`, and what the worker's side owes to its host.

mod processes;
mod rig;

use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_jit_iron::worker::serve;
use aie_jit_iron::{WorkerCommand, WorkerCompiler};
use aie_ops::compiler::{CompileError, KernelCompiler, ReferenceCompiler};
use aie_ops::{DataType, Node, OpParams, Operation, Tensor, table};
use processes::{CHILDREN, CHILDREN_COUNT, marked, until};
use rig::{arch, sum};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

const WORKER: &str = env!("CARGO_BIN_EXE_ggml-hsa-jit-worker");

#[test]
fn the_reference_worker_makes_reference_kernels() {
    let work = tempfile::tempdir().unwrap();
    let command = WorkerCommand::new(WORKER, [""; 0]);
    let compiler = WorkerCompiler::new("reference", command, aie_ops::SOURCE_DIGEST)
        .cache_folder("reference")
        .work_folder(work.path());
    let (op, node) = sum(1024);
    assert_eq!(compiler.identity(), ReferenceCompiler.identity());
    assert_eq!(compiler.sources(), ReferenceCompiler.sources());
    assert_eq!((compiler.name(), compiler.folder()), ("reference", "reference"));
    let expected = ReferenceCompiler.compile(op, &node, &arch()).unwrap();
    let artifact = compiler.compile(op, &node, &arch()).unwrap();
    assert_eq!((artifact.name(), artifact.identity()), ("add-1024f32-1024f32-1024f32", expected.identity()));
    let wrong = Tensor::contiguous(DataType::I64, [64, 64, 1, 1]);
    let wrong = Node::new("MUL_MAT", OpParams::default(), wrong, vec![Some(wrong); 2]);
    let error = compiler.compile(table::lookup("MUL_MAT").unwrap(), &wrong, &arch()).unwrap_err();
    assert!(matches!(error, CompileError::Unsupported(_)), "{error:?}");
    drop(compiler);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
}

/// The worker, its output, and what it said first.
fn start() -> (Child, BufReader<ChildStdout>, String) {
    let mut command = Command::new(WORKER);
    let mut worker = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(worker.stdout.take().unwrap());
    let mut hello = String::new();
    output.read_line(&mut hello).unwrap();
    (worker, output, hello)
}

#[test]
fn it_says_hello_and_ends_with_its_input() {
    let (worker, mut output, hello) = start();
    let identity = ReferenceCompiler.identity();
    let expected = format!(r#"{{"hello":{{"protocol":1,"compiler":"reference","identity":"{identity}"}}}}"#);
    assert_eq!(hello, expected + "\n");
    let end = worker.wait_with_output().unwrap();
    assert_eq!((end.status.code(), end.stderr.len()), (Some(0), 0));
    assert_eq!(output.read_to_string(&mut String::new()).unwrap(), 0);
}

#[test]
fn what_is_no_request_ends_it() {
    let (mut worker, _, _) = start();
    worker.stdin.as_mut().unwrap().write_all(b"compile this\n").unwrap();
    // The input stays open.
    let mut words = String::new();
    worker.stderr.as_mut().unwrap().read_to_string(&mut words).unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(1));
    assert!(words.starts_with("ggml-hsa-jit-worker: \"compile this\" is not a request: "), "{words}");
}

#[test]
fn a_request_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let node = serde_json::to_string(&sum(1024).1).unwrap();
    let request = format!(
        r#"{{"compile":{{"id":7,"kernel":"add-1024f32-1024f32-1024f32","arch":"aie2p","node":{node},"source":"binary_ops.py","function":"ggml_op_add","work_dir":"{}","verbose":false}}}}"#,
        folder.path().display()
    );
    let (mut worker, mut output, _) = start();
    writeln!(worker.stdin.as_mut().unwrap(), "{request}").unwrap();
    let mut reply = String::new();
    output.read_line(&mut reply).unwrap();
    assert_eq!(reply, "{\"done\":{\"id\":7,\"pdi\":\"kernel.pdi\",\"instructions\":\"kernel_insts.bin\"}}\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    drop(worker.stdin.take());
    assert!(worker.wait().unwrap().success());
}

#[test]
fn help_says_who_starts_it() {
    let output = Command::new(WORKER).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["libggml-hsa.so starts this program", "Examples:", "GGML_HSA_JIT_WORKER=", "Exit status:"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(output.status.success());
    assert_eq!(Command::new(WORKER).arg("--fast").output().unwrap().status.code(), Some(2));
}

/// Starts processes, in its group and out of it, and does not return.
#[derive(Debug)]
struct Stuck;

impl KernelCompiler for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }

    fn identity(&self) -> String {
        "stuck".into()
    }

    fn sources(&self) -> String {
        String::new()
    }

    fn compile(&self, _: &dyn Operation, _: &Node, _: &Arch) -> Result<KernelArtifact, CompileError> {
        // The last one has neither mark nor group nor parent.
        let script = format!("{CHILDREN}(env -i input=\"$input\" setsid sh -c '(sleep 1000 &)' &)");
        Command::new("sh").arg("-c").arg(script).stdout(Stdio::null()).status().unwrap();
        loop {
            thread::park();
        }
    }
}

/// What this executable is, when it starts itself.
const ROLE: &str = "JIT_TEST_ROLE";

/// The command of a process in which `test` is called again, with another role.
fn again(test: &str, role: &str, input: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role).env("input", input);
    command
}

/// A host that is killed takes its workers with it, and their descendants.
#[test]
fn a_host_that_is_killed() {
    const TEST: &str = "a_host_that_is_killed";
    match std::env::var(ROLE).as_deref() {
        Ok("host") => {
            // The test harness prints to the standard output, so the worker's protocol goes elsewhere.
            let script = format!("exec \"$0\" --exact {TEST} --nocapture 3>&1 1>&2");
            let command = WorkerCommand {
                environment: vec![(ROLE.into(), "worker".into())],
                ..WorkerCommand::new(
                    "sh",
                    ["-c".as_ref(), script.as_ref(), std::env::current_exe().unwrap().as_os_str()],
                )
            };
            let compiler = WorkerCompiler::new("stuck", command, "")
                .work_folder(Path::new(&std::env::var_os("input").unwrap()).join("work"));
            let (op, node) = sum(1024);
            panic!("{:?}", compiler.compile(op, &node, &arch()));
        }
        Ok("worker") => {
            let output = fs::File::options().write(true).open("/dev/fd/3").unwrap();
            let input = BufReader::new(std::io::stdin());
            serve::serve_over(input, output, &Stuck, &ArchRegistry::builtin()).unwrap();
        }
        _ => {
            let folder = tempfile::tempdir().unwrap();
            let variable = format!("input={}", folder.path().display());
            let mut host = again(TEST, "host", folder.path()).stdout(Stdio::null()).spawn().unwrap();
            // With host, worker, and the one without a mark.
            until("the processes of the compiler", || marked(&variable).len() == CHILDREN_COUNT + 3);
            let work = || fs::read_dir(folder.path().join("work")).unwrap().count();
            assert_eq!(work(), 1);
            host.kill().unwrap();
            host.wait().unwrap();
            until("the end of the processes", || marked(&variable).is_empty());
            // The next host removes what the killed one could not.
            let command = WorkerCommand::new(WORKER, [""; 0]);
            let next = WorkerCompiler::new("reference", command, "").work_folder(folder.path().join("work"));
            let (op, node) = sum(1024);
            next.compile(op, &node, &arch()).unwrap();
            assert_eq!(work(), 1);
            drop(next);
            assert_eq!(work(), 0);
        }
    }
}
