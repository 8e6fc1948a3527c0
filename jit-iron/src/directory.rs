//! Kernels in a directory of the user's: `<directory>/<arch>/<name>.pdi` and `<name>_insts.bin`.
//!
//! The layout is the C++ ggml-hsa backend's. A kernel needs both files; half of one is ignored with a warning, because it may
//! be on its way. Files that are there but damaged are errors: to replace a kernel that somebody put there on purpose by another
//! one would hide the damage.

use crate::cache::same_kernel;
use crate::kernel_files::{KernelFiles, LONGEST, check_arguments, kernel_stem};
use crate::manifest::Manifest;
use crate::settings::GGML_HSA_KERNEL_DIR;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::artifact::{DescriptionError, read_description};
use aie_ops::{Node, Operation, Tensor};
use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A kernel directory, or a kernel in it, cannot be used.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum DirectoryError {
    /// The directory itself.
    #[error(
        "kernel directory {}: {reason}; create it with one folder per generation (for example {}), or unset {GGML_HSA_KERNEL_DIR}",
        path.display(), path.join("aie2p").display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// One file.
    #[error("kernel file {}: {reason}; replace the file or remove it", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// A directory of kernels. Files are looked up when asked for; nothing is listed or watched.
#[derive(Debug, Clone)]
pub struct KernelDirectory {
    path: PathBuf,
}

impl KernelDirectory {
    /// Uses `path`, which must be a directory.
    ///
    /// # Errors
    /// [`DirectoryError::Directory`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        let path = path.into();
        let reason = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => return Ok(Self { path }),
            Ok(_) => "it is not a directory".into(),
            Err(error) => error.to_string(),
        };
        Err(DirectoryError::Directory { path, reason })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel `name` for a normalised node, if there is one.
    ///
    /// A kernel that has a manifest has to fit it. Parameters of some operations are not part of the name: the manifest, the
    /// longer file name of a store, or the description in a reference artifact tell them, and a kernel of other ones is not
    /// taken. Code without any of these does not tell its parameters and is taken as it is, as by the C++ backend, unless a source
    /// shares memory ([`Tensor::shares_memory`]), whose strides it does not tell either.
    ///
    /// # Errors
    /// [`DirectoryError::File`] when a file cannot be read, is damaged, or is for another generation or operation.
    pub fn load(
        &self,
        op: &dyn Operation,
        name: &str,
        node: &Node,
        arch: &Arch,
    ) -> Result<Option<KernelArtifact>, DirectoryError> {
        let folder = self.path.join(&arch.name);
        let stem = kernel_stem(op, node, name);
        if let Some(artifact) = load(&KernelFiles::new(&folder, stem.as_str()), op, name, node, arch)? {
            return Ok(Some(artifact));
        }
        // A name that is longer than file names can be has no other.
        if stem == name || name.len() > LONGEST {
            return Ok(None);
        }
        load(&KernelFiles::new(&folder, name), op, name, node, arch)
    }
}

/// The kernel of a node in `files`, which may have any name.
pub(crate) fn load(
    files: &KernelFiles,
    op: &dyn Operation,
    name: &str,
    node: &Node,
    arch: &Arch,
) -> Result<Option<KernelArtifact>, DirectoryError> {
    let content = files.read(arch.limits.device_heap_bytes).map_err(|(path, reason)| file(&path, reason))?;
    let Some(content) = content else { return Ok(None) };
    let Some(instructions) = content.instructions else {
        let (there, missing) = (files.pdi(), files.instructions());
        tracing::warn!("{} is there but {} is not: the kernel is ignored", there.display(), missing.display());
        return Ok(None);
    };
    let artifact = files.artifact(name, arch, content.pdi, instructions).map_err(|(path, error)| file(&path, error))?;
    check_arguments(&artifact, node).map_err(|reason| file(&files.instructions(), format!("it {reason}")))?;
    let other = |path: &Path| {
        tracing::warn!("{} is the same operation with other parameters: the kernel is ignored", path.display());
        Ok(None)
    };
    // A JSON file that is not a manifest is none of our business.
    let manifest = content.manifest.and_then(|text| Manifest::parse(&text).ok());
    let described = manifest.is_some();
    if let Some(manifest) = manifest {
        manifest.check(&artifact).map_err(|reason| file(&files.pdi(), reason))?;
        if !same_kernel(op, &manifest.node, node) {
            return other(&files.pdi());
        }
    }
    match read_description(&artifact) {
        Ok(description) if !same_kernel(op, &description.node, node) => other(&files.pdi()),
        // The name says that a source is not contiguous, and not how; no design of the C++ backend reads such a source.
        Err(DescriptionError::Compiled { .. }) if !described && node.inputs().any(Tensor::shares_memory) => {
            let path = files.pdi();
            tracing::warn!("{} does not tell the strides it was made for: the kernel is ignored", path.display());
            Ok(None)
        }
        Ok(_) | Err(DescriptionError::Compiled { .. }) => Ok(Some(artifact)),
        Err(error) => Err(file(&files.pdi(), error)),
    }
}

