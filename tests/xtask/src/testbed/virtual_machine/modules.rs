//! Modules of a kernel: which ones a machine loads, what they need, and in which order.
//!
//! Each module names in itself the modules whose symbols it uses, and the firmware it may ask for. The list that modprobe
//! reads is made of the same when a kernel is installed; here none is.

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub const DRIVER: &str = "amdxdna";
/// What a machine loads: the way to talk to the host, folders of the host, a root that can be written, and the driver at last.
/// What a kernel has built in is left out.
pub const WANTED: [&str; 6] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", DRIVER];

/// What a module says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    pub needs: Vec<String>,
    /// The firmware it may ask for, below `/lib/firmware`.
    pub firmware: Vec<String>,
}

impl About {
    /// Reads it out of an uncompressed module.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = object::File::parse(bytes.as_slice())
            .with_context(|| format!("{} is not a module: not an ELF file", path.display()))?;
        let section = file
            .section_by_name(".modinfo")
            .with_context(|| format!("{} has no module information", path.display()))?;
        Ok(Self::parse(section.data()?))
    }

    /// Entries `NAME=VALUE`, each ended by a zero.
    fn parse(section: &[u8]) -> Self {
        let mut about = Self::default();
        for entry in section.split(|byte| *byte == 0) {
            let entry = String::from_utf8_lossy(entry);
            match entry.split_once('=') {
                Some(("depends", names)) => {
                    about.needs.extend(names.split(',').filter(|name| !name.is_empty()).map(normal));
                }
                Some(("firmware", name)) => about.firmware.push(name.to_owned()),
                _ => {}
            }
        }
        about
    }
}

/// A module's name as the kernel has it: files and lists also write hyphens.
pub fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// The files of modules below `folder`, by name.
pub fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let paths = crate::files::below(folder)?.into_iter();
    Ok(paths.filter_map(|path| Some((name_of(&path)?, folder.join(path)))).collect())
}

/// The module in a file such as `gpu-sched.ko.xz`.
fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, rest) = file.split_once(".ko")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| normal(name))
}

/// The modules that are part of the kernel, from lines such as `kernel/fs/ext4/ext4.ko`.
pub fn built_in(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| name_of(Path::new(line.trim()))).collect()
}

/// `wanted` and everything it needs, each after what it needs itself.
pub fn load_order(wanted: &[&str], needs: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>> {
    let mut order = Vec::new();
    for module in wanted {
        visit(module, needs, &mut Vec::new(), &mut order)?;
    }
    Ok(order)
}

fn visit(
    module: &str,
    needs: &BTreeMap<String, Vec<String>>,
    above: &mut Vec<String>,
    order: &mut Vec<String>,
) -> Result<()> {
    if order.iter().any(|done| done == module) {
        return Ok(());
    }
    ensure!(!above.iter().any(|name| name == module), "modules need each other: {} and {module}", above.join(", "));
    let Some(needed) = needs.get(module) else {
        bail!("the kernel has no module {module}, which {} needs", above.last().map_or("the machine", String::as_str))
    };
    above.push(module.to_owned());
    for name in needed {
        visit(name, needs, above, order)?;
    }
    above.pop();
    order.push(module.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(list: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        list.iter()
            .map(|(name, needed)| ((*name).to_owned(), needed.iter().map(|name| (*name).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn a_module_says_what_it_needs() {
        let about = About::parse(b"license=GPL\0firmware=a/npu.sbin\0depends=drm,gpu-sched\0firmware=b/npu.sbin\0\0");
        assert_eq!(about.needs, ["drm", "gpu_sched"]);
        assert_eq!(about.firmware, ["a/npu.sbin", "b/npu.sbin"]);
        assert_eq!(About::parse(b"depends=\0"), About::default());
    }

    #[test]
    fn modules_come_after_what_they_need_and_once() {
        let needs = needs(&[
            ("amdxdna", &["drm", "gpu_sched", "amd_pmf"]),
            ("amd_pmf", &["tee", "drm"]),
            ("gpu_sched", &["drm"]),
            ("drm", &[]),
            ("tee", &[]),
            ("9p", &[]),
        ]);
        let order = load_order(&["amdxdna", "9p"], &needs).unwrap();
        assert_eq!(order, ["drm", "gpu_sched", "tee", "amd_pmf", "amdxdna", "9p"]);
    }

    #[test]
    fn what_is_missing_or_goes_round_is_reported() {
        let missing = load_order(&["a"], &needs(&[("a", &["b"])])).unwrap_err().to_string();
        assert!(missing.contains("no module b, which a needs"), "{missing}");
        let round = load_order(&["a"], &needs(&[("a", &["b"]), ("b", &["a"])])).unwrap_err().to_string();
        assert!(round.contains("a, b and a"), "{round}");
    }

    #[test]
    fn files_are_found_by_the_kernel_s_names() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("drivers/gpu")).unwrap();
        for file in ["drivers/gpu/gpu-sched.ko.xz", "drivers/drm.ko", "drivers/x.kobject", "modules.order"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let found = files(dir.path()).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["drm", "gpu_sched"]);
        assert_eq!(built_in("kernel/fs/9p/9p.ko\nkernel/a/b-c.ko\n"), ["9p", "b_c"]);
    }
}
