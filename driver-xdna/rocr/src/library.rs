//! Finding the runtime library, AMD's ROCR: `libhsa-runtime64`.
//!
//! It is searched for in this order: what the device URI says (`libhsa=PATH`), what the program says, [`AIE_HAL_LIBHSA_PATH`],
//! [`IREE_HAL_AMDGPU_LIBHSA_PATH`] (the same variable that IREE's driver for AMD GPUs reads), ROCm's folders, and last the system's
//! loader, which also knows `LD_LIBRARY_PATH`.
//! The first four are explicit: a named library is required, so when it cannot be loaded that is an error and the
//! search ends. A path may be the library's file or a folder that has it; which of the two is decided by looking.
//!
//! Every attempt is recorded as an [`Attempt`], and an error lists all of them with the loader's messages.

use crate::settings::{AIE_HAL_LIBHSA_PATH, IREE_HAL_AMDGPU_LIBHSA_PATH, ROCM_PATH};
use aie_hal::Environment;
use aie_hal::environment::Variable;
use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};
use std::error::Error;
use std::fmt::{Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};

/// Names of the library, best first. The one without a version is for developers, and may be missing.
const NAMES: [&str; 2] = ["libhsa-runtime64.so.1", "libhsa-runtime64.so"];

/// Where ROCm is installed by AMD's packages.
const ROCM_FOLDER: &str = "/opt/rocm";

/// Who named a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The device URI.
    Uri,
    /// The program.
    Option,
    /// An environment variable.
    Variable(&'static Variable),
    /// The usual place of ROCm.
    Rocm,
    /// The system's loader.
    Loader,
}

impl Source {
    /// Whether the search ends here, found or not.
    fn is_explicit(self) -> bool {
        match self {
            Self::Uri | Self::Option => true,
            Self::Variable(variable) => *variable != ROCM_PATH,
            Self::Rocm | Self::Loader => false,
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uri => f.write_str("the device URI's `libhsa`"),
            Self::Option => f.write_str("the program's option"),
            Self::Variable(variable) => f.write_str(variable.name),
            Self::Rocm => f.write_str("ROCm's usual folder"),
            Self::Loader => f.write_str("the system's loader"),
        }
    }
}

/// A path that a URI or the program names: the library's file, or a folder that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// [`Source::Uri`] or [`Source::Option`].
    pub source: Source,
    /// The path.
    pub path: PathBuf,
}

impl Named {
    /// Whether `file`, a library that is loaded, is the one this names.
    pub fn is(&self, file: &Path) -> bool {
        let same = |candidate: &Attempt| match (fs::canonicalize(&candidate.path), fs::canonicalize(file)) {
            (Ok(named), Ok(file)) => named == file,
            _ => candidate.path == file,
        };
        candidates(self.source, &self.path).iter().any(same)
    }
}

/// Something that was tried, or is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Who named it.
    pub source: Source,
    /// A file, or a bare name for the system's loader.
    pub path: PathBuf,
    /// Why it failed, or would not even be loaded; `None` for the one that was loaded.
    pub failure: Option<String>,
}

impl Display for Attempt {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { source, path, failure } = self;
        write!(f, "{} (from {source}): {}", path.display(), failure.as_deref().unwrap_or("loaded"))
    }
}

/// The library, loaded.
#[derive(Debug)]
pub struct Found {
    /// The library. Dropping it unloads it; do that only when nothing of it ever ran.
    pub library: libloading::Library,
    /// Its file.
    pub path: PathBuf,
    /// Who named it.
    pub source: Source,
    /// All that was tried; the last one was loaded.
    pub attempts: Vec<Attempt>,
}

/// The library cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// A library was named and cannot be loaded. Nothing else was tried.
    #[error(
        "cannot load the runtime library that {source_name} names: {}; correct that or the path, or remove the path to \
         search for {}",
        list(attempts), NAMES[0]
    )]
    Explicit {
        /// Who named it.
        source_name: Source,
        /// What was tried.
        attempts: Vec<Attempt>,
    },
    /// No place has one that can be loaded.
    #[error(
        "cannot load {}, AMD's ROCR; tried: {}; install ROCm 7.0 to 7.14 or Debian's libhsa-runtime64-1 (7.2 or newer), or set \
         {AIE_HAL_LIBHSA_PATH} to its file or folder", NAMES[0], list(attempts)
    )]
    NotFound {
        /// What was tried.
        attempts: Vec<Attempt>,
    },
}

impl LibraryError {
    /// What was tried.
    pub fn attempts(&self) -> &[Attempt] {
        match self {
            Self::Explicit { attempts, .. } | Self::NotFound { attempts } => attempts,
        }
    }
}

fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What differs between this machine and a test.
struct Places<'a> {
    rocm: &'a str,
    loader_names: &'a [&'a str],
}

