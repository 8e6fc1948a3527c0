//! An agent in a real helper process: what it does, and what becomes of its client when it dies or hangs.

mod cpu_agent;
mod helper;

use aie_driver_xdna::agent::{Agent, AgentCounts, AgentError};
use aie_driver_xdna::isolated::{HostOptions, IsolatedAgent, StartError, TimeLimits};
use aie_hal::MemoryPool;
use cpu_agent::{bytes, copy_chain, every_call, pdi_ref};
use helper::{options, script, start};
use rstest::rstest;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgid, kill_process, test_kill_process, test_kill_process_group};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for a slow machine, and still an end.
const PATIENT: Duration = Duration::from_secs(20);
/// So short that a hang is met soon, and long enough to start a helper.
const SHORT: Duration = Duration::from_millis(1500);
/// What may come on top of a limit: the helper is killed and reaped.
const MARGIN: Duration = Duration::from_millis(2500);

fn pid_of(agent: &IsolatedAgent) -> Pid {
    Pid::from_raw(agent.host_process_id().unwrap().cast_signed()).unwrap()
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err()
}

/// Causes the call `name`, after all calls that must come before.
fn reach(agent: &IsolatedAgent, name: &str) -> Result<(), AgentError> {
    let pdi = agent.allocate(MemoryPool::DeviceHeap, 4096)?;
    if name == "free" {
        agent.free(pdi);
        // Free has no result: the next call tells.
        return agent.allocate(MemoryPool::Data, 1).map(drop);
    }
    let context = agent.create_context(&[pdi_ref(&pdi)])?;
    if name == "destroy_context" {
        agent.destroy_context(context);
        return agent.allocate(MemoryPool::Data, 1).map(drop);
    }
    agent.submit(context, &copy_chain(&pdi, &pdi, &pdi))
}

fn lost(result: Result<(), AgentError>) -> String {
    match result {
        Err(AgentError::Lost(cause)) => cause,
        other => panic!("expected a lost agent, got {other:?}"),
    }
}

#[test]
fn the_helper() {
    helper::serve_if_helper();
    let agent = start("none", PATIENT);
    assert_eq!(agent.info().name, "aie2p");
    assert_eq!(agent.info().data_granule, 4096);
    every_call(&*agent).unwrap();
    assert_eq!(agent.counts(), AgentCounts { doorbells: 1, contexts_created: 1, allocations: 3 });
    let pid = pid_of(&agent);
    assert_eq!(getpgid(Some(pid)), Ok(pid));
    drop(agent);
    assert!(is_gone(pid));
}

#[test]
fn errors_of_the_runtime_arrive_and_change_nothing() {
    let agent = start("none", PATIENT);
    let error = agent.allocate(MemoryPool::Data, 1 << 40).unwrap_err();
    assert_eq!(error, AgentError::OutOfMemory(format!("{} bytes are too many", 1_u64 << 40)));
    assert!(matches!(agent.allocate(MemoryPool::Data, 0), Err(AgentError::OutOfMemory(_))));
    let pdi = agent.allocate(MemoryPool::DeviceHeap, 64).unwrap();
    let error = agent.create_context(&[pdi_ref(&pdi); 33]).unwrap_err();
    assert_eq!(error, AgentError::ContextsExhausted("33 PDIs are too many".to_owned()));
    let context = agent.create_context(&[pdi_ref(&pdi)]).unwrap();
    let mut chain = copy_chain(&pdi, &pdi, &pdi);
    chain.arguments[0].address = 0xdead;
    let error = agent.submit(context, &chain).unwrap_err();
    assert_eq!(error, AgentError::Failed { command: Some(0), reason: "no memory 0xdead".to_owned() });
    every_call(&*agent).unwrap();
}

#[rstest]
fn a_death_in_any_call_is_an_error_that_stays(
    #[values("allocate", "free", "create_context", "destroy_context", "submit")] call: &str,
    #[values(
        ("abort", "signal 6 (SIGABRT)", "assertion `"),
        ("exit", "exit status 3", "assertion `"),
        ("panic", "exit status 1", "an agent panicked: planned in")
    )]
    fault: (&str, &str, &str),
) {
    let agent = start(&format!("{}@{call}", fault.0), PATIENT);
    let pid = pid_of(&agent);
    let cause = lost(reach(&agent, call));
    for part in [&format!("ended with {}", fault.1), &format!("during {call}"), fault.2, &pid.to_string()] {
        assert!(cause.contains(part), "{part} is not in: {cause}");
    }
    assert_eq!(cause.contains("asserts"), fault.0 == "abort", "{cause}");
    for later in ["allocate", "free", "create_context", "destroy_context", "submit"] {
        assert_eq!(lost(reach(&agent, later)), cause);
    }
    assert!(is_gone(pid));
}

