//! A dry run of what Debian may look like in a month: package lists made here, for the code that chooses and for apt itself.
//!
//! Nothing is downloaded: apt reads the lists from a folder and says what it would install.

use super::virtual_machine::kernels;
use super::{Wanted, amd, clean_root, kernel_headers};
use crate::apt::{PrivateApt, architecture};
use anyhow::Result;
use std::fs;

/// A package with what it depends on, as a line of the tables below: `NAME VERSION [DEPENDENCY...]`.
type Line = &'static str;

/// What the testbed is made of today.
const SID: [Line; 13] = [
    "base-files 14",
    "libggml0 0.27.0-1",
    "libggml0-backend-rpc 0.27.0-1 libggml0",
    "libllama0 1:0.7.0+dfsg-2 libggml0",
    "llama.cpp-tools 1:0.7.0+dfsg-2 libllama0",
    "llama.cpp-tools-extra 1:0.7.0+dfsg-2 libllama0",
    "llama.cpp-tests 1:0.7.0+dfsg-2 libllama0",
    "libhsa-runtime64-1 6.4.3+dfsg-5",
    "libhsa-runtime-dev 6.4.3+dfsg-5",
    "linux-binary-7.2.13+deb14-amd64 7.2.13-1",
    "linux-modules-7.2.13+deb14-amd64 7.2.13-1",
    "linux-base-7.2.13+deb14-amd64 7.2.13-1",
    "python3-minimal 3.14.1-1",
];
const XRT: [Line; 6] = [
    "libxrt-npu2 2.25-1 libxrt2",
    "libxrt2 2.25-1",
    "libxrt-utils 2.25-1 libxrt2",
    "libxrt-utils-npu 2.25-1",
    "xilinx-bootgen 2026-1",
    "python3-xrt 2.25-1",
];
const EXPERIMENTAL: [Line; 5] = [
    "libhsa-runtime64-1 7.2.4+dfsg-1~exp1",
    "libhsa-runtime-dev 7.2.4+dfsg-1~exp1",
    "linux-binary-7.3-amd64 7.3~rc7-1~exp1",
    "linux-modules-7.3-amd64 7.3~rc7-1~exp1",
    "linux-base-7.3-amd64 7.3~rc7-1~exp1",
];

/// An archive that is like today's but for the lines that are dropped, by their beginning, and those that are added to sid.
struct Archive {
    sid: Vec<Line>,
    experimental: Vec<Line>,
}

impl Archive {
    fn today() -> Self {
        Self { sid: SID.into_iter().chain(XRT).collect(), experimental: EXPERIMENTAL.into() }
    }

    fn without(mut self, beginning: &str) -> Self {
        for suite in [&mut self.sid, &mut self.experimental] {
            let before = suite.len();
            suite.retain(|line| !line.starts_with(beginning));
            assert!(!beginning.is_empty() && suite.len() <= before);
        }
        self
    }

    fn with(mut self, lines: &[Line]) -> Self {
        self.sid.extend(lines);
        self
    }

    /// What `look` finds with an apt that has this archive.
    fn look<T>(&self, look: impl FnOnce(&PrivateApt) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let architecture = architecture().unwrap();
        for (suite, lines) in [("sid", &self.sid), ("experimental", &self.experimental)] {
            let folder = dir.path().join(format!("archive/dists/{suite}/main/binary-{architecture}"));
            fs::create_dir_all(&folder).unwrap();
            let entries: String = lines.iter().map(|line| entry(line, &architecture)).collect();
            fs::write(folder.join("Packages"), entries).unwrap();
        }
        let source = format!("[trusted=yes] file:{}", dir.path().join("archive").display());
        let apt = PrivateApt::of(&dir.path().join("apt"), &source, &["sid", "experimental"], &amd::ASSUMED).unwrap();
        look(&apt)
    }

    /// What the testbed would be made of, by apt's own plan.
    fn testbed(&self) -> Result<Vec<String>> {
        self.look(|apt| {
            let wanted = Wanted::among(apt)?;
            let plan = apt.plan(&wanted.packages.iter().map(String::as_str).collect::<Vec<_>>())?;
            let mut plan: Vec<String> = plan.into_iter().map(|(name, version)| format!("{name}={version}")).collect();
            plan.sort();
            Ok(plan)
        })
    }