const THIS_MACHINE: Places<'static> = Places { rocm: ROCM_FOLDER, loader_names: &NAMES };

/// The candidates of one named place: a file, or the library's names in a folder.
fn candidates(source: Source, place: &Path) -> Vec<Attempt> {
    // The loader would search its own folders for a name without a slash.
    let place = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    let one = |path: PathBuf, failure: Option<String>| Attempt { source, path, failure };
    match fs::metadata(&place) {
        Err(error) => vec![one(place, Some(error.to_string()))],
        Ok(metadata) if metadata.is_dir() => {
            let mut files: Vec<PathBuf> = NAMES.map(|name| place.join(name)).into();
            files.retain(|file| file.exists());
            // Usually one is a link to the other; a failure need not be reported twice.
            files.dedup_by_key(|file| fs::canonicalize(&*file).unwrap_or_else(|_| file.clone()));
            match files.is_empty() {
                true => vec![one(place, Some(format!("it has no {}", NAMES.join(" and no "))))],
                false => files.into_iter().map(|file| one(file, None)).collect(),
            }
        }
        Ok(_) => vec![one(place, None)],
    }
}

/// What is tried, in order.
fn plan(places: &Places<'_>, named: Option<&Named>, environment: &Environment) -> Vec<Attempt> {
    let variable =
        |variable: &'static Variable| environment.path(variable).map(|path| (Source::Variable(variable), path));
    let explicit = named
        .map(|named| (named.source, named.path.clone()))
        .or_else(|| variable(&AIE_HAL_LIBHSA_PATH))
        .or_else(|| variable(&IREE_HAL_AMDGPU_LIBHSA_PATH));
    if let Some((source, place)) = explicit {
        return candidates(source, &place);
    }
    let mut folders: Vec<(Source, PathBuf)> = Vec::new();
    for (source, rocm) in variable(&ROCM_PATH).into_iter().chain([(Source::Rocm, places.rocm.into())]) {
        for folder in ["lib", "lib64"].map(|name| rocm.join(name)) {
            if folders.iter().all(|(_, known)| *known != folder) {
                folders.push((source, folder));
            }
        }
    }
    let mut plan: Vec<Attempt> = folders.iter().flat_map(|(source, folder)| candidates(*source, folder)).collect();
    let loader = |name: &&str| Attempt { source: Source::Loader, path: name.into(), failure: None };
    plan.extend(places.loader_names.iter().map(loader));
    plan
}

/// Finds and loads the runtime library, the one that is `named` if there is such; a variable with an empty value counts as
/// unset.
///
/// Loading runs code of the library (its constructors), before anything can be checked of it: name only libraries that may
/// run in this process. All of its symbols are resolved now, so a library that lacks one fails here and not in use.
///
/// # Errors
/// [`LibraryError::Explicit`] when a named one cannot be loaded, [`LibraryError::NotFound`] when there is none.
pub fn find(named: Option<&Named>, environment: &Environment) -> Result<Found, LibraryError> {
    find_in(&THIS_MACHINE, named, environment)
}

fn find_in(places: &Places<'_>, named: Option<&Named>, environment: &Environment) -> Result<Found, LibraryError> {
    let mut attempts = Vec::new();
    for Attempt { source, path, failure } in plan(places, named, environment) {
        let outcome = failure.map_or_else(|| load(&path), Err);
        let failure = outcome.as_ref().err().cloned();
        tracing::debug!(path = %path.display(), %source, failure, "runtime library");
        attempts.push(Attempt { source, path: path.clone(), failure });
        if let Ok(library) = outcome {
            let path = if source == Source::Loader { loaded_file(&path).unwrap_or(path) } else { path };
            return Ok(Found { library, path, source, attempts });
        }
    }
    Err(match attempts.first().map(|attempt| attempt.source).filter(|source| source.is_explicit()) {
        Some(source_name) => LibraryError::Explicit { source_name, attempts },
        None => LibraryError::NotFound { attempts },
    })
}

/// Loads a library; the error is the loader's message.
fn load(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: Constructors of the library run now. It is AMD's ROCR, found by its name in the folders of ROCm or of the
    // system, whose constructors only set up its own state; or a library that the user or the program named for this
    // purpose, which the documentation of `find` makes theirs to answer for.
    let opened = unsafe { UnixLibrary::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    opened.map(Into::into).map_err(|error| match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    })
}

