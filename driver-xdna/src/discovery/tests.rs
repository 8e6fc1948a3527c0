use super::fake_machine::FakeMachine;
use super::*;
use rstest::rstest;
use std::fs;

const ADDRESS: &str = "0000:c6:00.1";
const FOLDER: &str = "devices/pci0000:00/0000:c6:00.1";

fn strix() -> FakeMachine {
    let tree = FakeMachine::new();
    tree.add_npu(0, ADDRESS, "0x17f0", "0x10");
    tree
}

fn look(tree: &FakeMachine) -> Survey {
    survey(&tree.machine(), &ArchRegistry::builtin(), Route::Rocr)
}

/// Why the only NPU of this machine is disabled.
fn reason(tree: &FakeMachine) -> String {
    let survey = look(tree);
    assert_eq!(survey.npus.len(), 1, "{survey:?}");
    assert_eq!(survey.npus[0].obstacles.len(), 1, "{:?}", survey.npus[0].obstacles);
    survey.npus[0].disabled().unwrap()
}

#[test]
fn a_machine_in_order_has_a_usable_npu() {
    let tree = strix();
    tree.write("module/amdxdna/version", "2.23.0\n");
    let survey = look(&tree);
    let npu = &survey.npus[0];
    assert!(npu.usable(), "{:?}", npu.disabled());
    assert_eq!((npu.ordinal, npu.id.as_str(), npu.name.as_str()), (0, "pci-0000:c6:00.1", "XDNA 2 NPU (NPU Strix)"));
    assert_eq!(npu.node.as_deref(), Some(tree.dev().join("accel/accel0").as_path()));
    assert_eq!(npu.firmware.as_deref(), Some("1.1.2.64"));
    let listing = npu.listing().unwrap();
    assert_eq!(listing.uri.to_string(), "xdna://pci-0000:c6:00.1");
    assert_eq!((listing.arch.as_deref(), listing.disabled), (Some("aie2p"), None));
    assert_eq!((survey.machine, survey.warnings), (vec![], vec![]));
    assert_eq!(survey.module_version.as_deref(), Some("2.23.0"));
}

#[test]
fn a_machine_without_an_npu_has_an_empty_list() {
    let tree = FakeMachine::new();
    // AMD's sensor hub: of the same PCI class as an NPU.
    tree.add_pci("0000:c5:00.7", "0x15e4", "0x00");
    assert_eq!(look(&tree).npus, []);
    let nothing = Machine { sysfs: "/nonexistent/sys".into(), dev: "/nonexistent/dev".into(), ..tree.machine() };
    let survey = survey(&nothing, &ArchRegistry::builtin(), Route::Rocr);
    assert_eq!((survey.npus, survey.module_version), (vec![], None));
    assert!(matches!(survey.machine.as_slice(), [Obstacle::KfdAbsent(_)]));
}

