//! Finds the executable of the reference worker.
//!
//! The places are given by the caller, who knows the environment and which file this code was linked into.

use crate::installation;
use crate::settings::GGML_HSA_JIT_WORKER;
use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Name of the reference worker's executable.
pub const WORKER_NAME: &str = "ggml-hsa-jit-worker";

/// There is no worker.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error(
    "cannot find the program that compiles kernels, {WORKER_NAME}; tried: {attempts}; put it beside the library, or name it in \
     {GGML_HSA_JIT_WORKER}"
)]
pub struct LocateError {
    /// Every place and why it was not used.
    pub attempts: String,
}

/// Where to look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerPlaces {
    /// Value of `GGML_HSA_JIT_WORKER`; empty is ignored.
    pub variable: Option<OsString>,
    /// The library or executable that has this code.
    pub image: Option<PathBuf>,
    /// Value of `PATH`. Relative directories in it are not used.
    pub path: Option<OsString>,
}

impl WorkerPlaces {
    /// The worker, as an absolute path. A path that was given must work: nothing else is tried then. Otherwise it is the one
    /// beside the image, else the one installed with it, else the first in `PATH`.
    ///
    /// # Errors
    /// [`LocateError`] with every place that was tried.
    pub fn find(self) -> Result<PathBuf, LocateError> {
        let named = self.variable.filter(|value| !value.is_empty()).map(PathBuf::from);
        let (mut places, mut attempts) = (Vec::new(), Vec::new());
        match (&named, self.image.as_deref().and_then(Path::parent)) {
            (Some(path), _) => places.push((path.clone(), format!("named by {GGML_HSA_JIT_WORKER}"))),
            (None, Some(directory)) => {
                places.push((directory.join(WORKER_NAME), "beside this library".to_owned()));
                let installed = installation::program(directory, WORKER_NAME);
                places.extend(installed.map(|path| (path, "installed with this library".to_owned())));
            }
            (None, None) => attempts.push("beside this library: its own path is unknown".to_owned()),
        }
        for (path, place) in places {
            match rejection(&path) {
                // The worker is started in another folder.
                None => return Ok(std::path::absolute(&path).unwrap_or(path)),
                Some(reason) => attempts.push(format!("{} ({place}): {reason}", path.display())),
            }
        }
        if named.is_some() {
            return Err(LocateError { attempts: attempts.join("; ") });
        }
        let path = self.path.unwrap_or_default();
        let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
        if let Some(found) = directories.map(|d| d.join(WORKER_NAME)).find(|path| rejection(path).is_none()) {
            return Ok(found);
        }
        attempts.push(format!("PATH ({}): no executable {WORKER_NAME} in it", path.display()));
        Err(LocateError { attempts: attempts.join("; ") })
    }
}

/// Why `path` cannot be run, as far as can be known beforehand.
fn rejection(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Err(error) => Some(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Some("it is not a file".to_owned()),
        Ok(_) => access(path, Access::EXEC_OK).err().map(|error| format!("it cannot be executed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn executable(directory: &Path) -> PathBuf {
        let path = directory.join(WORKER_NAME);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn places_are_tried_in_order() {
        let [variable, image, path] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let workers = [&variable, &image, &path].map(|directory| executable(directory.path()));
        for (first, worker) in workers.iter().enumerate() {
            let places = WorkerPlaces {
                variable: Some(if first == 0 { workers[0].clone().into() } else { "".into() }),
                image: (first <= 1).then(|| image.path().join("libggml-hsa.so")),
                path: Some(path.path().into()),
            };
            assert_eq!(&places.find().unwrap(), worker);
        }
    }

    #[test]
    fn the_worker_of_an_installation_is_found() {
        let prefix = tempfile::tempdir().unwrap();
        std::fs::create_dir(prefix.path().join("bin")).unwrap();
        let worker = executable(&prefix.path().join("bin"));
        let image = Some(prefix.path().join("lib/libggml-hsa.so"));
        assert_eq!(WorkerPlaces { image, ..WorkerPlaces::default() }.find().unwrap(), worker);
    }

    #[test]
    fn a_named_path_that_fails_is_an_error_and_no_other_is_tried() {
        let directory = tempfile::tempdir().unwrap();
        executable(directory.path());
        let path = Some(directory.path().as_os_str().to_owned());
        let wrong = directory.path().join("absent");
        let places = WorkerPlaces { variable: Some(wrong.clone().into()), image: None, path };
        let text = places.find().unwrap_err().to_string();
        assert!(text.contains(GGML_HSA_JIT_WORKER.name) && text.contains(&wrong.display().to_string()), "{text}");
        let places = WorkerPlaces { variable: Some(directory.path().into()), ..WorkerPlaces::default() };
        assert!(places.find().unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn the_error_lists_every_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let plain = executable(directory.path());
        std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
        let image = Some(directory.path().join("libggml-hsa.so"));
        let places = WorkerPlaces { variable: None, image, path: Some("/nonexistent-directory:.".into()) };
        let text = places.find().unwrap_err().to_string();
        for part in
            ["beside this library", "cannot be executed", "PATH (/nonexistent-directory:.)", GGML_HSA_JIT_WORKER.name]
        {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}