fn file(path: &Path, reason: impl ToString) -> DirectoryError {
    DirectoryError::File { path: path.into(), reason: reason.to_string() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::pdi;
    use aie_ops::artifact::reference_artifact;
    use aie_ops::name::kernel_name;
    use aie_ops::{DataType, OpParams, Tensor, table};
    use rstest::rstest;
    use std::sync::Arc;

    pub(crate) fn arch(name: &str) -> Arc<Arch> {
        ArchRegistry::builtin().get(name).unwrap()
    }

    pub(crate) fn sum(elements: usize) -> (&'static dyn Operation, Node) {
        let tensor = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
        let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
        (table::lookup("ADD").unwrap(), node)
    }

    /// Writes the reference artifact of a node as the directory expects it; returns its name.
    pub(crate) fn put(directory: &Path, op: &dyn Operation, node: &Node, arch: &Arch) -> String {
        let artifact = reference_artifact(op, node, arch).unwrap();
        let folder = directory.join(&arch.name);
        fs::create_dir_all(&folder).unwrap();
        let name = kernel_name(op, node);
        fs::write(folder.join(format!("{name}.pdi")), artifact.pdi()).unwrap();
        fs::write(folder.join(format!("{name}_insts.bin")), artifact.instructions()).unwrap();
        name
    }

    #[test]
    fn both_files_make_a_kernel() {
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2"));
        let directory = KernelDirectory::open(root.path()).unwrap();
        assert!(directory.load(op, "add-64f32-64f32-64f32", &node, &arch).unwrap().is_none());
        let name = put(root.path(), op, &node, &arch);
        let artifact = directory.load(op, &name, &node, &arch).unwrap().unwrap();
        assert_eq!((artifact.name(), artifact.arch()), ("add-64f32-64f32-64f32", "aie2"));
        assert_eq!(artifact.identity(), reference_artifact(op, &node, &arch).unwrap().identity());
    }

    #[rstest]
    #[case(".pdi")]
    #[case("_insts.bin")]
    fn half_a_kernel_is_none(#[case] missing: &str) {
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2p"));
        let name = put(root.path(), op, &node, &arch);
        fs::remove_file(root.path().join("aie2p").join(format!("{name}{missing}"))).unwrap();
        assert!(KernelDirectory::open(root.path()).unwrap().load(op, &name, &node, &arch).unwrap().is_none());
    }

    /// Every prefix of either file is refused, and the message names the file.
    #[rstest]
    #[case(".pdi")]
    #[case("_insts.bin")]
    fn truncated_files_are_named(#[case] end: &str) {
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2p"));
        let name = put(root.path(), op, &node, &arch);
        let directory = KernelDirectory::open(root.path()).unwrap();
        let path = root.path().join("aie2p").join(format!("{name}{end}"));
        let whole = fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(7) {
            fs::write(&path, &whole[..length]).unwrap();
            let error = directory.load(op, &name, &node, &arch).unwrap_err().to_string();
            assert!(error.starts_with(&format!("kernel file {}: ", path.display())), "{length}: {error}");
            assert!(error.ends_with("replace the file or remove it"), "{error}");
        }
    }

    #[test]
    fn kernels_of_another_generation_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        let name = put(root.path(), op, &node, &arch("aie2"));
        fs::rename(root.path().join("aie2"), root.path().join("aie2p")).unwrap();
        let directory = KernelDirectory::open(root.path()).unwrap();
        let error = directory.load(op, &name, &node, &arch("aie2p")).unwrap_err().to_string();
        assert!(error.contains("_insts.bin") && error.contains("generation"), "{error}");
    }

    #[test]
    fn kernels_with_too_many_arguments_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        let name = put(root.path(), op, &node, &arch("aie2"));
        let mut unary = node;
        unary.sources.pop();
        let error = KernelDirectory::open(root.path()).unwrap().load(op, &name, &unary, &arch("aie2")).unwrap_err();
        assert!(error.to_string().contains("it uses 3 arguments, the operation has 2"), "{error}");
    }

    #[test]
    fn a_description_of_other_parameters_is_not_taken_but_compiled_code_is() {
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2"));
        let name = put(root.path(), op, &node, &arch);
        let directory = KernelDirectory::open(root.path()).unwrap();
        let mut other = node;
        other.params.0[0] = 1;
        assert!(directory.load(op, &name, &other, &arch).unwrap().is_none());
        let mut cdo = CdoBuilder::new();
        cdo.write(0x0023_2000, 1);
        fs::write(root.path().join("aie2").join(format!("{name}.pdi")), pdi::write(&cdo).unwrap()).unwrap();
        assert!(directory.load(op, &name, &other, &arch).unwrap().is_some());
    }

    #[test]
    fn code_that_does_not_tell_its_strides_is_not_taken_for_shared_memory() {
        let root = tempfile::tempdir().unwrap();
        let arch = arch("aie2");
        let shared = Tensor { dtype: DataType::F32, ne: [2, 2, 2, 1], nb: [4, 4, 20, 40] };
        let output = Tensor::contiguous(DataType::F32, [1, 2, 2, 1]);
        let op = table::lookup("SUM_ROWS").unwrap();
        let node = Node::new("SUM_ROWS", OpParams::default(), output, vec![Some(shared)]);
        let name = put(root.path(), op, &node, &arch);
        assert_eq!(name, "sum_rows-1x2x2f32-2x2x2f32n");
        let directory = KernelDirectory::open(root.path()).unwrap();
        let load = |node: &Node| directory.load(op, &name, node, &arch).unwrap();
        assert!(load(&node).is_some());
        // Other strides of the same name.
        let mut other = node.clone();
        other.sources = vec![Some(Tensor { nb: [4, 4, 20, 48], ..shared })];
        assert!(load(&other).is_none());
        let mut cdo = CdoBuilder::new();
        cdo.write(0x0023_2000, 1);
        fs::write(root.path().join("aie2").join(format!("{name}.pdi")), pdi::write(&cdo).unwrap()).unwrap();
        assert!(load(&node).is_none());
    }

    #[test]
    fn what_is_not_a_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2"));
        let name = put(root.path(), op, &node, &arch);
        let path = root.path().join("aie2").join(format!("{name}.pdi"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = KernelDirectory::open(root.path()).unwrap().load(op, &name, &node, &arch).unwrap_err();
        assert_eq!(error, file(&path, "it is not a regular file"));
    }

    #[test]
    fn files_larger_than_the_heap_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let (op, node) = sum(64);
        let mut arch = Arch::clone(&arch("aie2"));
        let name = put(root.path(), op, &node, &arch);
        arch.limits.device_heap_bytes = 100;
        let error = KernelDirectory::open(root.path()).unwrap().load(op, &name, &node, &arch).unwrap_err();
        assert!(error.to_string().contains("larger than the device heap of 100 bytes"), "{error}");
    }

    #[test]
    fn a_directory_that_is_none_is_explained() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("kernels");
        let message = KernelDirectory::open(&missing).unwrap_err().to_string();
        assert!(message.starts_with(&format!("kernel directory {}: ", missing.display())), "{message}");
        assert!(message.contains("create it") && message.contains("unset GGML_HSA_KERNEL_DIR"), "{message}");
        fs::write(&missing, "").unwrap();
        let message = KernelDirectory::open(&missing).unwrap_err().to_string();
        assert!(message.contains("it is not a directory"), "{message}");
    }
}
