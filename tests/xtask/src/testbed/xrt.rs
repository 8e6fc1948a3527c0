//! AMD's other software for NPUs: XRT with its driver for amdxdna and its Python module, and the tools for its file
//! formats. None of it shares code with this project or with ROCR, so it can judge both.

use crate::apt::{self, PrivateApt};
use anyhow::{Context, Result};
use std::path::Path;

/// XRT's driver for amdxdna.
pub const DRIVER: &str = "libxrt-npu2";
/// What is installed. `libxrt-utils` has xrt-smi and xclbinutil, `libxrt-utils-npu` has aiebu-asm and aiebu-dump.
const PACKAGES: [&str; 6] =
    [DRIVER, "libxrt2", "libxrt-utils", "libxrt-utils-npu", "xilinx-bootgen", "python3-minimal"];
/// XRT's Python module, unpacked without what it depends on.
const PYTHON_MODULE: &str = "python3-xrt";
/// What depends on all of Python gets python3-minimal: the rest is 6 MB more, of which our programs need nothing.
pub const ASSUMED: [&str; 1] = ["python3"];

/// The packages to install; none where Debian has no driver for this architecture.
pub fn packages(apt: &PrivateApt) -> Result<Vec<&'static str>> {
    let absent = apt.versions(DRIVER)?.is_empty();
    Ok(if absent { Vec::new() } else { PACKAGES.to_vec() })
}

/// Puts the Python module into `root`; returns its package and version.
pub fn unpack_python(apt: &PrivateApt, work: &Path, root: &Path) -> Result<(String, String)> {
    let file = apt.download_alone(PYTHON_MODULE, work)?;
    apt::unpack(&file, root).with_context(|| format!("cannot unpack {PYTHON_MODULE}"))?;
    apt::identity(&file)
}
