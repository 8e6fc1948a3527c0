//! Compilers that do everything a compiler must not: each costs an error in time, never the host, and leaves no process and no
//! file behind.
//!
//! The workers are doubles: shell scripts that say hello, misbehave once, and compile as they should from then on, by copying a
//! kernel that was made beforehand.
//!
//! Needs `sh`, `setsid` (util-linux) and the usual programs of coreutils in `PATH`.

mod processes;
mod rig;

use aie_hal::{ArchRegistry, KernelArtifact};
use aie_jit_iron::settings::GGML_HSA_JIT_JOB;
use aie_jit_iron::{WorkerCommand, WorkerCompiler, WorkerLimits};
use aie_ops::compiler::{CompileError, Failure, KernelCompiler, ReferenceCompiler};
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use processes::{CHILDREN, CHILDREN_COUNT, marked, until};
use rig::{arch, sum};
use rstest::rstest;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time limit of a compilation that will reach it.
const TIME: Duration = Duration::from_secs(3);
/// Beyond the limit: starting, noticing and killing processes on a machine that is busy with other tests.
const MARGIN: Duration = Duration::from_secs(57);
/// The time limit of the compilations that are ended for something else: if that went unnoticed, they would end too late.
const LONG: Duration = Duration::from_secs(240);

/// Before the misbehaviour: `$line` is the request, `$id` and `$work` are from it, `$input` is where the good and the bad files
/// are. `answer` answers as it should.
const PROLOGUE: &str = r#"
echo '{"hello":{"protocol":1,"compiler":"double","identity":"double 1"}}'
done_with() { echo "{\"done\":{\"id\":$id,\"pdi\":\"$1\",\"instructions\":\"$2\"}}"; }
answer() { cp "$input/good.pdi" "$input/good_insts.bin" "$work"; done_with good.pdi good_insts.bin; }
misbehave() {
"#;
/// After it: only the first job of all workers of a test misbehaves.
const EPILOGUE: &str = r#"
}
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\),.*/\1/')
  work=$(printf '%s' "$line" | sed 's/.*"work_dir":"\([^"]*\)".*/\1/')
  if mkdir "$input/misbehaved" 2>/dev/null; then misbehave; else answer; fi
done
"#;

/// A compiler whose workers are doubles, and what they leave behind.
struct Bench {
    compiler: WorkerCompiler,
    work: TempDir,
    input: TempDir,
}

fn good() -> KernelArtifact {
    let (op, node) = sum(1024);
    ReferenceCompiler.compile(op, &node, &arch()).unwrap()
}

/// Limits that are small enough to be reached by a test, but for those of time.
fn limits() -> WorkerLimits {
    WorkerLimits {
        workers: 2,
        time: LONG,
        hello: LONG,
        memory_bytes: 4 << 30,
        output_bytes: 8 << 20,
        file_bytes: 16 << 20,
        folder_bytes: 32 << 20,
    }
}

/// The parent of a process that is there.
fn parent(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1).map(str::to_owned)
}

/// A process, for messages.
fn describe(pid: &str) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command: String = String::from_utf8_lossy(&command).replace('\0', " ").chars().take(80).collect();
    format!("{pid}: {command}")
}

impl Bench {
    /// Of a script's misbehaviour.
    fn misbehaving(script: &str, limits: WorkerLimits) -> Self {
        Self::of_script(&format!("{PROLOGUE}{script}{EPILOGUE}"), limits, true)
    }

    fn of_script(script: &str, limits: WorkerLimits, sweep: bool) -> Self {
        let (work, input) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let artifact = good();
        for (name, bytes) in [("good.pdi", artifact.pdi()), ("good_insts.bin", artifact.instructions())] {
            fs::write(input.path().join(name), bytes).unwrap();
        }
        let command = WorkerCommand {
            sweep_after_each: sweep,
            environment: vec![("input".into(), input.path().into())],
            ..WorkerCommand::new("sh", ["-c", script])
        };
        let builder = WorkerCompiler::new("double", command, "");
        let compiler = builder.limits(limits).work_folder(work.path());
        Self { compiler, work, input }
    }

    fn compile(&self) -> Result<KernelArtifact, CompileError> {
        let (op, node) = sum(1024);
        self.compiler.compile(op, &node, &arch())
    }