    fn testbed_error(&self) -> String {
        format!("{:#}", self.testbed().unwrap_err())
    }

    /// The kernels that machines boot, with the note on those that are missing.
    fn kernels(&self) -> Result<(Vec<String>, Option<String>)> {
        self.look(|apt| {
            let chosen = kernels::choose(apt)?;
            let names = chosen.iter().map(|kernel| format!("{} {}", kernel.series, kernel.release));
            Ok((names.collect(), kernels::notice(&chosen)))
        })
    }
}

fn entry(line: &str, architecture: &str) -> String {
    let mut words = line.split(' ');
    let (name, version) = (words.next().unwrap(), words.next().unwrap());
    let needs: Vec<&str> = words.collect();
    let depends = if needs.is_empty() { String::new() } else { format!("Depends: {}\n", needs.join(", ")) };
    format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: none\nInstalled-Size: 1\n{depends}\
         Filename: pool/{name}.deb\nSize: 1\nSHA256: {}\nDescription: doctored\n\n",
        "0".repeat(64)
    )
}

/// Every message of a package that is not there says where to put another, and how to get yesterday's.
fn names_the_next_step(message: &str) {
    assert!(message.contains("AIE_TESTBED_MIRROR") && message.contains("tests/xtask/src/testbed"), "{message}");
}

#[test]
fn today_s_archive_is_what_the_testbed_takes() {
    let plan = Archive::today().testbed().unwrap();
    for package in
        ["libggml0=0.27.0-1", "libggml0-backend-rpc=0.27.0-1", "libhsa-runtime64-1=7.2.4+dfsg-1~exp1", "libxrt2=2.25-1"]
    {
        assert!(plan.iter().any(|known| known == package), "{package}: {plan:?}");
    }
    let (kernels, notice) = Archive::today().kernels().unwrap();
    assert_eq!((kernels, notice), (vec!["7.2 7.2.13+deb14".to_owned(), "7.3 7.3".to_owned()], None));
}

#[test]
fn a_later_rocr_beside_a_known_one_is_left_alone() {
    let archive = Archive::today().with(&["libhsa-runtime64-1 7.14.0-1", "libhsa-runtime-dev 7.14.0-1"]);
    assert!(archive.testbed().unwrap().contains(&"libhsa-runtime64-1=7.2.4+dfsg-1~exp1".to_owned()));
}

#[test]
fn a_later_rocr_alone_is_taken_with_a_warning() {
    let archive = Archive::today().without("libhsa-runtime");
    let archive = archive.with(&["libhsa-runtime64-1 8.1.0-1", "libhsa-runtime-dev 8.1.0-1"]);
    assert!(archive.testbed().unwrap().contains(&"libhsa-runtime64-1=8.1.0-1".to_owned()));
    let warning = amd::warning("8.1.0-1").unwrap();
    assert!(warning.contains("1.26"), "{warning}");
    names_the_next_step(&warning);
}

#[test]
fn without_a_rocr_for_npus_the_versions_are_listed() {
    let error = Archive::today().without("libhsa-runtime64-1 7").testbed_error();
    assert!(error.contains("have: 6.4.3+dfsg-5") && error.contains("AIE_TESTBED_MIRROR"), "{error}");
}

#[test]
fn a_kernel_that_is_gone_leaves_the_others_with_a_note() {
    let gone = ["linux-binary-7.2", "linux-modules-7.2", "linux-base-7.2"];
    let archive = gone.into_iter().fold(Archive::today(), Archive::without);
    let (kernels, notice) = archive.kernels().unwrap();
    assert_eq!(kernels, ["7.3 7.3"]);
    let notice = notice.unwrap();
    assert!(
        notice.contains("no kernel 7.2") && notice.contains("boot 7.3") && notice.contains("AIE_TESTBED_MIRROR"),
        "{notice}"
    );
}

#[test]
fn later_kernels_alone_are_listed_with_what_to_do() {
    let archive = Archive::today()
        .without("linux-")
        .with(&["linux-binary-7.4.2-amd64 7.4.2-1", "linux-binary-7.4.2-rt-amd64 7.4.2-1"]);
    let error = archive.kernels().unwrap_err().to_string();
    assert!(error.contains("they have: linux-binary-7.4.2-amd64;") && error.contains("KERNELS"), "{error}");
    names_the_next_step(&error);
    let error = Archive::today().without("linux-").kernels().unwrap_err().to_string();
    assert!(error.contains("they have: none"), "{error}");
}

