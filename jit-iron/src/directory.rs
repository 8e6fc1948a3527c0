//! Kernels in a directory of the user's: `<directory>/<arch>/<name>.pdi` and `<name>_insts.bin`.
//!
//! The layout is the C++ ggml-hsa backend's. A kernel needs both files; half of one is ignored with a warning, because it may
//! still be being written. Newer versions of that backend have `<name>.hsaco` instead ([`aie_hal::format::hsaco`]), which is read
//! where there is no PDI. Damaged files are errors: replacing a kernel that the user put there on purpose would hide the
//! damage.

use crate::kernel_files::{KernelFiles, assemble, read};
use crate::manifest::Manifest;
use crate::settings::GGML_HSA_KERNEL_DIR;
use crate::wanted::{LONGEST, Wanted};
use aie_hal::KernelArtifact;
use aie_hal::format::hsaco::{Hsaco, HsacoCode, HsacoContent};
use aie_hal::format::kernel_elf::KernelElf;
use aie_ops::Tensor;
use aie_ops::artifact::{DescriptionError, read_description};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};
use thiserror::Error;

/// A kernel directory, or a kernel in it, cannot be used.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
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

/// A directory of kernels. Files are looked up on demand; nothing is listed or watched.
#[derive(Debug, Clone)]
pub struct KernelDirectory {
    path: PathBuf,
}

impl KernelDirectory {
    /// Uses `path`, a directory. One that does not exist has no kernels, until it does.
    ///
    /// # Errors
    /// [`DirectoryError::Directory`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        let path = path.into();
        let reason = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => return Ok(Self { path }),
            Ok(_) => "it is not a directory".into(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(
                    "kernel directory {} ({GGML_HSA_KERNEL_DIR}) does not exist, so it has no kernels",
                    path.display()
                );
                return Ok(Self { path });
            }
            Err(error) => error.to_string(),
        };
        Err(DirectoryError::Directory { path, reason })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel, if there is one.
    ///
    /// A kernel that has a manifest has to fit it. Parameters of some operations are not part of the name: the manifest, the
    /// longer file name of a store, or the description in a reference artifact has them, and a kernel with other ones is
    /// skipped. Code without any of these is accepted unchecked, as by the C++ backend, unless a source shares memory
    /// ([`Tensor::shares_memory`]), whose strides are unknown too.
    ///
    /// # Errors
    /// [`DirectoryError::File`] when a file cannot be read, is damaged, or is for another generation or operation.
    pub fn load(&self, wanted: &Wanted<'_>) -> Result<Option<KernelArtifact>, DirectoryError> {
        let folder = self.path.join(&wanted.arch.name);
        let (stem, name) = (wanted.stem(), wanted.name.as_str());
        if let Some(artifact) = load(&KernelFiles::new(&folder, stem.as_str()), wanted)? {
            return Ok(Some(artifact));
        }
        // A name that is too long for a file has no other.
        if stem == name || name.len() > LONGEST {
            return Ok(None);
        }
        load(&KernelFiles::new(&folder, name), wanted)
    }
}

/// The kernel in `files`, which may have any name.
pub(crate) fn load(files: &KernelFiles, wanted: &Wanted<'_>) -> Result<Option<KernelArtifact>, DirectoryError> {
    let Wanted { node, arch, name, .. } = wanted;
    let fault = |(path, reason)| DirectoryError::File { path, reason };
    let content = files.read(arch.limits.device_heap_bytes).map_err(fault)?;
    let Some(content) = content else { return load_hsaco(files, wanted) };
    let Some(instructions) = content.instructions else {
        let (there, missing) = (files.pdi(), files.instructions());
        tracing::warn!("{} exists but {} does not: the kernel is ignored", there.display(), missing.display());
        return Ok(None);
    };
    // A JSON file that is not a manifest is ignored.
    let manifest = content.manifest.and_then(|text| Manifest::parse(&text).ok());
    let artifact = assemble(name, arch, content.pdi, instructions, manifest.as_ref(), Some(node));
    let artifact = artifact.map_err(|wrong| fault(files.fault(wrong)))?;
    suitable(artifact, manifest.as_ref(), &files.pdi(), wanted)
}