    /// The error of the first compilation, which came in time. The next one is as it should be.
    fn error(&self) -> CompileError {
        let start = Instant::now();
        let error = self.compile().expect_err("the double misbehaved");
        assert!(start.elapsed() < TIME + MARGIN, "{:?}: {error}", start.elapsed());
        self.check_next();
        error
    }

    fn failure(&self) -> Failure {
        match self.error() {
            CompileError::Failed(failure) => failure,
            error => panic!("{error:?}"),
        }
    }

    fn check_next(&self) {
        assert_eq!(self.compile().unwrap().identity(), good().identity());
    }

    /// Running processes that workers of this bench started. The workers themselves are children of this process.
    fn strays(&self) -> Vec<String> {
        let variable = format!("input={}", self.input.path().display());
        let own = std::process::id().to_string();
        let is_worker = |pid: &str| parent(pid).is_none_or(|parent| parent == own);
        marked(&variable).into_iter().filter(|pid| !is_worker(pid)).map(|pid| describe(&pid)).collect()
    }

    /// Ends the compiler: nothing is left, neither process nor file.
    fn end(self) {
        let Self { compiler, work, input } = self;
        drop(compiler);
        let variable = format!("input={}", input.path().display());
        let left: Vec<_> = marked(&variable).iter().map(|pid| describe(pid)).collect();
        assert_eq!(left, [""; 0], "processes are left");
        let left: Vec<_> = fs::read_dir(work.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [""; 0], "files are left");
    }
}

#[rstest]
#[case::hangs("sleep 1000")]
#[case::spins("while :; do :; done")]
#[case::closes_everything_and_hangs("exec 0<&- 2>&-; sleep 1000")]
#[case::ignores_signals("trap '' TERM INT HUP; while :; do sleep 1; done")]
#[case::stops_itself("kill -STOP $$")]
#[case::sends_half_a_line("printf '{\"done\":'; sleep 1000")]
fn hanging(#[case] script: &str) {
    let bench = Bench::misbehaving(script, WorkerLimits { time: TIME, ..limits() });
    let failure = bench.failure();
    let text =
        "the double compiler took longer than 3 s and was stopped; set GGML_HSA_JIT_TIMEOUT, in seconds, to allow more";
    assert_eq!(failure.cause, text);
    bench.end();
}

#[rstest]
#[case::segfault("kill -SEGV $$", "was killed by SIGSEGV; if it ran out of memory, set GGML_HSA_JIT_MEMORY_MAX")]
#[case::abort(
    "echo assertion >&2; echo >&2; kill -ABRT $$",
    "was killed by SIGABRT; if it ran out of memory, set GGML_HSA_JIT_MEMORY_MAX to allow each of its processes more than 4 GiB; \
     its last output: assertion"
)]
#[case::another_signal("kill -63 $$", "was killed by signal 63 instead of answering")]
#[case::exit("exit 3", "ended with exit status 3 instead of answering")]
#[case::leaves_its_output_to_a_child("sleep 1000 & exit 4", "ended with exit status 4 instead of answering")]
#[case::closes_its_output("exec 1>&-; sleep 1000", "closed its output instead of answering")]
#[case::one_file(
    "exec head -c 1073741824 /dev/zero > \"$work/a\"",
    "was killed by SIGXFSZ because it wrote a file of more than 16 MiB"
)]
#[case::many_files(
    "i=0; while :; do head -c 8388608 /dev/zero > \"$work/$i\"; i=$((i+1)); done",
    "wrote more than 32 MiB into its work folder"
)]
#[case::temporary_files(
    "i=0; while :; do head -c 8388608 /dev/zero > \"$TMPDIR/$i\"; i=$((i+1)); done",
    "wrote more than 32 MiB into its work folder"
)]
#[case::empty_files(
    "i=0; while :; do : > \"$work/$i\"; i=$((i+1)); done",
    "wrote more than 32 MiB into its work folder"
)]
#[case::and_answers(
    "for i in 0 1 2 3 4; do head -c 8388608 /dev/zero > \"$work/$i\"; done; answer",
    "wrote more than 32 MiB into its work folder"
)]
fn crashing_or_filling_the_disk(#[case] script: &str, #[case] text: &str) {
    let bench = Bench::misbehaving(script, limits());
    let failure = bench.failure();
    assert!(failure.cause.starts_with(&format!("the double compiler {text}")), "{}", failure.cause);
    bench.end();
}

