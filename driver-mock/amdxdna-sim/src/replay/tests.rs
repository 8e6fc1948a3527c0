use super::*;
use aie_hal::{HostFunction, HostFunctionError, KernelArtifact};
use rstest::rstest;

#[derive(Debug)]
struct NoKernels;

impl KernelExecutor for NoKernels {
    fn prepare(&self, _: &KernelArtifact) -> Result<Arc<dyn HostFunction>, HostFunctionError> {
        Err(HostFunctionError::NotExecutable("none is known".into()))
    }
}

fn replay(lines: &[&str]) -> Result<Vec<Difference>, ReplayError> {
    let machine = Recorded { arch: "aie2p".into(), pci: (0x17f0, 0x10), firmware: Some("1.5.5.391".into()) };
    let calls: Vec<RecordedCall> = lines.iter().map(|line| line.parse().unwrap()).collect();
    machine.replay(&calls, Arc::new(NoKernels))
}

const VERSION_6_18: &str = "VERSION name_len=64 = ok version_minor=1 name_len=20 date_len=1 desc_len=27";

#[test]
fn answers_that_are_the_same_are_no_difference() {
    let found = replay(&[
        "OPEN = ok",
        VERSION_6_18,
        "GET_INFO param=8 buffer_size=16 = ok major=1 minor=5 patch=5 build=391",
        "CREATE_BO size=67108864 type=2 = ok handle=1",
        "GET_BO_INFO handle=1 = ok device_address=0x4000000",
        "MMAP handle=1 length=67108864 = ok",
        "GET_BO_INFO handle=1 = ok device_address=0x4000000",
        "CREATE_BO size=4096 type=3 = ok handle=2",
        "WRITE handle=2 data=0102 = ok",
        "READ handle=2 length=2 = ok data=0102",
        "CREATE_BO size=4096 type=1 user_memory=1 = ENOMEM",
        "GEM_CLOSE handle=2 = ok",
    ]);
    assert_eq!(found.unwrap(), []);
}

#[test]
fn answers_that_differ_are_listed_with_their_place() {
    let found = replay(&["OPEN = ok", VERSION_6_18, "CREATE_BO size=4096 type=1 = ENOMEM"]).unwrap();
    let expected = Difference {
        call: 3,
        recorded: "CREATE_BO size=4096 type=1 = ENOMEM".into(),
        simulated: "CREATE_BO size=4096 type=1 = ok handle=1".into(),
    };
    assert_eq!(found, [expected]);
    let found = replay(&["OPEN = EOPNOTSUPP", "VERSION = ok"]).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
}

#[rstest]
#[case("VERSION = ok", "the node is not open")]
#[case("WRITE handle=9 data=01 = ok", "there is no such BO")]
#[case("SET_STATE param=0 = ok", "only requests that opening an NPU makes")]
#[case("WHAT = ok", "no request has this name")]
#[case("CONFIG_HWCTX handle=1 param_val_size=16 = ok", "the record does not have what it points to")]
#[case("EXEC_CMD type=1 cmd_handles=4096 arg_count=0 = ok", "only submissions of commands")]
#[case("GET_INFO param=4 buffer_size=1000000 = ok", "longer than a page")]
fn what_cannot_be_repeated_says_why(#[case] line: &str, #[case] expected: &str) {
    let lines = if line.starts_with("VERSION") { vec![line] } else { vec!["OPEN = ok", line] };
    let error = replay(&lines).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn addresses_in_a_record_are_not_used() {
    // Were they, the name of the driver would be written there.
    let found = replay(&["OPEN = ok", &VERSION_6_18.replace(" = ok", " name=4096 = ok")]).unwrap();
    assert_eq!(found.iter().map(|found| found.simulated.as_str()).collect::<Vec<_>>(), [VERSION_6_18]);
}

#[rstest]
#[case("VERSION = ok version_major=1", "legacy")]
#[case("VERSION name_len=64 = ok name_len=20", "6.14")]
#[case(VERSION_6_18, "6.18")]
#[case("VERSION = ok version_minor=9", "6.18")]
#[case("VERSION = ok version_minor=12", "7.2")]
fn the_driver_says_which_kernel_it_is_like(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(kernel_of(&[line.parse().unwrap()]).name(), expected);
}