#[test]
fn a_kernel_in_other_packages_is_named() {
    let error = Archive::today().without("linux-modules-7.2").kernels().unwrap_err().to_string();
    assert!(error.contains("linux-modules-7.2.13+deb14-amd64=7.2.13-1"), "{error}");
    names_the_next_step(&error);
}

#[test]
fn a_later_ggml_is_taken() {
    let later = ["libggml0 0.31.0-1", "libggml0-backend-rpc 0.31.0-1 libggml0"];
    let plan = Archive::today().without("libggml0").with(&later).testbed().unwrap();
    assert!(
        plan.contains(&"libggml0=0.31.0-1".to_owned()) && plan.contains(&"libggml0-backend-rpc=0.31.0-1".to_owned())
    );
}

#[test]
fn a_ggml_with_another_binary_interface_is_taken_with_its_packages() {
    let later = [
        "libggml1 1.0.0-1",
        "libggml1-backend-rpc 1.0.0-1 libggml1",
        "libllama1 2.0-1 libggml1",
        "llama.cpp-tools 2.0-1 libllama1",
        "llama.cpp-tools-extra 2.0-1 libllama1",
        "llama.cpp-tests 2.0-1 libllama1",
    ];
    // The old library stays in the archive until nothing needs it.
    let plan = Archive::today().without("llama.cpp").with(&later).testbed().unwrap();
    assert!(plan.contains(&"libggml1=1.0.0-1".to_owned()) && plan.contains(&"libggml1-backend-rpc=1.0.0-1".to_owned()));
    assert!(!plan.iter().any(|package| package.starts_with("libggml0")), "{plan:?}");
}

#[test]
fn packages_that_have_another_name_are_listed_with_what_is_there() {
    let error = Archive::today().without("libggml0-backend-rpc").with(&["libggml-rpc 0.27.0-1"]).testbed_error();
    assert!(error.contains("no package libggml0-backend-rpc") && error.contains("libggml-rpc, libggml0"), "{error}");
    names_the_next_step(&error);
    let error = Archive::today().without("llama.cpp-tests").testbed_error();
    assert!(error.contains("no package llama.cpp-tests") && error.contains("llama.cpp-tools-extra"), "{error}");
    names_the_next_step(&error);
    let error = Archive::today().without("libxrt2").with(&["libxrt3 3.0-1"]).testbed_error();
    assert!(error.contains("libxrt2") && error.contains("libxrt3"), "{error}");
    names_the_next_step(&error);
}

#[test]
fn without_xrt_the_testbed_is_made_and_its_stage_says_so() {
    let plan = XRT.iter().fold(Archive::today(), |archive, line| archive.without(line)).testbed().unwrap();
    assert!(!plan.iter().any(|package| package.contains("xrt")), "{plan:?}");
}

#[test]
fn packages_that_do_not_fit_together_say_that_it_passes() {
    let archive = Archive::today().without("libllama0").with(&["libllama0 1:0.7.1-1 libggml7"]);
    let error = archive.testbed_error();
    assert!(error.contains("cannot be installed together") && error.contains("passes in days"), "{error}");
    assert!(error.contains("libggml7") && error.contains("AIE_TESTBED_MIRROR"), "{error}");
}

#[test]
fn programs_for_users_that_have_another_name_are_named() {
    let error = Archive::today().look(|apt| apt.require(&clean_root::OFFERED_ALONE)).unwrap_err().to_string();
    assert!(error.contains("no package lemonade-server"), "{error}");
    names_the_next_step(&error);
}

#[test]
fn kernel_headers_of_suites_without_them_are_left_out() {
    let headers = Archive::today().look(kernel_headers::versions).unwrap_err().to_string();
    assert!(headers.contains("linux-libc-dev"), "{headers}");
    let archive = Archive::today().with(&["linux-libc-dev 7.4.1-1"]);
    assert_eq!(archive.look(kernel_headers::versions).unwrap()["sid"], "7.4.1-1");
}
