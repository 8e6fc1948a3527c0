//! The two files: a Debian package and an archive.

use super::binaries::Binaries;
use super::contents;
use crate::process::run_helper;
use crate::{apt, files, testbed, workspace};
use anyhow::{Context, Result, bail};
use object::Endianness;
use object::read::elf::{ElfFile64, FileHeader};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
const NAME: &str = "ggml-hsa";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub struct Packed {
    pub deb: PathBuf,
    pub archive: PathBuf,
    /// The folder that the archive has.
    pub folder: String,
}

impl Packed {
    /// What they are called in `output`.
    pub fn named(output: &Path, architecture: &str) -> Self {
        let folder = format!("{NAME}-{VERSION}-linux-{architecture}");
        Self {
            deb: output.join(format!("{NAME}_{VERSION}_{architecture}.deb")),
            archive: output.join(format!("{folder}.tar.gz")),
            folder,
        }
    }

    /// Makes both in `output`.
    pub fn make(binaries: &Binaries, output: &Path) -> Result<Self> {
        fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
        let work = tempfile::Builder::new().prefix(".packing-").tempdir_in(output)?;
        let (architecture, date) = (apt::architecture()?, date()?);
        let Self { deb, archive, folder } = Self::named(output, &architecture);

        let tree = work.path().join(&folder);
        contents::lay_out(binaries, &tree)?;
        let mut command = Command::new("tar");
        command.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
        command.arg(format!("--mtime=@{date}")).args(["--use-compress-program", "gzip --no-name"]);
        command.arg("--directory").arg(work.path()).arg("--file").arg(&archive).arg(&folder);
        run_helper(&mut command, LIMIT).context("tar cannot make the archive")?;

        // The same tree; Debian has libraries that are loaded by their path in folders of their packages.
        let root = work.path().join("deb");
        let control = control(binaries, &tree, &architecture)?;
        for part in ["DEBIAN", "usr", "usr/lib"] {
            contents::make_folder(&root.join(part))?;
        }
        let library = root.join("usr/lib").join(testbed::triplet(&architecture)?);
        contents::make_folder(&library)?;
        fs::rename(tree.join("lib"), library.join(NAME))?;
        for part in ["bin", "share"] {
            fs::rename(tree.join(part), root.join("usr").join(part))?;
        }
        files::write(&root.join("DEBIAN/control"), &control)?;
        // One thread: xz divides the data among several.
        let mut command = Command::new("dpkg-deb");
        command.args(["--root-owner-group", "--threads-max=1", "-Zxz", "-z2", "--build"]).arg(&root).arg(&deb);
        run_helper(command.env("SOURCE_DATE_EPOCH", &date), LIMIT).context("dpkg-deb cannot make the package")?;
        Ok(Self { deb, archive, folder })
    }

    /// Errors when `other`, made of the same, has other bytes.
    pub fn same_as(&self, other: &Self) -> Result<String> {
        for (left, right) in [(&self.deb, &other.deb), (&self.archive, &other.archive)] {
            if fs::read(left)? != fs::read(right)? {
                bail!("{} and {} have different bytes; compare what is in them", left.display(), right.display());
            }
        }
        Ok("the same bytes".to_owned())
    }
}

pub fn megabytes(file: &Path) -> Result<f64> {
    let bytes = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    Ok(bytes as f64 / 1e6)
}

/// Seconds since 1970 that every file gets as its date.
fn date() -> Result<String> {
    if let Ok(date) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(workspace::root());
    let date =
        run_helper(&mut git, LIMIT).context("no date: this is no git checkout, and SOURCE_DATE_EPOCH is not set")?;
    Ok(date.trim().to_owned())
}

fn control(binaries: &Binaries, usr: &Path, architecture: &str) -> Result<String> {
    let names = files::below(usr)?;
    let sizes = names.iter().map(|name| fs::metadata(usr.join(name)).map(|data| data.len().div_ceil(1024)));
    let kilobytes: u64 = sizes.sum::<std::io::Result<u64>>()?;
    let depends = depends(std::iter::once(&binaries.library).chain(&binaries.programs))?;
    Ok(format!(
        "Package: {NAME}\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: The aie-hal authors\n\
         Section: libs\n\
         Priority: optional\n\
         Installed-Size: {kilobytes}\n\
         Depends: {depends}\n\
         Recommends: llama.cpp-tools\n\
         Suggests: libhsa-runtime64-1\n\
         Description: llama.cpp on AMD's NPUs (AI Engines)\n\
        \u{20}A backend that an unmodified llama.cpp loads, `ggml-hsa run` to start it with,\n\
        \u{20}and a simulated NPU for machines that have none.\n"
    ))
}

/// The packages with the libraries that `binaries` are linked to.
fn depends<'a>(binaries: impl Iterator<Item = &'a PathBuf>) -> Result<String> {
    let (mut glibc, mut gcc) = (BTreeSet::new(), false);
    for path in binaries {
        let data = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        for (library, version) in versions(&data).with_context(|| format!("cannot read {}", path.display()))? {
            match library.as_str() {
                "libgcc_s.so.1" => gcc = true,
                "libc.so.6" | "libm.so.6" | "libdl.so.2" | "libpthread.so.0" => {
                    glibc.extend(version.strip_prefix("GLIBC_").map(apt::numbers));
                }
                name if name.starts_with("ld-linux") => {}
                name => bail!("{} needs {name}, and no package is known for it", path.display()),
            }
        }
    }
    let newest = glibc.pop_last().context("no program is linked to the C library")?;
    let version = newest.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    Ok(format!("libc6 (>= {version}){}", if gcc { ", libgcc-s1" } else { "" }))
}

/// The libraries an ELF file needs, each with a version of symbols that it needs of it.
fn versions(data: &[u8]) -> Result<Vec<(String, String)>> {
    let file = ElfFile64::<Endianness>::parse(data)?;
    let endian = file.elf_header().endian()?;
    let sections = file.elf_section_table();
    let mut found = Vec::new();
    let Some((mut libraries, names)) = sections.gnu_verneed(endian, data)? else { return Ok(found) };
    let names = sections.strings(endian, data, names)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while let Some((library, mut symbols)) = libraries.next()? {
        while let Some(symbol) = symbols.next()? {
            found.push((text(library.file(endian, names)?), text(symbol.name(endian, names)?)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let own = std::env::current_exe().unwrap();
        let depends = depends([own].iter()).unwrap();
        assert!(depends.starts_with("libc6 (>= 2."), "{depends}");
        assert!(versions(b"no ELF").is_err());
    }
}
