//! The compiler that makes code for the array: IRON, in Python workers.
//!
//! A worker is `worker.py` of the IRON folder, run by the Python of the IRON environment; `docs/iron-toolchain.md` says what it
//! does. Designs are in `kernels/` beside it. Nothing here knows a version of IRON: the worker finds out, and says it in its
//! greeting, under which kernels are cached.

use crate::installation;
use crate::worker::{WorkerCommand, WorkerCompiler};
use aie_hal::artifact::Digest;
use aie_ops::compiler::CompileError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The worker's file in the IRON folder.
pub const WORKER: &str = "worker.py";
/// The designs' folder in the IRON folder.
pub const KERNELS: &str = "kernels";
/// The interpreter when none is named.
pub const PYTHON: &str = "python3";

/// The IRON folder cannot be used.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error(
    "no IRON designs in {}: {reason}; name the installed folder share/ggml-hsa/iron with GGML_HSA_IRON_DIR",
    directory.display()
)]
pub struct IronError {
    /// The folder.
    pub directory: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Where IRON is.
#[derive(Debug, Clone)]
pub struct IronPlaces {
    /// The folder with [`WORKER`].
    pub directory: PathBuf,
    /// The designs; [`KERNELS`] in `directory` when `None`.
    pub kernels: Option<PathBuf>,
    /// The interpreter; [`PYTHON`] on `PATH` when `None`.
    pub python: Option<PathBuf>,
}

/// The IRON folder that was installed with the library or program `image`; it may be missing.
pub fn installed(image: &Path) -> Option<PathBuf> {
    Some(installation::data(image.parent()?)?.join("iron"))
}

/// The IRON folder for the program `image`: what was installed with it, else that of the sources below which it was built. Where
/// there is neither, the place where it would be installed.
pub fn of_program(image: &Path) -> Option<PathBuf> {
    let sources = || image.ancestors().map(|folder| folder.join("jit-iron/iron"));
    let has_worker = |folder: &PathBuf| folder.join(WORKER).is_file();
    installed(image).into_iter().chain(sources()).find(has_worker).or_else(|| installed(image))
}

impl IronPlaces {
    /// A compiler of the designs, to which limits can be added. Starts nothing: whether the toolchain exists shows
    /// when a kernel is requested.
    ///
    /// # Errors
    /// [`IronError`]: there is no worker, or the designs cannot be read.
    pub fn compiler(&self) -> Result<WorkerCompiler, IronError> {
        let fail = |reason: String| IronError { directory: self.directory.clone(), reason };
        let worker = self.directory.join(WORKER);
        if !worker.is_file() {
            return Err(fail(format!("there is no {WORKER}")));
        }
        let kernels = self.kernels.clone().unwrap_or_else(|| self.directory.join(KERNELS));
        let digest = digest(&[&self.directory, &kernels]).map_err(|error| fail(error.to_string()))?;
        let python = self.python.clone().unwrap_or_else(|| PYTHON.into());
        let arguments = [worker.into_os_string(), "--kernels-dir".into(), kernels.clone().into_os_string()];
        let command = WorkerCommand { sweep_after_each: true, ..WorkerCommand::new(python, arguments) };
        // A design may use any other file there, so all of them count.
        let builder = WorkerCompiler::new("iron", command, digest).designs(&kernels);
        Ok(builder.requirement(move || has_designs(&kernels)))
    }
}

/// Whether there is a design, in a Python file of the folder.
fn has_designs(kernels: &Path) -> Result<(), CompileError> {
    let mut files = fs::read_dir(kernels).into_iter().flatten().flatten();
    let found = files.any(|file| file.path().extension().is_some_and(|ending| ending == "py"));
    let none = || CompileError::Unavailable(format!("there are no designs in {}", kernels.display()));
    if found { Ok(()) } else { Err(none()) }
}

/// SHA-256 over names and contents of what kernels are made from: Python and C++ files in `folders` and below.
fn digest(folders: &[&Path]) -> io::Result<String> {
    let mut files = Vec::new();
    for folder in folders {
        match collect(folder, folder, &mut files) {
            // Without designs there are no kernels, which the worker reports for each.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    files.sort();
    files.dedup();
    let mut all = Vec::new();
    for (name, path) in files {
        let text = fs::read(path)?;
        for part in [name.as_os_str().as_encoded_bytes(), &text] {
            all.extend((part.len() as u64).to_le_bytes());
            all.extend_from_slice(part);
        }
    }
    Ok(Digest::of(&all).to_string())
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
    const ENDINGS: [&str; 8] = ["py", "cc", "cpp", "c", "h", "hpp", "mlir", "json"];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            if name != "__pycache__" && name != "tests" {
                collect(root, &path, files)?;
            }
        } else if path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| ENDINGS.contains(&ending)) {
            files.push((path.strip_prefix(root).unwrap_or(&path).to_owned(), path.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::{arch, sum};
    use aie_ops::compiler::{CompileError, KernelCompiler};

    fn places() -> (tempfile::TempDir, IronPlaces) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(KERNELS)).unwrap();
        fs::write(root.path().join(WORKER), "").unwrap();
        fs::write(root.path().join("kernels/binary_ops.py"), "one").unwrap();
        let places = IronPlaces { directory: root.path().to_owned(), kernels: None, python: None };
        (root, places)
    }

    fn sources(places: &IronPlaces) -> String {
        places.compiler().unwrap().sources()
    }

    #[test]
    fn every_design_and_the_worker_count_as_sources() {
        let (root, places) = places();
        let first = sources(&places);
        fs::write(root.path().join("kernels/notes.txt"), "x").unwrap();
        fs::create_dir(root.path().join("kernels/__pycache__")).unwrap();
        fs::write(root.path().join("kernels/__pycache__/binary_ops.py"), "x").unwrap();
        assert_eq!(sources(&places), first);
        fs::write(root.path().join("kernels/binary_ops.py"), "two").unwrap();
        let second = sources(&places);
        assert_ne!(second, first);
        fs::write(root.path().join(WORKER), "changed").unwrap();
        let third = sources(&places);
        assert_ne!(third, second);
        fs::create_dir(root.path().join("kernels/core")).unwrap();
        fs::write(root.path().join("kernels/core/add.cc"), "").unwrap();
        assert_ne!(sources(&places), third);
    }

    #[test]
    fn a_folder_without_a_worker_is_reported() {
        let (root, places) = places();
        fs::remove_file(root.path().join(WORKER)).unwrap();
        let message = places.compiler().err().unwrap().to_string();
        assert!(message.contains("there is no worker.py") && message.contains("GGML_HSA_IRON_DIR"), "{message}");
    }

    #[test]
    fn without_designs_there_is_no_compiler() {
        let (root, mut places) = places();
        places.python = Some("/no/python3".into());
        let message = || places.compiler().unwrap().available().unwrap_err().to_string();
        assert!(message().contains("/no/python3"), "{}", message());
        fs::remove_file(root.path().join("kernels/binary_ops.py")).unwrap();
        assert_eq!(message(), format!("there are no designs in {}", root.path().join(KERNELS).display()));
    }

    #[test]
    fn a_python_that_is_not_there_is_not_available() {
        let (_root, mut places) = places();
        places.python = Some("/no/python3".into());
        let ((op, node), compiler) = (sum(64), places.compiler().unwrap());
        assert_eq!(compiler.identity(), "");
        let error = compiler.compile(op, &node, &arch("aie2")).unwrap_err();
        assert!(matches!(&error, CompileError::Unavailable(reason) if reason.contains("/no/python3")), "{error:?}");
    }
}
