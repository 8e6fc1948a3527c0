//! The tree of files that both packages have.

use super::binaries::Binaries;
use super::licences;
use crate::process::run_helper;
use crate::{files, workspace};
use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Documents for users, beside those in `docs`.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];
/// What of the designs' folder is not for users, by its name.
const NOT_INSTALLED: [&str; 3] = ["tests", "__pycache__", ".pytest_cache"];

/// Puts everything below `prefix`.
pub fn lay_out(binaries: &Binaries, prefix: &Path) -> Result<()> {
    binaries.install(&prefix.join("lib"), &prefix.join("bin"))?;
    let share = prefix.join("share");
    manuals(binaries, &share)?;
    data(&share.join("ggml-hsa"))?;
    documents(binaries, &share.join("doc/ggml-hsa"))?;
    set_modes(prefix, &prefix.join("bin"))
}

/// Man pages, and completions where the packages of the shells look for those of others.
fn manuals(binaries: &Binaries, share: &Path) -> Result<()> {
    let written = tempfile::tempdir()?;
    binaries.write_manuals(written.path())?;
    let places = [
        ("man1", "man/man1"),
        ("bash", "bash-completion/completions"),
        ("zsh", "zsh/vendor-completions"),
        ("fish", "fish/vendor_completions.d"),
    ];
    for (from, to) in places {
        for name in files::below(&written.path().join(from))? {
            // bash-completion looks for the command's own name.
            let place = share.join(to).join(if from == "bash" { name.with_extension("") } else { name.clone() });
            copy(&written.path().join(from).join(&name), &place)?;
            if from == "man1" {
                run_helper(Command::new("gzip").args(["-9", "--no-name"]).arg(&place), LIMIT)?;
            }
        }
    }
    Ok(())
}

/// The designs of kernels with their compiler, and examples; the same places as with CMake.
fn data(share: &Path) -> Result<()> {
    let sources = workspace::root().join("jit-iron");
    let designs = sources.join("iron");
    for name in files::below(&designs)? {
        let hidden = name.iter().any(|part| NOT_INSTALLED.iter().any(|not| part == *not));
        if designs.join(&name).is_dir() || hidden {
            continue;
        }
        // For people, one folder up: they are looked for by name.
        let text = name.to_string_lossy();
        let for_people = text == "env_setup.sh" || text.starts_with("requirements");
        copy(&designs.join(&name), &if for_people { share.join(&name) } else { share.join("iron").join(&name) })?;
    }
    copy_all(&sources.join("examples/kernels"), &share.join("examples"))
}

fn documents(binaries: &Binaries, doc: &Path) -> Result<()> {
    let root = workspace::root();
    DOCUMENTS.iter().try_for_each(|name| copy(&root.join(name), &doc.join(name)))?;
    copy_all(&root.join("docs"), &doc.join("docs"))?;
    files::write(&doc.join("licenses-of-dependencies.txt"), &licences::document(&binaries.crates)?)?;
    files::write(&doc.join("copyright"), &copyright())
}

/// What Debian's tools look for.
fn copyright() -> String {
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
     Upstream-Name: aie-hal\n\n\
     Files: *\n\
     Copyright: 2026 The aie-hal authors\n\
     License: Apache-2.0 or Expat\n\
    \u{20}The texts are in LICENSE-APACHE and LICENSE-MIT beside this file. The library and the programs contain\n\
    \u{20}crates of others, whose licences are in licenses-of-dependencies.txt.\n"
        .to_owned()
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    let names = files::below(from)?.into_iter().filter(|name| !from.join(name).is_dir());
    names.into_iter().try_for_each(|name| copy(&from.join(&name), &to.join(&name)))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/")))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display())).map(drop)
}

/// A folder that everybody may enter.
pub fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(Into::into)
}

/// Everybody may read everything and start the programs, whatever the user's umask and the checkout's modes are.
fn set_modes(prefix: &Path, programs: &Path) -> Result<()> {
    for name in std::iter::once(PathBuf::new()).chain(files::below(prefix)?) {
        let path = prefix.join(name);
        let executable = path.is_dir() || path.starts_with(programs);
        fs::set_permissions(&path, Permissions::from_mode(if executable { 0o755 } else { 0o644 }))?;
    }
    Ok(())
}
