//! Finds the helper's executable.
//!
//! Cargo puts it beside the library; where it is installed is said in [`aie_hal::installation`].

use super::StartError;
use aie_hal::Environment;
use aie_hal::environment::table::{AIE_HAL_RUNTIME_HOST, PATH};
use aie_hal::installation;
use rustix::fs::{Access, access};
use std::ffi::{CStr, OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the helper's executable.
pub const HOST_NAME: &str = "aie-runtime-host";

/// What the search depends on, so that it can be tried without changing the process.
pub(super) struct Places {
    /// What the caller asked for.
    pub option: Option<PathBuf>,
    /// Value of [`AIE_HAL_RUNTIME_HOST`].
    pub variable: Option<OsString>,
    /// The library or executable that has this code.
    pub image: Option<PathBuf>,
    /// Value of `PATH`.
    pub path: Option<OsString>,
}

impl Places {
    pub fn of_this_process(option: Option<PathBuf>) -> Self {
        let environment = Environment::process();
        Self {
            option,
            variable: environment.non_empty(&AIE_HAL_RUNTIME_HOST).map(OsStr::to_owned),
            image: image_path(),
            path: environment.get(&PATH).map(OsStr::to_owned),
        }
    }

    /// The helper. A path that was given must work: nothing else is tried then.
    pub fn find(self) -> Result<PathBuf, StartError> {
        let mut attempts = Vec::new();
        let named = self.option.map(|path| ("the option", path));
        let named = named.or_else(|| self.variable.map(|path| (AIE_HAL_RUNTIME_HOST.name(), path.into())));
        if let Some((origin, path)) = named {
            return match refusal(&path) {
                // A name without a directory is a file here, not something to search for.
                None => Ok(std::path::absolute(&path).unwrap_or(path)),
                Some(reason) => {
                    attempts.push(format!("{} (named by {origin}): {reason}", path.display()));
                    Err(StartError::NotFound { attempts: attempts.join("; ") })
                }
            };
        }
        match self.image.as_deref().and_then(Path::parent) {
            Some(directory) => {
                let beside = Some((directory.join(HOST_NAME), "beside this library"));
                let installed = installation::program(directory, HOST_NAME);
                let installed = installed.map(|path| (path, "installed with this library"));
                for (path, place) in beside.into_iter().chain(installed) {
                    match refusal(&path) {
                        None => return Ok(path),
                        Some(reason) => attempts.push(format!("{} ({place}): {reason}", path.display())),
                    }
                }
            }
            None => attempts.push("beside this library: its own path is unknown".to_owned()),
        }
        let path = self.path.unwrap_or_default();
        let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
        if let Some(found) = directories.map(|d| d.join(HOST_NAME)).find(|path| refusal(path).is_none()) {
            return Ok(found);
        }
        attempts.push(format!("PATH ({}): no executable {HOST_NAME} in it", path.display()));
        Err(StartError::NotFound { attempts: attempts.join("; ") })
    }
}

/// Why `path` cannot be run, as far as can be told beforehand.
fn refusal(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Err(error) => Some(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Some("it is not a file".to_owned()),
        Ok(_) => access(path, Access::EXEC_OK).err().map(|error| format!("it cannot be executed: {error}")),
    }
}

/// The shared library or executable that this code was linked into; its helpers are looked for beside it.
pub fn image_path() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr only compares the address, which is that of a function here, and writes a Dl_info to the given place.
    let found = unsafe { libc::dladdr(image_path as *const libc::c_void, info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: All fields of Dl_info are addresses, for which zeros are a value; dladdr has overwritten them.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: dladdr names the image by a C string that lives as long as the image is loaded: this code is in it.
    let name = unsafe { CStr::from_ptr(name) };
    // The name of an executable is what it was started as, which may be found by nobody.
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    path.canonicalize().ok().or_else(|| std::env::current_exe().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::os::unix::fs::PermissionsExt;

    fn executable(directory: &Path) -> PathBuf {
        let path = directory.join(HOST_NAME);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    fn nowhere() -> Places {
        Places { option: None, variable: None, image: None, path: None }
    }

    #[test]
    fn this_code_is_in_the_test_executable() {
        assert_eq!(image_path(), Some(std::env::current_exe().unwrap().canonicalize().unwrap()));
    }

    #[test]
    fn places_are_tried_in_order() {
        let [option, variable, image, path] = [(); 4].map(|()| tempfile::tempdir().unwrap());
        let hosts = [&option, &variable, &image, &path].map(|directory| executable(directory.path()));
        let all = |first: usize| Places {
            option: (first == 0).then(|| hosts[0].clone()),
            variable: (first <= 1).then(|| hosts[1].clone().into()),
            image: (first <= 2).then(|| image.path().join("libggml-hsa.so")),
            path: Some(path.path().into()),
        };
        for (first, host) in hosts.iter().enumerate() {
            assert_eq!(&all(first).find().unwrap(), host);
        }
    }

    #[rstest]
    #[case::installed("lib/x86_64-linux-gnu", true)]
    #[case::not_installed("target/release", false)]
    fn programs_of_the_same_installation_are_found(#[case] libraries: &str, #[case] found: bool) {
        let prefix = tempfile::tempdir().unwrap();
        std::fs::create_dir(prefix.path().join("bin")).unwrap();
        let host = executable(&prefix.path().join("bin"));
        let image = Some(prefix.path().join(libraries).join("libggml-hsa.so"));
        let result = Places { image, ..nowhere() }.find();
        assert_eq!(result.ok(), found.then_some(host));
    }

    #[test]
    fn a_named_path_that_fails_is_an_error_and_no_other_is_tried() {
        let directory = tempfile::tempdir().unwrap();
        executable(directory.path());
        let path = || Some(directory.path().as_os_str().to_owned());
        let wrong = directory.path().join("absent");
        let error = Places { variable: Some(wrong.clone().into()), path: path(), ..nowhere() }.find().unwrap_err();
        let text = error.to_string();
        assert!(text.contains(AIE_HAL_RUNTIME_HOST.name()) && text.contains(&wrong.display().to_string()), "{text}");
        let error = Places { option: Some(directory.path().into()), path: path(), ..nowhere() }.find().unwrap_err();
        assert!(error.to_string().contains("not a file"), "{error}");
    }

    #[test]
    fn the_error_lists_every_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let plain = executable(directory.path());
        std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
        let places = Places {
            image: Some(directory.path().join("libggml-hsa.so")),
            path: Some("/nonexistent-directory".into()),
            ..nowhere()
        };
        let text = places.find().unwrap_err().to_string();
        for part in
            ["beside this library", "cannot be executed", "PATH (/nonexistent-directory)", AIE_HAL_RUNTIME_HOST.name()]
        {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}