/// The file that a library was loaded from, which the system's loader does not say: the kernel's list of mapped files does.
fn loaded_file(name: &Path) -> Option<PathBuf> {
    let name = name.to_str()?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    // The name is often a link to a file with a longer version: `libhsa-runtime64.so.1.18.0`.
    maps.lines()
        .filter_map(|line| Some(Path::new(&line[line.find('/')?..])))
        .find(|path| path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(name)))
        .map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    const C_LIBRARY: &str = "libc.so.6";

    /// Folders with libraries that load and that do not, and no ROCm anywhere.
    struct FakeInstallation {
        folder: TempDir,
        variables: Vec<(&'static str, PathBuf)>,
    }

    impl FakeInstallation {
        fn new() -> Self {
            Self { folder: TempDir::new().unwrap(), variables: vec![] }
        }

        fn path(&self, name: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        }

        /// A file that is not a library.
        fn broken(&self, name: &str) -> PathBuf {
            let path = self.path(name);
            fs::write(&path, "x").unwrap();
            path
        }

        /// A library that loads: the C library, which every test has.
        fn sound(&self, name: &str) -> PathBuf {
            let path = self.path(name);
            symlink(loaded_file(Path::new(C_LIBRARY)).unwrap(), &path).unwrap();
            path
        }

        fn set(&mut self, variable: &'static Variable, value: PathBuf) {
            self.variables.push((variable.name, value));
        }

        fn find_by(&self, option: Option<&Path>, loader_names: &[&str]) -> Result<Found, LibraryError> {
            let rocm = self.folder.path().join("rocm");
            let environment = Environment::from_pairs(self.variables.clone());
            let named = option.map(|path| Named { source: Source::Option, path: path.to_owned() });
            find_in(&Places { rocm: rocm.to_str().unwrap(), loader_names }, named.as_ref(), &environment)
        }

        fn find(&self, option: Option<&Path>) -> Result<Found, LibraryError> {
            self.find_by(option, &["libno-such-library.so.1"])
        }
    }

    #[rstest]
    #[case::option(None, Source::Option)]
    #[case::own(Some(&AIE_HAL_LIBHSA_PATH), Source::Variable(&AIE_HAL_LIBHSA_PATH))]
    #[case::iree(Some(&IREE_HAL_AMDGPU_LIBHSA_PATH), Source::Variable(&IREE_HAL_AMDGPU_LIBHSA_PATH))]
    fn a_named_library_is_a_file_or_a_folder(#[case] variable: Option<&'static Variable>, #[case] source: Source) {
        // The names do not show what these are: only a look does.
        for (place, file) in [("plain", "plain"), ("folder.so.1", "folder.so.1/libhsa-runtime64.so.1")] {
            let mut installation = FakeInstallation::new();
            let file = installation.sound(file);
            let place = installation.path(place);
            let found = match variable {
                None => installation.find(Some(&place)),
                Some(name) => {
                    installation.set(name, place);
                    installation.find(None)
                }
            };
            let found = found.unwrap();
            assert_eq!((&found.path, found.source), (&file, source));
            assert_eq!(found.attempts, [Attempt { source, path: file, failure: None }]);
        }
    }

    #[test]
    fn option_own_variable_that_of_iree_rocm_loader_is_the_order() {
        let mut installation = FakeInstallation::new();
        let source = |installation: &FakeInstallation, option: Option<&Path>| {
            installation.find_by(option, &[C_LIBRARY]).unwrap().source
        };
        let sound = installation.sound("named");
        assert_eq!(source(&installation, None), Source::Loader);
        installation.sound("rocm/lib64/libhsa-runtime64.so");
        assert_eq!(source(&installation, None), Source::Rocm);
        installation.sound("other-rocm/lib/libhsa-runtime64.so.1");
        installation.set(&ROCM_PATH, installation.path("other-rocm"));
        assert_eq!(source(&installation, None), Source::Variable(&ROCM_PATH));
        installation.set(&IREE_HAL_AMDGPU_LIBHSA_PATH, sound.clone());
        assert_eq!(source(&installation, None), Source::Variable(&IREE_HAL_AMDGPU_LIBHSA_PATH));
        installation.set(&AIE_HAL_LIBHSA_PATH, sound.clone());
        assert_eq!(source(&installation, None), Source::Variable(&AIE_HAL_LIBHSA_PATH));
        assert_eq!(source(&installation, Some(&sound)), Source::Option);
    }

    #[rstest]
    #[case::missing("nowhere/lib.so", "No such file or directory")]
    #[case::broken("broken", "file too short")]
    #[case::empty_folder("empty", "it has no libhsa-runtime64.so.1 and no libhsa-runtime64.so")]
    #[case::folder_with_a_broken_one("folder", "file too short")]
    fn a_named_library_that_fails_ends_the_search(#[case] name: &str, #[case] cause: &str) {
        let mut installation = FakeInstallation::new();
        installation.sound("rocm/lib/libhsa-runtime64.so.1");
        installation.broken("broken");
        installation.broken("folder/libhsa-runtime64.so.1");
        fs::create_dir(installation.path("empty")).unwrap();
        installation.set(&AIE_HAL_LIBHSA_PATH, installation.folder.path().join(name));
        let error = installation.find(None).unwrap_err();
        assert!(matches!(error, LibraryError::Explicit { source_name: Source::Variable(&AIE_HAL_LIBHSA_PATH), .. }));
        let text = error.to_string();
        assert!(text.starts_with("cannot load the runtime library that AIE_HAL_LIBHSA_PATH names: /"), "{text}");
        assert!(text.contains(name) && text.contains(cause), "{text}");
        assert!(
            text.ends_with("correct that or the path, or remove the path to search for libhsa-runtime64.so.1"),
            "{text}"
        );
    }

    #[test]
    fn a_named_library_is_recognised_by_its_file() {
        let installation = FakeInstallation::new();
        let sound = installation.sound("folder/libhsa-runtime64.so.1");
        let loaded = fs::canonicalize(&sound).unwrap();
        let named = |path: PathBuf| Named { source: Source::Uri, path };
        assert!(named(sound.clone()).is(&loaded) && named(installation.path("folder")).is(&loaded));
        assert!(!named(installation.broken("other")).is(&loaded) && !named(installation.path("absent")).is(&loaded));
        let error = find(Some(&named(installation.path("absent"))), &Environment::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot load the runtime library that the device URI's `libhsa` names: /"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_is_searched_for_both_names() {
        let installation = FakeInstallation::new();
        installation.broken("folder/libhsa-runtime64.so.1");
        let sound = installation.sound("folder/libhsa-runtime64.so");
        let found = installation.find(Some(&installation.path("folder"))).unwrap();
        assert_eq!(found.path, sound);
        let failures: Vec<bool> = found.attempts.iter().map(|attempt| attempt.failure.is_some()).collect();
        assert_eq!(failures, [true, false]);
        // Two names of one file are one attempt.
        symlink(installation.broken("linked/libhsa-runtime64.so.1"), installation.path("linked/libhsa-runtime64.so"))
            .unwrap();
        assert_eq!(installation.find(Some(&installation.path("linked"))).unwrap_err().attempts().len(), 1);
    }

    #[test]
    fn without_a_library_every_attempt_is_reported() {
        let mut installation = FakeInstallation::new();
        installation.broken("rocm/lib/libhsa-runtime64.so.1");
        installation.set(&ROCM_PATH, installation.path("old-rocm"));
        installation.set(&AIE_HAL_LIBHSA_PATH, PathBuf::new());
        let error = installation.find(None).unwrap_err();
        let sources: Vec<Source> = error.attempts().iter().map(|attempt| attempt.source).collect();
        let rocm_path = Source::Variable(&ROCM_PATH);
        assert_eq!(sources, [rocm_path, rocm_path, Source::Rocm, Source::Rocm, Source::Loader]);
        assert!(matches!(error, LibraryError::NotFound { .. }));
        let text = error.to_string();
        assert!(text.starts_with("cannot load libhsa-runtime64.so.1, AMD's ROCR; tried: "), "{text}");
        for expected in [
            "/old-rocm/lib (from ROCM_PATH): No such file or directory",
            "/rocm/lib/libhsa-runtime64.so.1 (from ROCm's usual folder): ",
            "file too short",
            "libno-such-library.so.1 (from the system's loader): libno-such-library.so.1: cannot open shared object file",
            "install ROCm 7.0 to 7.14 or Debian's libhsa-runtime64-1 (7.2 or newer), or set AIE_HAL_LIBHSA_PATH",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn the_loaders_choice_is_reported_as_a_file() {
        let found = FakeInstallation::new().find_by(None, &["libno-such-library.so.1", C_LIBRARY]).unwrap();
        assert!(found.path.is_absolute() && found.path.is_file(), "{}", found.path.display());
        assert_eq!(found.attempts.last().unwrap().path, Path::new(C_LIBRARY));
    }

    #[test]
    fn a_plan_loads_nothing_and_has_no_folder_twice() {
        let plan = plan(&THIS_MACHINE, None, &Environment::from_pairs([("ROCM_PATH", ROCM_FOLDER)]));
        assert!(plan.iter().all(|candidate| candidate.source != Source::Rocm), "{plan:?}");
        let loader: Vec<&Path> =
            plan.iter().filter(|c| c.source == Source::Loader).map(|candidate| candidate.path.as_path()).collect();
        assert_eq!(loader, NAMES.map(Path::new));
        let installation = FakeInstallation::new();
        let broken = installation.broken("broken");
        let environment = Environment::from_pairs([("AIE_HAL_LIBHSA_PATH", "/elsewhere")]);
        for source in [Source::Option, Source::Uri] {
            let named = Named { source, path: broken.clone() };
            let explicit = super::plan(&THIS_MACHINE, Some(&named), &environment);
            assert_eq!(explicit, [Attempt { source, path: broken.clone(), failure: None }]);
        }
    }
}
