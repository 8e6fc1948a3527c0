//! Folders that are made of Debian packages, whole or not at all, with a file that says what they hold.

use crate::apt::{self, PrivateApt};
use crate::files;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

pub const STAMP: &str = "stamp.json";

pub struct Kind {
    /// What it holds, for messages.
    pub what: &'static str,
    /// Raised when what an older version of this program made is not good enough any more.
    pub schema: u32,
    pub make: &'static str,
    /// How to rebuild it.
    pub remake: &'static str,
    /// Debian's suites, and the packages that are not fetched though others depend on them.
    pub suites: &'static [&'static str],
    pub assumed: &'static [&'static str],
    /// The files and folders that are moved to their place when all are complete.
    pub places: &'static [&'static str],
}

#[derive(Serialize, Deserialize)]
struct Stamped<S> {
    schema: u32,
    #[serde(flatten)]
    stamp: S,
}

impl Kind {
    /// The stamp in `dir`, and its path without links. Errors if there is none, or one of another format.
    pub fn open<S: DeserializeOwned>(&self, dir: &Path) -> Result<(PathBuf, S)> {
        let Self { what, schema: needed, make, remake, .. } = self;
        let path = dir.join(STAMP);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no {what} in {} (no {STAMP}); {make}", dir.display()))?;
        let Stamped { schema, stamp } =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged; {remake}", path.display()))?;
        if schema != *needed {
            bail!("the {what} in {} has format {schema}, expected {needed}; {make}", dir.display());
        }
        Ok((fs::canonicalize(dir).with_context(|| format!("cannot resolve {}", dir.display()))?, stamp))
    }

    /// Makes one in `dir`, replacing what is there. `mirror` overrides the machine's own Debian mirror; `fill` puts what
    /// belongs into `dir` into the folder it gets.
    pub fn make<S: Serialize>(
        &self,
        dir: &Path,
        mirror: Option<&str>,
        fill: impl FnOnce(&PrivateApt, &Path) -> Result<S>,
    ) -> Result<()> {
        eprintln!("creating the {} in {} ...", self.what, dir.display());
        let mirror = mirror.map_or_else(apt::mirror, |mirror| Ok(mirror.to_owned()))?;
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        // Made beside its place and moved there whole, so that a run broken off leaves nothing half-made.
        let building = tempfile::Builder::new().prefix(".making-").tempdir_in(dir);
        let building = building.with_context(|| format!("cannot write in {}", dir.display()))?;
        let work = fs::canonicalize(building.path())?;
        let (made, old) = (work.join("made"), work.join("old"));
        fs::create_dir(&made)?;
        fs::create_dir(&old)?;
        let apt = PrivateApt::new(&work.join("apt"), &mirror, self.suites, self.assumed)?;
        let stamp = Stamped { schema: self.schema, stamp: fill(&apt, &made)? };
        fs::write(made.join(STAMP), serde_json::to_string_pretty(&stamp)?)?;
        let _ = fs::remove_file(dir.join(STAMP));
        // The stamp last: it says that all is there.
        for name in self.places.iter().chain(&[STAMP]) {
            let place = dir.join(name);
            if place.exists() {
                fs::rename(&place, old.join(name)).with_context(|| format!("cannot replace {}", place.display()))?;
            }
            fs::rename(made.join(name), &place)
                .with_context(|| format!("cannot move {} into place", place.display()))?;
        }
        Ok(())
    }

    /// Opens the one in `dir`, or makes it when it cannot be opened or `force` is set, unless `offline`.
    pub fn ensure<T>(
        &self,
        dir: &Path,
        offline: bool,
        force: bool,
        open: impl Fn() -> Result<T>,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        match open() {
            Ok(opened) if offline || !force => Ok(opened),
            Err(error) if offline => {
                Err(error.context(format!("the {} cannot be used, and --offline forbids downloading it", self.what)))
            }
            _ => {
                let _alone = files::alone(dir)?;
                match open() {
                    Ok(made_meanwhile) if !force => Ok(made_meanwhile),
                    _ => make().and_then(|()| open()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_stamp_that_is_missing_damaged_or_old_is_rejected() {
        let kind = Kind {
            what: "thing",
            schema: 3,
            make: "make it",
            remake: "make it with --force",
            suites: &[],
            assumed: &[],
            places: &[],
        };
        let dir = tempfile::tempdir().unwrap();
        let open = || kind.open::<BTreeMap<String, u8>>(dir.path()).map(|(_, stamp)| stamp);
        let error = |result: Result<BTreeMap<String, u8>>| format!("{:#}", result.unwrap_err());
        assert!(error(open()).contains("no thing in") && error(open()).contains("; make it"));
        assert!(error(kind.ensure(dir.path(), true, false, open, || bail!("offline"))).contains("--offline"));
        for (text, expected) in [("{", "damaged; make it with --force"), (r#"{"schema":0}"#, "format 0, expected 3")] {
            fs::write(dir.path().join(STAMP), text).unwrap();
            assert!(error(open()).contains(expected));
        }
        fs::write(dir.path().join(STAMP), r#"{"schema":3,"a":1}"#).unwrap();
        assert_eq!(kind.ensure(dir.path(), false, false, open, || bail!("it is there")).unwrap()["a"], 1);
        assert!(error(kind.ensure(dir.path(), false, true, open, || bail!("made anew"))).contains("made anew"));
    }
}
