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
    assert!(matches!(survey.machine.as_slice(), [Obstacle::KfdAbsent { .. }]));
}

#[test]
fn a_missing_module_is_named() {
    let tree = FakeMachine::new();
    tree.add_pci(ADDRESS, "0x17f0", "0x10");
    tree.remove("module/amdxdna");
    let reason = reason(&tree);
    assert!(reason.starts_with("the kernel module amdxdna is not loaded, so PCI device 0000:c6:00.1"), "{reason}");
    assert!(reason.contains("sudo modprobe amdxdna"), "{reason}");
    let npu = look(&tree).npus.remove(0);
    assert_eq!((npu.name.as_str(), npu.node), ("XDNA 2 NPU", None));
}

#[test]
fn a_module_that_refused_the_device_points_to_the_firmware() {
    let tree = FakeMachine::new();
    tree.add_pci(ADDRESS, "0x17f0", "0x10");
    tree.write("module/amdxdna/version", "0.6\n");
    let reason = reason(&tree);
    assert!(reason.starts_with("the kernel module amdxdna is loaded (version 0.6), but did not take PCI"), "{reason}");
    assert!(reason.contains("update linux-firmware and the kernel together"), "{reason}");
}

#[rstest]
#[case::without_a_node(false)]
#[case::with_a_node(true)]
fn another_kernel_driver_is_named(#[case] node: bool) {
    let tree = if node { strix() } else { FakeMachine::new() };
    if !node {
        tree.add_pci(ADDRESS, "0x1502", "0x00");
    }
    tree.bind(ADDRESS, "vfio-pci");
    let reason = reason(&tree);
    assert!(reason.starts_with("PCI device 0000:c6:00.1 is bound to the kernel driver `vfio-pci`"), "{reason}");
    assert!(reason.contains("echo 0000:c6:00.1 | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind"), "{reason}");
}

#[test]
fn a_bound_device_without_a_node_is_told() {
    let tree = FakeMachine::new();
    tree.add_pci(ADDRESS, "0x17f0", "0x10");
    tree.bind(ADDRESS, "amdxdna");
    let reason = reason(&tree);
    assert!(reason.starts_with("amdxdna serves PCI device 0000:c6:00.1, but shows no accel node"), "{reason}");
}

#[rstest]
#[case("0x17f1", "0x10", "0x17f1 revision 0x10")]
#[case("0x17f0", "0x30", "0x17f0 revision 0x30")]
#[case("0x9999", "0x01", "0x9999 revision 0x01")]
fn an_unknown_generation_names_what_would_enable_it(#[case] device: &str, #[case] revision: &str, #[case] ids: &str) {
    let tree = FakeMachine::new();
    tree.add_npu(0, ADDRESS, device, revision);
    let reason = reason(&tree);
    let expected = format!("unknown generation: no arch file names PCI device {ids}; known generations: aie2, aie2p;");
    assert!(reason.starts_with(&expected), "{reason}");
    assert!(reason.contains("AIE_HAL_ARCH_PATH"), "{reason}");
    assert_eq!(look(&tree).npus[0].arch, None);
}

#[test]
fn an_unknown_generation_is_found_without_its_module_too() {
    let tree = FakeMachine::new();
    tree.remove("module/amdxdna");
    tree.add_pci(ADDRESS, "0x1b0a", "0x00");
    tree.add_pci("0000:c7:00.1", "0x17f0", "0x77");
    let survey = look(&tree);
    let kinds = |npu: &FoundNpu| {
        matches!(npu.obstacles.as_slice(), [Obstacle::UnknownGeneration { .. }, Obstacle::ModuleNotLoaded { .. }])
    };
    assert_eq!(survey.npus.iter().map(kinds).collect::<Vec<_>>(), [true, true], "{survey:?}");
    let text = survey.npus[0].disabled().unwrap();
    assert!(text.starts_with("(1) unknown generation") && text.contains("; (2) the kernel module"), "{text}");
}

#[rstest]
#[case("vbnv")]
#[case("device")]
#[case("revision")]
fn attributes_that_rocr_trusts_are_checked(#[case] attribute: &str) {
    let tree = strix();
    tree.remove(&format!("{FOLDER}/{attribute}"));
    let reason = reason(&tree);
    assert!(reason.starts_with("cannot read ") && reason.contains(&format!("/{attribute}: No such file")), "{reason}");
    assert!(reason.contains("update the kernel driver amdxdna"), "{reason}");
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

#[test]
fn a_node_that_sysfs_lists_but_is_missing_is_a_container_without_it() {
    let tree = strix();
    fs::remove_file(tree.dev().join("accel/accel0")).unwrap();
    let reason = reason(&tree);
    assert!(reason.contains("accel0 does not exist although the kernel has such a device"), "{reason}");
    assert!(reason.contains("--device="), "{reason}");
}

#[rstest]
#[case::not_in_the_group("render", 0o660, false, "`sudo usermod -aG render ada`, then log out and in again")]
#[case::since_this_login("render", 0o660, true, "the account is in group `render` since this login: log out and in")]
#[case::something_else("video", 0o666, false, "the process is in that group, so something else refuses")]
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
    assert_eq!(survey.machine.len(), 1);
    let text = survey.machine[0].to_string();
    assert!(text.starts_with(&format!("no permission to read and write {}", node.display())), "{text}");
    assert!(text.contains("`KERNEL==\"kfd\", GROUP=\"render\", MODE=\"0660\"`"), "{text}");
    assert!(survey.npus.iter().all(|npu| npu.obstacles.contains(&survey.machine[0])), "{survey:?}");
}

#[test]
fn another_error_of_a_node_is_passed_on() {
    let mut tree = strix();
    let node = tree.dev().join("accel/accel0");
    tree.process.refused.insert(node.clone(), (io::ErrorKind::ReadOnlyFilesystem, None));
    assert!(reason(&tree).contains("accel0 cannot be used: read-only filesystem"), "{}", reason(&tree));
    // Also when the folder around it refuses.
    tree.process.refused.insert(node, (io::ErrorKind::PermissionDenied, None));
    assert!(reason(&tree).contains("accel0 cannot be used: permission denied"), "{}", reason(&tree));
}

#[test]
fn a_kernel_without_kfd_is_told() {
    let tree = strix();
    fs::remove_file(tree.dev().join("kfd")).unwrap();
    tree.remove("devices/virtual/kfd");
    let reason = reason(&tree);
    assert!(reason.contains("kfd does not exist, so the kernel offers no KFD"), "{reason}");
    assert!(reason.contains("sudo modprobe amdgpu"), "{reason}");
}

#[test]
fn a_kfd_that_was_not_passed_in_is_told() {
    let tree = strix();
    fs::remove_file(tree.dev().join("kfd")).unwrap();
    let reason = reason(&tree);
    assert!(reason.contains("kfd does not exist although the kernel has a KFD"), "{reason}");
    assert!(reason.contains("--device="), "{reason}");
}

#[rstest]
#[case::no_cpu(Some("cpu_cores_count 0\nsimd_count 16\n"))]
#[case::no_topology(None)]
fn a_kfd_without_a_cpu_is_told(#[case] properties: Option<&str>) {
    let tree = strix();
    match properties {
        Some(text) => tree.write("devices/virtual/kfd/kfd/topology/nodes/0/properties", text),
        None => tree.remove("devices/virtual/kfd"),
    }
    let reason = reason(&tree);
    assert!(reason.contains("names no node with CPU cores; ROCR ends the process"), "{reason}");
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
    tree.process.refused.clear();
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