/// The kernel in a code object: the one of this name, or the only one, since files may have been renamed.
fn load_hsaco(files: &KernelFiles, wanted: &Wanted<'_>) -> Result<Option<KernelArtifact>, DirectoryError> {
    let (path, Wanted { node, arch, name, .. }) = (files.hsaco(), wanted);
    let wrong = |reason| DirectoryError::File { path: path.clone(), reason };
    let file = read(&path, arch.limits.device_heap_bytes).map_err(|(_, reason)| wrong(reason))?;
    let Some((bytes, _)) = file else { return Ok(None) };
    let hsaco = Hsaco::parse(&bytes).map_err(|error| wrong(error.to_string()))?;
    let kernels = hsaco.kernels(&arch.name);
    let kernel = match kernels {
        [] => {
            let others = hsaco.generations().collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("it has kernels for {others} and none for {}", arch.name)));
        }
        [only] => only,
        several => several.iter().find(|kernel| kernel.name == name).ok_or_else(|| {
            let names: Vec<_> = several.iter().map(|kernel| kernel.name).collect();
            wrong(format!("none of its {} kernels is {name}: {}", names.len(), names.join(", ")))
        })?,
    };
    let (pdi, instructions) = match kernel.content {
        HsacoContent::Code(HsacoCode { pdi, instructions }) => (Arc::from(pdi), Arc::from(instructions)),
        HsacoContent::WholeElf(elf) => match KernelElf::parse(elf) {
            Ok(KernelElf { pdi, instructions, .. }) => (pdi.into(), instructions.into()),
            // Not damage: XRT loads more of these than drivers here do.
            Err(reason) => {
                tracing::warn!(
                    "{} has a whole ELF that cannot be loaded ({reason}): the kernel is ignored",
                    path.display()
                );
                return Ok(None);
            }
        },
    };
    let artifact = assemble(name, arch, pdi, instructions, None, Some(node));
    suitable(artifact.map_err(|(_, reason)| wrong(reason))?, None, &path, wanted)
}