#[rstest]
fn a_hang_in_any_call_ends_at_the_limit(
    #[values("allocate", "free", "create_context", "destroy_context", "submit")] call: &str,
) {
    let agent = start(&format!("hang@{call}"), SHORT);
    let pid = pid_of(&agent);
    let began = Instant::now();
    let cause = lost(reach(&agent, call));
    let took = began.elapsed();
    assert!(took >= SHORT && took < SHORT + MARGIN, "{took:?}");
    assert!(cause.contains(&format!("did not answer {call} within 1.5s and was killed")), "{cause}");
    assert!(cause.contains("AIE_HAL_TIME_LIMIT_MS"), "{cause}");
    assert!(is_gone(pid));
    assert_eq!(lost(reach(&agent, "submit")), cause);
    assert!(began.elapsed() < SHORT + MARGIN, "a lost agent answers at once");
}

#[rstest]
#[case::abort("abort@open", "during opening the runtime")]
#[case::hang("hang@open", "did not answer opening the runtime within 1.5s")]
#[case::refuse("refuse@no libhsa-runtime64.so.1", "no libhsa-runtime64.so.1")]
fn a_runtime_that_does_not_open_is_an_error(#[case] fault: &str, #[case] reason: &str) {
    let error = IsolatedAgent::start(&options(fault, SHORT)).unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
    assert_eq!(matches!(error, StartError::Refused(_)), fault.starts_with("refuse"), "{error:?}");
}