#[rstest]
#[case("KILL")]
#[case("TERM")]
fn killed_by_others(#[case] signal: &str) {
    let bench = Bench::misbehaving(&format!("kill -{signal} $$"), limits());
    let error = bench.error();
    let text = format!("the double compiler was killed by SIG{signal}, by the system");
    assert!(matches!(&error, CompileError::Unavailable(cause) if cause.starts_with(&text)), "{error:?}");
    bench.end();
}

#[test]
fn printing_without_end() {
    let bench = Bench::misbehaving("head -c 1073741824 /dev/zero >&2; answer", limits());
    let failure = bench.failure();
    assert!(failure.cause.starts_with("the double compiler printed more than 8 MiB"), "{}", failure.cause);
    assert_eq!(failure.output.len(), 8 << 20);
    bench.end();
}

#[test]
fn all_that_is_printed_is_kept_and_shown() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo \"note $i\" >&2; i=$((i+1)); done\n\
                  echo \"{\\\"failed\\\":{\\\"id\\\":$id,\\\"cause\\\":\\\"no room\\\"}}\"";
    let expected: String = (0..2000).map(|i| format!("note {i}\n")).collect();
    let quiet = Bench::misbehaving(script, limits());
    let failure = quiet.failure();
    assert_eq!((failure.cause.as_str(), std::str::from_utf8(&failure.output)), ("no room", Ok(expected.as_str())));
    quiet.end();

    let mut bench = Bench::misbehaving(script, limits());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let environment = vec![("input".into(), bench.input.path().into())];
    let command = WorkerCommand::new("sh", ["-c", &format!("{PROLOGUE}{script}{EPILOGUE}")]);
    bench.compiler = WorkerCompiler::new("double", WorkerCommand { environment, ..command }, "")
        .limits(limits())
        .work_folder(bench.work.path())
        .verbose(move |kernel, bytes| {
            assert_eq!(kernel, "add-1024f32-1024f32-1024f32");
            sink.lock().unwrap().extend_from_slice(bytes);
        });
    bench.failure();
    assert_eq!(std::str::from_utf8(&heard.lock().unwrap()), Ok(expected.as_str()));
    bench.end();
}

#[rstest]
#[case::junk("echo nothing like it", "answered \\\"nothing like it\\\", which is not a reply")]
#[case::bytes("head -c 100 /dev/urandom | tr -d '\\n'; echo", "which is not a reply")]
#[case::another_message("echo '{\"maybe\":{\"id\":1}}'", "which is not a reply: unknown variant `maybe`")]
#[case::another_job("id=77; answer", "answered job 77, the job is 1")]
#[case::twice("id2=$(answer; answer); echo \"$id2\"", "answered more than once, with \"{\\\"done\\\":")]
#[case::a_line_without_end("tr '\\0' x < /dev/zero", "sent a line of more than 1048576 bytes")]
#[case::an_empty_line("echo", "answered \"\", which is not a reply")]
fn not_keeping_to_the_protocol(#[case] script: &str, #[case] text: &str) {
    let bench = Bench::misbehaving(script, limits());
    let failure = bench.failure();
    let text = text.replace("\\\"nothing like it\\\"", "\"nothing like it\"");
    assert!(failure.cause.contains("violates the protocol: it "), "{}", failure.cause);
    assert!(failure.cause.contains(&text), "{} does not have {text}", failure.cause);
    bench.end();
}

/// A reply that comes late is not taken for that of the next kernel.
#[test]
fn answering_again_later() {
    let script = "answer; sleep 0.1; echo '{\"failed\":{\"id\":2,\"cause\":\"late\"}}'";
    let bench = Bench::misbehaving(script, limits());
    bench.check_next();
    thread::sleep(Duration::from_millis(300));
    bench.check_next();
    bench.end();
}

