//! The kernels that are booted: their packages, whose names change with every version, and what is stored of them.

use super::modules::{self, About, WANTED};
use super::qemu;
use crate::apt::{EARLIER, PrivateApt, numbers};
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The kernels, oldest first.
pub const KERNELS: [&str; 2] = ["7.2", "7.3"];
pub const FOLDER: &str = "kernels";
/// A kernel's image in its folder.
pub const IMAGE: &str = "vmlinuz";
pub const MODULES: &str = "modules";
const CONFIGURATION: &str = "config";
/// What the packages of one kernel begin with: the image, its modules, and what is common to both.
const PACKAGES: [&str; 3] = ["linux-binary-", "linux-modules-", "linux-base-"];
/// What they end with; those of other flavours have another word before it.
const ENDING: &str = "-amd64";
const FLAVOURS: [&str; 2] = ["-cloud", "-rt"];
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    pub release: String,
    pub version: String,
    /// Its stored modules, with what each needs.
    pub modules: BTreeMap<String, Vec<String>>,
    /// Modules that are loaded, of those stored.
    pub wanted: Vec<String>,
    /// The firmware its driver for NPUs may ask for, below `/lib/firmware`.
    pub firmware: Vec<String>,
}

/// Downloads the kernels and puts what is needed of them into `made`. Returns them, and the bytes downloaded.
///
/// One that Debian does not have is left out; that it has none of them is an error.
pub fn make(apt: &PrivateApt, work: &Path, made: &Path) -> Result<(BTreeMap<String, Kernel>, u64)> {
    let (mut kernels, mut bytes) = (BTreeMap::new(), 0);
    let chosen = choose(apt)?;
    if let Some(notice) = notice(&chosen) {
        eprintln!("{notice}");
    }
    for Chosen { series, release, packages, version } in chosen {
        let work = work.join(series);
        let (kernel, size) = make_one(apt, &release, &packages, version, &work, made, series)
            .with_context(|| format!("the kernel {release} cannot be used"))?;
        kernels.insert(series.to_owned(), kernel);
        bytes += size;
        // Unpacked it is half a gigabyte.
        fs::remove_dir_all(&work)?;
    }
    Ok((kernels, bytes))
}

/// A kernel that Debian has.
pub struct Chosen {
    pub series: &'static str,
    pub release: String,
    pub version: String,
    /// With this version each.
    pub packages: [String; 3],
}

/// The kernels among what Debian has, oldest first. Errors if there are none.
pub fn choose(apt: &PrivateApt) -> Result<Vec<Chosen>> {
    let names = apt.names(PACKAGES[0])?;
    let mut chosen = Vec::new();
    for series in KERNELS {
        let Some(release) = newest(&names, series) else { continue };
        let first = format!("{}{release}{ENDING}", PACKAGES[0]);
        let versions = apt.versions(&first, None)?;
        let version = versions.into_iter().next().with_context(|| format!("no source has {first}"))?;
        let packages = PACKAGES.map(|prefix| format!("{prefix}{release}{ENDING}={version}"));
        apt.require(&packages.each_ref().map(String::as_str))?;
        chosen.push(Chosen { series, release, version, packages });
    }
    if chosen.is_empty() {
        let plain = |name: &&String| name.ends_with(ENDING) && !FLAVOURS.iter().any(|flavour| name.contains(flavour));
        let available: Vec<&str> = names.iter().filter(plain).map(String::as_str).collect();
        bail!(
            "Debian's suites sid and experimental have none of the kernels {}; they have: {}; {EARLIER}, or put a later kernel into \
             KERNELS of tests/xtask/src/testbed/virtual_machine/kernels.rs and try it with `cargo xtask vm check`",
            KERNELS.join(", "),
            if available.is_empty() { "none".to_owned() } else { available.join(", ") }
        );
    }
    Ok(chosen)
}

/// What to know when some are missing.
pub fn notice(chosen: &[Chosen]) -> Option<String> {
    let has = |series: &&str| chosen.iter().any(|kernel| kernel.series == *series);
    let missing: Vec<&str> = KERNELS.into_iter().filter(|series| !has(series)).collect();
    (!missing.is_empty()).then(|| {
        let there: Vec<&str> = chosen.iter().map(|kernel| kernel.series).collect();
        format!(
            "note: Debian has no kernel {} now; machines boot {} unless another is asked for. {EARLIER}",
            missing.join(", "),
            there.join(", ")
        )
    })
}