/// The kernel from the file `path`, unless it is for a node with other parameters.
fn suitable(
    artifact: KernelArtifact,
    manifest: Option<&Manifest>,
    path: &Path,
    wanted: &Wanted<'_>,
) -> Result<Option<KernelArtifact>, DirectoryError> {
    let other = manifest.is_some_and(|manifest| !wanted.is_of(&manifest.node));
    let ignored = match read_description(&artifact) {
        Ok(description) if other || !wanted.is_of(&description.node) => "is the same operation with other parameters",
        Err(DescriptionError::Compiled { .. }) if other => "is the same operation with other parameters",
        // The name says that a source is not contiguous, and not how; no design of the C++ backend reads such a source.
        Err(DescriptionError::Compiled { .. })
            if manifest.is_none() && wanted.node.inputs().any(Tensor::shares_memory) =>
        {
            "does not record the strides it was built for"
        }
        Ok(_) | Err(DescriptionError::Compiled { .. }) => return Ok(Some(artifact)),
        Err(error) => return Err(DirectoryError::File { path: path.to_owned(), reason: error.to_string() }),
    };
    tracing::warn!("{} {ignored}: the kernel is ignored", path.display());
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::{hsaco, pdi};
    use aie_hal::{Arch, ArchRegistry};
    use aie_ops::artifact::reference_artifact;
    use aie_ops::name::kernel_name;
    use aie_ops::{DataType, Node, OpParams, Operation, table};
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

    /// A directory with the kernel of the sum of 64 elements.
    struct Rig {
        root: tempfile::TempDir,
        arch: Arc<Arch>,
        op: &'static dyn Operation,
        node: Node,
        name: String,
    }

    impl Rig {
        fn new((op, node): (&'static dyn Operation, Node)) -> Self {
            let (root, arch) = (tempfile::tempdir().unwrap(), arch("aie2"));
            let name = put(root.path(), op, &node, &arch);
            Self { root, arch, op, node, name }
        }

        fn load(&self) -> Result<Option<KernelArtifact>, DirectoryError> {
            let wanted = Wanted::of(self.op, &self.node, &self.arch);
            KernelDirectory::open(self.root.path()).unwrap().load(&Wanted { name: self.name.clone(), ..wanted })
        }

        fn error(&self) -> String {
            self.load().unwrap_err().to_string()
        }

        fn path(&self, end: &str) -> PathBuf {
            self.root.path().join("aie2").join(format!("{}{end}", self.name))
        }

        /// Replaces the description by code for the array.
        fn compile(&self) {
            let mut cdo = CdoBuilder::new();
            cdo.write(0x0023_2000, 1);
            fs::write(self.path(".pdi"), pdi::write(&cdo).unwrap()).unwrap();
        }
    }

    impl Rig {
        /// Puts a code object in the place of PDI and stream: the kernel under these names, for this generation.
        fn pack(&self, generation: &str, names: &[&str]) {
            let files = [".pdi", "_insts.bin"].map(|end| self.path(end));
            let [pdi, instructions] = files.each_ref().map(|path| fs::read(path).unwrap());
            files.iter().for_each(|path| fs::remove_file(path).unwrap());
            let code = HsacoCode { pdi: &pdi, instructions: &instructions };
            let entries: Vec<_> =
                names.iter().map(|name| hsaco::HsacoEntry { name, columns: 1, arguments: 3, code }).collect();
            fs::write(self.path(".hsaco"), hsaco::write(generation, &entries).unwrap()).unwrap();
        }
    }

    #[rstest]
    #[case::by_name(&["mul-64f32-64f32-64f32", "add-64f32-64f32-64f32"])]
    #[case::the_only_one(&["add_f32_64"])]
    fn a_code_object_is_a_kernel(#[case] names: &[&str]) {
        let rig = Rig::new(sum(64));
        let expected = rig.load().unwrap().unwrap();
        rig.pack("aie2", names);
        let found = rig.load().unwrap().unwrap();
        assert_eq!((found.name(), found.identity()), (expected.name(), expected.identity()));
    }

    #[test]
    fn pdi_and_stream_precede_a_code_object() {
        let rig = Rig::new(sum(64));
        fs::write(rig.path(".hsaco"), "no code object").unwrap();
        assert!(rig.load().unwrap().is_some());
    }

    #[test]
    fn a_code_object_without_the_kernel_is_an_error() {
        let rig = Rig::new(sum(64));
        rig.pack("aie2p", &["add-64f32-64f32-64f32"]);
        assert!(
            rig.error().contains("it has kernels for aie2p and none for aie2; replace the file"),
            "{}",
            rig.error()
        );
        let rig = Rig::new(sum(64));
        rig.pack("aie2", &["one", "two"]);
        let expected = "none of its 2 kernels is add-64f32-64f32-64f32: one, two";
        assert!(rig.error().contains(expected), "{}", rig.error());
        fs::write(rig.path(".hsaco"), "no code object").unwrap();
        assert!(rig.error().contains("expected a 64-bit ELF"), "{}", rig.error());
    }

    #[test]
    fn a_damaged_kernel_in_a_code_object_is_an_error() {
        let rig = Rig::new(sum(64));
        fs::write(rig.path("_insts.bin"), [1; 16]).unwrap();
        rig.pack("aie2", &["add-64f32-64f32-64f32"]);
        assert!(rig.error().contains(".hsaco: kernel add-64f32-64f32-64f32: its instructions"), "{}", rig.error());
    }

    /// A 32-bit ELF of the kernel's files, in the place of its instructions.
    fn packed_as_an_elf(sections: [&str; 2]) -> Rig {
        let rig = Rig::new(sum(64));
        let [pdi, instructions] = [".pdi", "_insts.bin"].map(|end| fs::read(rig.path(end)).unwrap());
        let names = format!("\0{}\0{}\0", sections[0], sections[1]);
        let (first, second) = (52 + names.len(), 52 + names.len() + pdi.len());
        let headers = [
            [0; 6],
            [1, 1, 0, 0, first, pdi.len()],
            [sections[0].len() + 2, 1, 0, 0, second, instructions.len()],
            [0, 3, 0, 0, 52, names.len()],
        ];
        let mut elf = b"\x7FELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\0\x80\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        elf.extend((second as u32 + instructions.len() as u32).to_le_bytes());
        elf.extend([0, 0, 0, 0, 52, 0, 0, 0, 0, 0, 40, 0, 4, 0, 3, 0]);
        for part in [names.as_bytes(), &pdi, &instructions] {
            elf.extend(part);
        }
        for header in headers {
            elf.extend(header.iter().chain(&[0; 4]).flat_map(|word| (*word as u32).to_le_bytes()));
        }
        fs::write(rig.path("_insts.bin"), elf).unwrap();
        rig.pack("aie2", &["add"]);
        let path = rig.path(".hsaco");
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(4).position(|window| window == b"AIEK").unwrap();
        bytes[at + 60..at + 68].fill(0);
        bytes[at + 76] = 1;
        fs::write(&path, bytes).unwrap();
        rig
    }

    #[test]
    fn a_whole_elf_in_a_code_object_is_a_kernel() {
        let expected = Rig::new(sum(64)).load().unwrap().unwrap();
        let found = packed_as_an_elf([".pdi.1", ".ctrltext.0"]).load().unwrap().unwrap();
        assert_eq!((found.name(), found.identity()), (expected.name(), expected.identity()));
    }

    #[test]
    fn a_whole_elf_that_is_another_kind_of_kernel_is_ignored() {
        assert!(packed_as_an_elf([".pdi.1", ".ctrlpkt.0"]).load().unwrap().is_none());
    }

    #[test]
    fn both_files_make_a_kernel() {
        let mut rig = Rig::new(sum(64));
        let artifact = rig.load().unwrap().unwrap();
        assert_eq!((artifact.name(), artifact.arch()), ("add-64f32-64f32-64f32", "aie2"));
        let expected = reference_artifact(rig.op, &rig.node, &rig.arch).unwrap();
        assert_eq!(artifact.identity(), expected.identity());
        rig.name = "add-32f32-32f32-32f32".into();
        assert!(rig.load().unwrap().is_none());
    }

    #[rstest]
    #[case(".pdi")]
    #[case("_insts.bin")]
    fn half_a_kernel_is_none(#[case] missing: &str) {
        let rig = Rig::new(sum(64));
        fs::remove_file(rig.path(missing)).unwrap();
        assert!(rig.load().unwrap().is_none());
    }

    /// Every prefix of either file is rejected, and the message names the file.
    #[rstest]
    #[case(".pdi")]
    #[case("_insts.bin")]
    fn truncated_files_are_named(#[case] end: &str) {
        let rig = Rig::new(sum(64));
        let path = rig.path(end);
        let whole = fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(7) {
            fs::write(&path, &whole[..length]).unwrap();
            let error = rig.error();
            assert!(error.starts_with(&format!("kernel file {}: ", path.display())), "{length}: {error}");
            assert!(error.ends_with("replace the file or remove it"), "{error}");
        }
    }

    #[test]
    fn kernels_of_another_generation_are_rejected() {
        let mut rig = Rig::new(sum(64));
        fs::rename(rig.root.path().join("aie2"), rig.root.path().join("aie2p")).unwrap();
        rig.arch = arch("aie2p");
        let error = rig.error();
        assert!(error.contains("_insts.bin") && error.contains("generation"), "{error}");
    }

    #[test]
    fn kernels_with_too_many_arguments_are_rejected() {
        let mut rig = Rig::new(sum(64));
        rig.node.sources.pop();
        assert!(rig.error().contains("it uses 3 arguments, the operation has 2"), "{}", rig.error());
    }

    #[test]
    fn a_description_of_other_parameters_is_not_taken_but_compiled_code_is() {
        let mut rig = Rig::new(sum(64));
        rig.node.params.0[0] = 1;
        assert!(rig.load().unwrap().is_none());
        rig.compile();
        assert!(rig.load().unwrap().is_some());
    }

    #[test]
    fn code_that_does_not_tell_its_strides_is_not_taken_for_shared_memory() {
        let shared = Tensor { dtype: DataType::F32, ne: [2, 2, 2, 1], nb: [4, 4, 20, 40] };
        let output = Tensor::contiguous(DataType::F32, [1, 2, 2, 1]);
        let node = Node::new("SUM_ROWS", OpParams::default(), output, vec![Some(shared)]);
        let mut rig = Rig::new((table::lookup("SUM_ROWS").unwrap(), node.clone()));
        assert_eq!(rig.name, "sum_rows-1x2x2f32-2x2x2f32n");
        assert!(rig.load().unwrap().is_some());
        // A stride that is never walked does not matter.
        rig.node.sources = vec![Some(Tensor { nb: [4, 4, 20, 48], ..shared })];
        assert!(rig.load().unwrap().is_some());
        // Other strides of the same name.
        rig.node.sources = vec![Some(Tensor { nb: [4, 12, 12, 40], ..shared })];
        assert!(rig.load().unwrap().is_none());
        rig.node = node;
        rig.compile();
        assert!(rig.load().unwrap().is_none());
    }

    #[test]
    fn what_is_not_a_file_is_rejected() {
        let rig = Rig::new(sum(64));
        let path = rig.path(".pdi");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let reason = "it is not a regular file".into();
        assert_eq!(rig.load().unwrap_err(), DirectoryError::File { path, reason });
    }

    #[test]
    fn files_larger_than_the_heap_are_rejected() {
        let mut rig = Rig::new(sum(64));
        Arc::make_mut(&mut rig.arch).limits.device_heap_bytes = 100;
        assert!(rig.error().contains("larger than the device heap of 100 bytes"), "{}", rig.error());
    }

    #[test]
    fn a_directory_that_is_none_is_explained() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("kernels");
        assert_eq!(KernelDirectory::open(&missing).unwrap().path(), missing);
        fs::write(&missing, "").unwrap();
        let message = KernelDirectory::open(&missing).unwrap_err().to_string();
        assert!(message.starts_with(&format!("kernel directory {}: ", missing.display())), "{message}");
        assert!(message.contains("create it") && message.contains("unset GGML_HSA_KERNEL_DIR"), "{message}");
        assert!(message.contains("it is not a directory"), "{message}");
    }
}