#[rstest]
#[case::and_answers("answer", true)]
#[case::and_hangs("sleep 1000", false)]
#[case::and_crashes("kill -SEGV $$", false)]
fn leaving_children_behind(#[case] then: &str, #[case] succeeds: bool) {
    // All of them are there at some moment, so that their absence says something.
    let script = format!("{CHILDREN}until [ -e \"$input/seen\" ]; do :; done; {then}");
    let time = if then == "sleep 1000" { 5 * TIME } else { LONG };
    let bench = Bench::misbehaving(&script, WorkerLimits { time, ..limits() });
    thread::scope(|scope| {
        let job = scope.spawn(|| bench.compile());
        until("the children of the worker", || bench.strays().len() == CHILDREN_COUNT);
        fs::write(bench.input.path().join("seen"), "").unwrap();
        assert_eq!(job.join().unwrap().is_ok(), succeeds);
    });
    assert_eq!(bench.strays(), [""; 0]);
    bench.check_next();
    bench.end();
}

/// Without the look after each job, they live until the worker ends.
#[test]
fn children_of_a_command_that_is_not_swept_end_with_the_worker() {
    let script = format!("{PROLOGUE}{CHILDREN}answer{EPILOGUE}");
    let bench = Bench::of_script(&script, limits(), false);
    bench.compile().unwrap();
    until("the children of the worker", || bench.strays().len() == CHILDREN_COUNT);
    bench.end();
}

#[rstest]
#[case::truncated_pdi(
    "answer >/dev/null; head -c 100 \"$input/good.pdi\" > \"$work/good.pdi\"; done_with good.pdi good_insts.bin",
    "PDI cannot be used"
)]
#[case::empty_files(": > \"$work/a\"; done_with a a", "PDI cannot be used")]
#[case::swapped("answer >/dev/null; done_with good_insts.bin good.pdi", "PDI cannot be used")]
#[case::another_generation(
    "cp \"$input\"/* \"$work\" 2>/dev/null; done_with good.pdi other_insts.bin",
    "expected instructions for aie2p (device generation 4), found device generation 3"
)]
#[case::link("ln -s /etc/passwd \"$work/a\"; done_with a a", "\"a\" is a symbolic link")]
#[case::pipe("mkfifo \"$work/a\"; done_with a a", "\"a\" is not a regular file")]
#[case::folder("mkdir \"$work/a\"; done_with a a", "\"a\" is not a regular file")]
#[case::missing("done_with a a", "cannot read \"a\": No such file")]
#[case::unreadable_names("done_with '' a", "\"\" is not the name of a file in the job's folder")]
#[case::another_folder(
    "cp \"$input/good.pdi\" \"$work/../a\"; done_with ../a ../a",
    "\"../a\" is not the name of a file"
)]
#[case::absolute("done_with /etc/passwd a", "\"/etc/passwd\" is not the name of a file")]
#[case::above("done_with .. a", "\"..\" is not the name of a file")]
#[case::a_nul("done_with 'a\\u0000b' a", "\"a\\0b\" is not the name of a file")]
#[case::the_folder_itself("done_with . a", "\".\" is not the name of a file")]
#[case::more_arguments(
    "cp \"$input\"/* \"$work\" 2>/dev/null; done_with good.pdi four_insts.bin",
    "it uses 4 arguments, the operation has 3"
)]
#[case::other_shapes(
    "cp \"$input\"/* \"$work\" 2>/dev/null; done_with good.pdi small_insts.bin",
    "it reads 4 bytes of argument 0 (source 0, f32 "
)]
fn writing_wrong_files(#[case] script: &str, #[case] text: &str) {
    let bench = Bench::misbehaving(script, limits());
    let (op, node) = sum(1024);
    let other = ReferenceCompiler.compile(op, &node, &ArchRegistry::builtin().get("aie2").unwrap()).unwrap();
    fs::write(bench.input.path().join("other_insts.bin"), other.instructions()).unwrap();
    fs::write(bench.input.path().join("four_insts.bin"), attention().instructions()).unwrap();
    let small = ReferenceCompiler.compile(op, &sum(1).1, &arch()).unwrap();
    fs::write(bench.input.path().join("small_insts.bin"), small.instructions()).unwrap();
    let failure = bench.failure();
    assert!(failure.cause.starts_with("the double compiler wrote invalid files: "), "{}", failure.cause);
    assert!(failure.cause.contains(text), "{} does not have {text}", failure.cause);
    bench.end();
}