/// As a script does that sets up an environment and does not think of `exec`.
#[rstest]
#[case::abort("abort@submit", PATIENT, "exit status 134: a shell says so of signal 6 (SIGABRT) during submit")]
#[case::hang("hang@submit", SHORT, "did not answer submit within 1.5s and was killed")]
fn a_helper_behind_a_script_ends_with_it(#[case] fault: &str, #[case] limit: Duration, #[case] reason: &str) {
    let options = HostOptions { program: Some(script("cpu_host_behind_shell.sh")), ..options(fault, limit) };
    let agents = IsolatedAgent::start(&options).unwrap();
    let group = pid_of(&agents[0]);
    let cause = lost(reach(&agents[0], "submit"));
    assert!(cause.contains(reason), "{cause}");
    // The helper is no child of this process: whoever adopts it reaps it, soon.
    let end = Instant::now() + MARGIN;
    while test_kill_process_group(group) != Err(Errno::SRCH) {
        assert!(Instant::now() < end, "the helper outlives its script");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn memory_outlives_the_helper() {
    let agent = start("abort@submit", PATIENT);
    let pid = pid_of(&agent);
    let mut memory = agent.allocate(MemoryPool::Data, 1 << 20).unwrap();
    bytes(&mut memory).fill(7);
    lost(reach(&agent, "submit"));
    assert!(is_gone(pid));
    assert!(bytes(&mut memory).iter().all(|&byte| byte == 7));
    bytes(&mut memory)[0] = 8;
    agent.free(memory);
}

#[test]
fn everything_in_flight_ends_with_the_helper() {
    let agent = start("hang@submit", PATIENT);
    let pid = pid_of(&agent);
    std::thread::scope(|threads| {
        let submit = threads.spawn(|| lost(reach(&agent, "submit")));
        let allocating: Vec<_> = (0..8)
            .map(|_| {
                threads.spawn(|| {
                    loop {
                        match agent.allocate(MemoryPool::Data, 4096) {
                            Ok(memory) => agent.free(memory),
                            Err(error) => break lost(Err(error)),
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        let killed = Instant::now();
        kill_process(pid, Signal::KILL).unwrap();
        let cause = submit.join().unwrap();
        assert!(cause.contains("ended with signal 9 (SIGKILL) during") && cause.contains("submit"), "{cause}");
        for thread in allocating {
            assert_eq!(thread.join().unwrap(), cause);
        }
        assert!(killed.elapsed() < MARGIN, "{:?}", killed.elapsed());
    });
}

#[test]
fn a_closed_agent_has_no_helper_and_keeps_its_memory() {
    let agent = start("none", PATIENT);
    let pid = pid_of(&agent);
    let mut memory = agent.allocate(MemoryPool::Data, 4096).unwrap();
    bytes(&mut memory).fill(7);
    for _ in 0..2 {
        agent.close();
        assert!(is_gone(pid));
        assert!(lost(reach(&agent, "submit")).contains("was told to end"));
    }
    assert!(bytes(&mut memory).iter().all(|&byte| byte == 7));
    agent.free(memory);
}

#[test]
fn a_helper_that_dies_idle_is_noticed_without_a_call() {
    let agent = start("none", PATIENT);
    let pid = pid_of(&agent);
    kill_process(pid, Signal::TERM).unwrap();
    let end = Instant::now() + PATIENT;
    while !is_gone(pid) {
        assert!(Instant::now() < end, "it was not reaped");
        std::thread::sleep(Duration::from_millis(5));
    }
    let cause = lost(reach(&agent, "submit"));
    assert!(cause.contains("signal 15 (SIGTERM) while no call was in flight"), "{cause}");
}

#[test]
fn a_program_that_speaks_otherwise_is_killed_and_named() {
    let options = HostOptions {
        program: Some(script("garbage_host.sh")),
        environment: Vec::new(),
        limits: TimeLimits::all(PATIENT),
    };
    let began = Instant::now();
    let error = IsolatedAgent::start(&options).unwrap_err().to_string();
    for part in ["garbage_host.sh", "broke the protocol during opening the runtime", "what is a frame?"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert!(began.elapsed() < MARGIN, "{:?}", began.elapsed());
}

#[test]
fn programs_that_do_not_start_are_errors() {
    let absent = HostOptions { program: Some(PathBuf::from("/nonexistent/host")), ..options("none", PATIENT) };
    assert!(matches!(IsolatedAgent::start(&absent), Err(StartError::NotFound { .. })));
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("host");
    std::fs::write(&text, "#!/nonexistent/interpreter\n").unwrap();
    std::fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let broken = HostOptions { program: Some(text.clone()), ..options("none", PATIENT) };
    let error = IsolatedAgent::start(&broken).unwrap_err();
    assert!(matches!(error, StartError::Spawn { .. }) && error.to_string().contains(text.to_str().unwrap()), "{error}");
}

#[test]
fn the_helper_has_no_file_of_its_client() {
    // Without O_CLOEXEC, as C and C++ programs open theirs.
    let flags = rustix::fs::OFlags::RDONLY;
    let file = rustix::fs::open(script("cpu_host.sh"), flags, rustix::fs::Mode::empty()).unwrap();
    let agent = start("none", PATIENT);
    let opened: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{}/fd", pid_of(&agent)))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .collect();
    assert!(!opened.is_empty());
    assert!(!opened.contains(&script("cpu_host.sh")), "descriptor {} is in: {opened:?}", file.as_raw_fd());
}

/// Not a test of its own: `the_helper_ends_with_its_client` starts it as a client that never ends by itself.
#[test]
fn a_client_that_is_killed() {
    if std::env::var_os("AIE_TEST_CLIENT").is_none() {
        return;
    }
    let agent = start(&std::env::var("AIE_TEST_CLIENT").unwrap(), Duration::from_secs(600));
    println!("\nhelper {}", pid_of(&agent));
    reach(&agent, "submit").unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// Not a test of its own: `a_helper_that_dies_in_its_tear_down_is_told` starts it.
#[test]
fn a_client_that_closes() {
    if let Ok(fault) = std::env::var("AIE_TEST_CLOSING_CLIENT") {
        let agent = start(&fault, PATIENT);
        let _left_to_the_helper = agent.allocate(MemoryPool::Data, 4096).unwrap();
        agent.close();
    }
}

#[rstest]
#[case::clean("none", None)]
#[case::abort("abort@free", Some("ended with signal 6 (SIGABRT) while no call was in flight"))]
#[case::hang("hang@free", Some("ended with signal 9 (SIGKILL) while no call was in flight"))]
fn a_helper_that_dies_in_its_tear_down_is_told(#[case] fault: &str, #[case] told: Option<&str>) {
    let client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_client_that_closes", "--nocapture"])
        .env("AIE_TEST_CLOSING_CLIENT", fault)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success(), "it is no error of the client: {text}");
    assert_eq!(text.contains(", after it was told to end"), told.is_some(), "{text}");
    assert!(told.is_none_or(|told| text.contains(told)), "{text}");
}

#[rstest]
fn the_helper_ends_with_its_client(#[values("none", "hang@submit")] fault: &str) {
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_client_that_is_killed", "--nocapture"])
        .env("AIE_TEST_CLIENT", fault)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let helper: i32 = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("helper ")?.parse().ok()).unwrap();
    let helper = Pid::from_raw(helper).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    client.kill().unwrap();
    client.wait().unwrap();
    let began = Instant::now();
    while !is_gone(helper) {
        assert!(began.elapsed() < Duration::from_secs(8), "the helper has no client and lives");
        std::thread::sleep(Duration::from_millis(10));
    }
    if fault == "none" {
        assert!(began.elapsed() < MARGIN, "{:?}", began.elapsed());
    }
}