/// A machine whose only NPU has one obstacle. The first part of each reason is its start, unless that is a path.
#[rstest]
#[case::module_missing(
    |tree: &mut FakeMachine| { tree.add_pci(ADDRESS, "0x17f0", "0x10"); tree.remove("module/amdxdna") },
    &["^the kernel module amdxdna is not loaded, so PCI device 0000:c6:00.1", "sudo modprobe amdxdna"]
)]
#[case::not_probed(
    |tree: &mut FakeMachine| { tree.add_pci(ADDRESS, "0x17f0", "0x10"); tree.write("module/amdxdna/version", "0.6\n") },
    &["^the kernel module amdxdna is loaded (version 0.6), but did not bind to PCI", "update linux-firmware and the kernel together"]
)]
#[case::another_driver(|tree: &mut FakeMachine| { tree.add_pci(ADDRESS, "0x1502", "0x00"); tree.bind(ADDRESS, "vfio-pci") }, VFIO)]
#[case::another_driver_with_a_node(|tree: &mut FakeMachine| { add_strix(tree); tree.bind(ADDRESS, "vfio-pci") }, VFIO)]
#[case::no_node(
    |tree: &mut FakeMachine| { tree.add_pci(ADDRESS, "0x17f0", "0x10"); tree.bind(ADDRESS, "amdxdna") },
    &["^amdxdna serves PCI device 0000:c6:00.1, but shows no accel node"]
)]
#[case::unknown_device(
    |tree: &mut FakeMachine| { tree.add_npu(0, ADDRESS, "0x17f1", "0x10"); },
    &["^unknown generation: no arch file names PCI device 0x17f1 revision 0x10; known generations: aie2, aie2p", "AIE_HAL_ARCH_PATH"]
)]
#[case::unknown_revision(
    |tree: &mut FakeMachine| { tree.add_npu(0, ADDRESS, "0x17f0", "0x30"); },
    &["^unknown generation: no arch file names PCI device 0x17f0 revision 0x30; known generations: aie2, aie2p"]
)]
#[case::device_of_no_table(
    |tree: &mut FakeMachine| { tree.add_npu(0, ADDRESS, "0x9999", "0x01"); },
    &["^unknown generation: no arch file names PCI device 0x9999 revision 0x01; known generations: aie2, aie2p"]
)]
#[case::without_vbnv(|tree: &mut FakeMachine| without(tree, "vbnv"), &["^cannot read ", "/vbnv: No such file", UPDATE])]
#[case::without_device(|tree: &mut FakeMachine| without(tree, "device"), &["^cannot read ", "/device: No such file", UPDATE])]
#[case::without_revision(|tree: &mut FakeMachine| without(tree, "revision"), &["^cannot read ", "/revision: No such file", UPDATE])]
#[case::node_missing(
    |tree: &mut FakeMachine| fs::remove_file(add_strix(tree)).unwrap(),
    &["accel0 does not exist although the kernel has such a device", "--device="]
)]
#[case::another_error(
    |tree: &mut FakeMachine| reject(tree, io::ErrorKind::ReadOnlyFilesystem),
    &["accel0 cannot be used: read-only filesystem"]
)]
#[case::folder_forbidden(
    |tree: &mut FakeMachine| reject(tree, io::ErrorKind::PermissionDenied),
    &["accel0 cannot be used: permission denied"]
)]
#[case::kernel_without_kfd(
    |tree: &mut FakeMachine| { without_kfd(tree); tree.remove("devices/virtual/kfd") },
    &["kfd does not exist, so the kernel offers no KFD", "sudo modprobe amdgpu"]
)]
#[case::kfd_not_passed_in(without_kfd, &["kfd does not exist although the kernel has a KFD", "--device="])]
#[case::kfd_without_cpu(
    |tree: &mut FakeMachine| { add_strix(tree); tree.write(KFD, "cpu_cores_count 0\nsimd_count 16\n") },
    &["names no node with CPU cores; ROCR ends the process"]
)]
#[case::kfd_without_topology(
    |tree: &mut FakeMachine| { add_strix(tree); tree.remove("devices/virtual/kfd") },
    &["names no node with CPU cores; ROCR ends the process"]
)]
fn an_obstacle_is_reported_with_its_fix(#[case] set_up: fn(&mut FakeMachine), #[case] parts: &[&str]) {
    let mut tree = FakeMachine::new();
    set_up(&mut tree);
    let reason = reason(&tree);
    for part in parts {
        let found = part.strip_prefix('^').map_or(reason.contains(part), |start| reason.starts_with(start));
        assert!(found, "{part}: {reason}");
    }
    assert_eq!(
        look(&tree).npus[0].arch.is_none(),
        reason.contains("unknown generation") || reason.contains("/revision:") || reason.contains("/device:")
    );
}

const KFD: &str = "devices/virtual/kfd/kfd/topology/nodes/0/properties";
const UPDATE: &str = "update the kernel driver amdxdna";
const VFIO: &[&str] = &[
    "^PCI device 0000:c6:00.1 is bound to the kernel driver `vfio-pci`",
    "echo 0000:c6:00.1 | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind",
];

fn add_strix(tree: &FakeMachine) -> PathBuf {
    tree.add_npu(0, ADDRESS, "0x17f0", "0x10")
}