fn make_one(
    apt: &PrivateApt,
    release: &str,
    packages: &[String],
    version: String,
    work: &Path,
    made: &Path,
    series: &str,
) -> Result<(Kernel, u64)> {
    let (root, mut bytes) = (work.join("root"), 0);
    for package in packages {
        bytes += apt.unpack_alone(package, &root)?.bytes;
    }
    let source = root.join("usr/lib/modules").join(format!("{release}{ENDING}"));
    let place = made.join(FOLDER).join(series);
    fs::create_dir_all(place.join(MODULES))?;
    for file in [IMAGE, CONFIGURATION] {
        fs::copy(source.join(file), place.join(file)).with_context(|| {
            format!("cannot copy {}; the kernel's packages have changed", source.join(file).display())
        })?;
    }
    let mut kernel = Kernel { release: format!("{release}{ENDING}"), version, ..Kernel::default() };
    kernel.keep_modules(&source, &place.join(MODULES), &made.join(qemu::BUSYBOX))?;
    Ok((kernel, bytes))
}

impl Kernel {
    /// The modules that machines load, each after what it needs: those of the driver for NPUs, and those before.
    pub fn load_order(&self) -> Result<(Vec<String>, Vec<String>)> {
        let wanted: Vec<&str> = self.wanted.iter().map(String::as_str).collect();
        let before: Vec<&str> = wanted.iter().copied().filter(|name| *name != modules::DRIVER).collect();
        let before = modules::load_order(&before, &self.modules)?;
        let mut driver = modules::load_order(&wanted, &self.modules)?;
        driver.retain(|name| !before.contains(name));
        Ok((driver, before))
    }

    /// Puts the modules that machines load, and all they need, uncompressed into `place`.
    fn keep_modules(&mut self, source: &Path, place: &Path, busybox: &Path) -> Result<()> {
        let files = modules::files(&source.join("kernel"))?;
        let list = source.join("modules.builtin");
        let built_in = crate::files::read(&list)?;
        let built_in = modules::built_in(&built_in);
        let is_module = |name: &&str| !built_in.iter().any(|known| known == name);
        self.wanted = WANTED.into_iter().filter(is_module).map(str::to_owned).collect();
        let mut open = self.wanted.clone();
        while let Some(name) = open.pop() {
            if self.modules.contains_key(&name) {
                continue;
            }
            let file = files.get(&name).with_context(|| format!("it has no module {name}"))?;
            let target = place.join(format!("{name}.ko"));
            uncompress(file, &target, busybox)?;
            let mut about = About::read(&target)?;
            about.needs.retain(|name| !built_in.contains(name));
            if name == modules::DRIVER {
                self.firmware = about.firmware;
            }
            open.extend(about.needs.iter().cloned());
            self.modules.insert(name, about.needs);
        }
        Ok(())
    }
}

fn uncompress(file: &Path, target: &Path, busybox: &Path) -> Result<()> {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let program = match extension {
        "ko" => None,
        "xz" => Some("unxz"),
        "gz" => Some("gunzip"),
        other => bail!("{} is compressed in a way this program does not know ({other})", file.display()),
    };
    let copy = target.with_extension(format!("ko.{extension}"));
    fs::copy(file, if program.is_some() { &copy } else { target })
        .with_context(|| format!("cannot copy {}", file.display()))?;
    if let Some(program) = program {
        process::run_helper(Command::new(busybox).args([program, "-f"]).arg(&copy), LIMIT)?;
    }
    ensure!(target.exists(), "{} was not built from {}", target.display(), file.display());
    Ok(())
}

/// The newest release of a series among the names of packages, without flavour.
fn newest(names: &[String], series: &str) -> Option<String> {
    let releases = names.iter().filter_map(|name| {
        let release = name.strip_prefix(PACKAGES[0])?.strip_suffix(ENDING)?;
        let rest = release.strip_prefix(series)?;
        let same = !rest.starts_with(|character: char| character.is_ascii_digit());
        (same && !FLAVOURS.iter().any(|flavour| release.ends_with(flavour))).then_some(release)
    });
    releases.max_by_key(|release| numbers(release)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_of_a_series_is_taken_without_flavour() {
        let names: Vec<String> = [
            "linux-binary-7.2.9+deb14-amd64",
            "linux-binary-7.2.13+deb14-amd64",
            "linux-binary-7.2.14+deb14-cloud-amd64",
            "linux-binary-7.2.14+deb14-rt-amd64",
            "linux-binary-7.2.15+deb14-amd64-unsigned",
            "linux-binary-7.20.1-amd64",
            "linux-binary-7.3-amd64",
        ]
        .map(str::to_owned)
        .into();
        assert_eq!(newest(&names, "7.2").as_deref(), Some("7.2.13+deb14"));
        assert_eq!(newest(&names, "7.3").as_deref(), Some("7.3"));
        assert_eq!(newest(&names, "7.4"), None);
    }
}