/// A kernel with four arguments.
fn attention() -> KernelArtifact {
    let tensor = |ne| Some(Tensor::contiguous(DataType::F32, ne));
    let sources = vec![tensor([64, 8, 1, 1]); 3];
    let output = Tensor::contiguous(DataType::F32, [64, 1, 8, 1]);
    let scale = OpParams(std::array::from_fn(|word| if word == 0 { 1.0f32.to_bits().cast_signed() } else { 0 }));
    let node = Node::new("FLASH_ATTN_EXT", scale, output, sources);
    ReferenceCompiler.compile(table::lookup("FLASH_ATTN_EXT").unwrap(), &node, &arch()).unwrap()
}

#[test]
fn a_file_larger_than_the_device_heap() {
    let bench = Bench::misbehaving(
        "head -c 70000000 /dev/zero > \"$work/a\"; done_with a a",
        WorkerLimits { file_bytes: 128 << 20, folder_bytes: 128 << 20, ..limits() },
    );
    assert!(bench.failure().cause.ends_with("\"a\" is larger than the device heap of 67108864 bytes"));
    bench.end();
}

/// dd keeps a block in memory; the shell that waits for it says so and aborts.
#[test]
fn taking_all_memory() {
    let script = "dd if=/dev/zero of=/dev/null bs=2G count=1 || kill -ABRT $$; answer";
    let bench = Bench::misbehaving(script, WorkerLimits { memory_bytes: 1 << 30, ..limits() });
    let failure = bench.failure();
    let text = "the double compiler was killed by SIGABRT; if it ran out of memory, set GGML_HSA_JIT_MEMORY_MAX to allow each of its \
                processes more than 1 GiB";
    assert!(failure.cause.starts_with(text), "{}", failure.cause);
    let printed = String::from_utf8_lossy(&failure.output).into_owned();
    assert!(printed.contains("memory exhausted"), "{printed}");
    bench.end();
}

#[test]
fn never_saying_hello() {
    let script = format!("if mkdir \"$input/silent\" 2>/dev/null; then sleep 1000; fi\n{PROLOGUE}answer{EPILOGUE}");
    let bench = Bench::of_script(&script, WorkerLimits { hello: Duration::from_secs(1), ..limits() }, true);
    let start = Instant::now();
    let error = bench.compile().unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1) + MARGIN, "{:?}", start.elapsed());
    let text = "the double compiler does not start: sh printed nothing for 1 s and was stopped";
    assert_eq!(error, CompileError::Unavailable(text.into()));
    bench.check_next();
    bench.end();
}

/// Each of four jobs waits until all four have begun.
#[test]
fn four_kernels_at_a_time() {
    let script = format!(
        "{}{EPILOGUE}",
        PROLOGUE.replace(
            "answer() {",
            "answer() {
  mkdir \"$input/job-$id\"
  n=0; while [ \"$(ls -d \"$input\"/job-* | wc -l)\" -lt 4 ]; do sleep 0.02; n=$((n+1)); [ $n -lt 1000 ] || exit 9; done
"
        ) + "answer"
    );
    let limits = WorkerLimits { workers: 4, ..limits() };
    let bench = Bench::of_script(&script, limits, false);
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..8).map(|_| scope.spawn(|| bench.compile())).collect();
        for job in jobs {
            assert_eq!(job.join().unwrap().unwrap().identity(), good().identity());
        }
    });
    // Eight jobs, four workers.
    let variable = format!("input={}", bench.input.path().display());
    assert_eq!(marked(&variable).len(), 4);
    bench.end();
}

/// The mark reaches what a compiler starts, which is what it is for.
#[test]
fn the_mark_is_inherited() {
    let script = format!("sh -c 'printenv {GGML_HSA_JIT_JOB}' >&2; printenv {GGML_HSA_JIT_JOB} >&2; exit 1");
    let failure = Bench::misbehaving(&script, limits()).failure();
    let printed = String::from_utf8(failure.output.to_vec()).unwrap();
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1] && !lines[0].is_empty(), "{printed}");
}