fn without(tree: &FakeMachine, attribute: &str) {
    add_strix(tree);
    tree.remove(&format!("{FOLDER}/{attribute}"));
}

fn without_kfd(tree: &mut FakeMachine) {
    add_strix(tree);
    fs::remove_file(tree.dev().join("kfd")).unwrap();
}

fn reject(tree: &mut FakeMachine, error: io::ErrorKind) {
    let node = add_strix(tree);
    tree.process.rejected.insert(node, (error, None));
}

#[test]
fn an_unknown_generation_is_found_without_its_module_too() {
    let tree = FakeMachine::new();
    tree.remove("module/amdxdna");
    tree.add_pci(ADDRESS, "0x1b0a", "0x00");
    tree.add_pci("0000:c7:00.1", "0x17f0", "0x77");
    let survey = look(&tree);
    let kinds = |npu: &FoundNpu| {
        matches!(npu.obstacles.as_slice(), [Obstacle::UnknownGeneration { .. }, Obstacle::ModuleNotLoaded(_)])
    };
    assert_eq!(survey.npus.iter().map(kinds).collect::<Vec<_>>(), [true, true], "{survey:?}");
    let text = survey.npus[0].disabled().unwrap();
    assert!(text.starts_with("(1) unknown generation") && text.contains("; (2) the kernel module"), "{text}");
}

#[rstest]
#[case(
    "0x17f0",
    "0x10",
    "1.0.0.62",
    Some("firmware 1.0.0.62 is older than 1.0.0.63, the oldest for generation `aie2p`")
)]
#[case("0x17f0", "0x10", "1.0.0.63", None)]
#[case("0x17f0", "0x11", "255.0.8.54", None)]
#[case(
    "0x1502",
    "0x00",
    "1.5.2.323",
    Some("firmware 1.5.2.323 is older than 1.5.2.380, the oldest for generation `aie2`")
)]
#[case("0x1502", "0x00", "1.5.5.391", None)]
fn firmware_is_compared_with_the_arch_file(
    #[case] device: &str,
    #[case] revision: &str,
    #[case] version: &str,
    #[case] expected: Option<&str>,
) {
    let tree = FakeMachine::new();
    tree.add_npu(0, ADDRESS, device, revision);
    tree.write(&format!("{FOLDER}/fw_version"), &format!("{version}\n"));
    let disabled = look(&tree).npus[0].disabled();
    match expected {
        None => assert_eq!(disabled, None),
        Some(expected) => {
            let reason = disabled.unwrap();
            assert!(reason.starts_with(expected) && reason.contains("update linux-firmware"), "{reason}");
        }
    }
}

#[test]
fn firmware_that_cannot_be_compared_is_a_warning() {
    let tree = strix();
    tree.write(&format!("{FOLDER}/fw_version"), "devel\n");
    let survey = look(&tree);
    assert!(survey.npus[0].usable());
    let text = survey.warnings[0].to_string();
    assert!(text.starts_with("PCI device 0000:c6:00.1: the firmware's version was not checked: \"devel\""), "{text}");
    // An older kernel driver does not show it at all.
    tree.remove(&format!("{FOLDER}/fw_version"));
    assert_eq!(look(&tree).warnings, []);
    assert!(look(&tree).npus[0].usable());
}

#[rstest]
#[case::not_in_the_group("render", 0o660, false, "`sudo usermod -aG render ada`, then log out and in again")]
#[case::since_this_login("render", 0o660, true, "the account is in group `render` since this login: log out and in")]
#[case::something_else("video", 0o666, false, "the process is in that group, so something else denies access")]
#[case::only_root("root", 0o600, false, "put the line `SUBSYSTEM==\"accel\", KERNEL==\"accel*\", GROUP=\"render\"")]
#[case::group_root("root", 0o660, false, "put the line `SUBSYSTEM==\"accel\"")]
#[case::group_without_rights("render", 0o640, false, "put the line `SUBSYSTEM==\"accel\"")]
fn a_forbidden_accel_node_says_who_may_and_how_to_join(
    #[case] group: &str,
    #[case] mode: u32,
    #[case] member: bool,
    #[case] fix: &str,
) {
    let mut tree = strix();
    let node = tree.dev().join("accel/accel0");
    tree.forbid(&node, group, mode, member);
    let reason = reason(&tree);
    assert!(reason.starts_with(&format!("no permission to read and write {}", node.display())), "{reason}");
    let situation =
        format!("user `root` and group `{group}` with mode {mode:04o}, and user `ada` is in groups ada, video");
    assert!(reason.contains(&situation), "{reason}");
    assert!(reason.contains(fix), "{reason}");
}

#[test]
fn a_forbidden_kfd_stands_in_the_way_of_every_npu() {
    let mut tree = strix();
    tree.add_pci("0000:c7:00.1", "0x17f0", "0x10");
    let node = tree.dev().join("kfd");
    tree.forbid(&node, "root", 0o600, false);
    let survey = look(&tree);
    assert_eq!((survey.npus[1].name.as_str(), &survey.npus[1].node), ("XDNA 2 NPU", &None));
    assert_eq!(survey.machine.len(), 1);
    let text = survey.machine[0].to_string();
    assert!(text.starts_with(&format!("no permission to read and write {}", node.display())), "{text}");
    assert!(text.contains("`KERNEL==\"kfd\", GROUP=\"render\", MODE=\"0660\"`"), "{text}");
    assert!(survey.npus.iter().all(|npu| npu.obstacles.contains(&survey.machine[0])), "{survey:?}");
}

#[test]
fn only_the_first_node_that_opens_is_in_reach() {
    let mut tree = FakeMachine::new();
    let nodes = [
        tree.add_npu(0, ADDRESS, "0x1502", "0x00"),
        tree.add_npu(1, "0000:c7:00.1", "0x17f0", "0x10"),
        tree.add_npu(2, "0000:c8:00.1", "0x17f0", "0x11"),
    ];
    tree.write(&format!("{FOLDER}/fw_version"), "1.5.5.391\n");
    let usable = |tree: &FakeMachine| look(tree).npus.iter().map(FoundNpu::usable).collect::<Vec<_>>();
    assert_eq!(usable(&tree), [true, false, false]);
    let reason = look(&tree).npus[1].disabled().unwrap();
    let expected =
        format!("accel node that answers, which is {}, so it does not see {}", nodes[0].display(), nodes[1].display());
    assert!(reason.contains(&expected), "{reason}");
    // One that cannot be opened is skipped, as ROCR does.
    tree.forbid(&nodes[0], "render", 0o660, false);
    assert_eq!(usable(&tree), [false, true, false]);
    // One that opens takes the place, whether or not this driver could use it.
    tree.process.rejected.clear();
    tree.write(&format!("{FOLDER}/fw_version"), "0.0.0.1\n");
    assert_eq!(usable(&tree), [false, false, false]);
}

#[test]
fn little_lockable_memory_is_a_warning() {
    let mut tree = strix();
    tree.process.lockable_bytes = Some(8 << 20);
    let survey = look(&tree);
    assert!(survey.npus[0].usable());
    let text = survey.warnings[0].to_string();
    assert!(
        text.starts_with("this process may lock 8388608 bytes of memory (`ulimit -l`), less than 67108864"),
        "{text}"
    );
    assert_eq!(survey.warnings[0].cause_and_fix().1.as_deref(), Some(LOCK_MORE));
    tree.process.lockable_bytes = Some(64 << 20);
    assert_eq!(look(&tree).warnings, []);
}

#[test]
fn ids_stay_when_numbers_change() {
    let ids = |numbers: [usize; 2]| {
        let tree = FakeMachine::new();
        tree.add_npu(numbers[0], ADDRESS, "0x17f0", "0x10");
        tree.add_npu(numbers[1], "0000:c7:00.1", "0x17f0", "0x10");
        let mut ids: Vec<String> = look(&tree).npus.into_iter().map(|npu| npu.id).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids([0, 1]), ids([1, 0]));
}
