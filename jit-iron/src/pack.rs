//! Kernels of one generation in one file, to be built into a library.
//!
//! ```text
//! "AIEPACK1"  magic
//! u32         bytes of the index, little-endian
//! index       JSON: {"arch", "kernels": [{"stem", "manifest", "pdi": [offset, length], "instructions": [offset, length]}]}
//! data        the files, one after the other; offsets count from here
//! ```
//!
//! `ggml-hsa-gen-kernels --embed` writes `<directory>/<arch>.pack`; a build with `GGML_HSA_EMBED_KERNELS=<directory>` includes
//! them. The index is read when the library starts, kernels on demand.

use crate::kernel_files::{KernelFiles, assemble};
use crate::manifest::Manifest;
use crate::wanted::Wanted;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::Tensor;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;

const MAGIC: &[u8; 8] = b"AIEPACK1";
/// Ending of a pack's file name.
pub const ENDING: &str = "pack";
/// Largest kernel file that goes into a pack: more than any device heap holds.
const FILE_LIMIT: usize = 1 << 30;

/// A pack cannot be written or read.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackError {
    /// Its bytes are not a pack.
    #[error("kernel pack {name}: {reason}; rebuild it with ggml-hsa-gen-kernels --embed")]
    Damaged {
        /// File or generation.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A folder of kernels cannot be packed.
    #[error("kernels of {}: {reason}", path.display())]
    Folder {
        /// The folder or a file in it.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    arch: String,
    kernels: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    stem: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<Manifest>,
    pdi: (u32, u32),
    instructions: (u32, u32),
}

/// An opened pack. Thread-safe.
#[derive(Debug)]
pub struct KernelPack {
    arch: String,
    data: Cow<'static, [u8]>,
    kernels: HashMap<String, PackedKernel>,
}

#[derive(Debug)]
struct PackedKernel {
    manifest: Option<Manifest>,
    pdi: Range<usize>,
    instructions: Range<usize>,
}

impl KernelPack {
    /// Opens the pack in `bytes`; `name` is for messages.
    ///
    /// # Errors
    /// [`PackError::Damaged`].
    pub fn open(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, PackError> {
        let bytes = bytes.into();
        let damaged = |reason: &str| PackError::Damaged { name: name.into(), reason: reason.into() };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("it is not a kernel pack"))?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(|| damaged("it is truncated"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let index = rest.get(..length).ok_or_else(|| damaged("its index is truncated"))?;
        let index: Index = serde_json::from_slice(index).map_err(|error| damaged(&error.to_string()))?;
        let start = MAGIC.len() + 4 + length;
        let place = |(offset, length): (u32, u32)| {
            let begin = start + offset as usize;
            let range = begin..begin + length as usize;
            bytes.get(range.clone()).map(|_| range).ok_or_else(|| damaged("a kernel in it is truncated"))
        };
        let mut kernels = HashMap::with_capacity(index.kernels.len());
        for entry in index.kernels {
            let (pdi, instructions) = (place(entry.pdi)?, place(entry.instructions)?);
            kernels.insert(entry.stem, PackedKernel { manifest: entry.manifest, pdi, instructions });
        }
        Ok(Self { arch: index.arch, data: bytes, kernels })
    }

    /// The generation of its kernels.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// How many kernels it has.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// The PDIs of its kernels, in no order.
    pub fn pdis(&self) -> impl Iterator<Item = &[u8]> {
        self.kernels.values().map(|place| &self.data[place.pdi.clone()])
    }

    /// The kernel, if it is in the pack and was made for this node.
    ///
    /// # Errors
    /// [`PackError::Damaged`] when it is not a kernel for the generation.
    pub fn load(&self, wanted: &Wanted<'_>) -> Result<Option<KernelArtifact>, PackError> {
        let Wanted { node, arch, name, .. } = wanted;
        if arch.name != self.arch {
            return Ok(None);
        }
        let Some(place) = self.kernels.get(&wanted.stem()).or_else(|| self.kernels.get(name)) else {
            return Ok(None);
        };
        // Without a manifest a name does not say the strides of a source that shares memory.
        let same = match &place.manifest {
            Some(manifest) => wanted.is_of(&manifest.node),
            None => !node.inputs().any(Tensor::shares_memory),
        };
        if !same {
            return Ok(None);
        }
        let bytes = |range: &Range<usize>| self.data[range.clone()].into();
        let (pdi, instructions) = (bytes(&place.pdi), bytes(&place.instructions));
        let artifact = assemble(name, arch, pdi, instructions, place.manifest.as_ref(), Some(node));
        artifact
            .map(Some)
            .map_err(|(_, reason)| PackError::Damaged { name: self.arch.clone(), reason: format!("{name}: {reason}") })
    }
}

/// Makes the pack of the kernels in `folder`, which are for the generation `arch`, sorted by name, so that equal kernels make
/// equal packs. Returns its bytes and the number of kernels. Other files are skipped.
///
/// # Errors
/// [`PackError::Folder`]: a kernel cannot be read or is not valid, or they are too large for one pack.
pub fn pack(folder: &Path, arch: &Arch) -> Result<(Vec<u8>, usize), PackError> {
    let fault = |(path, reason)| PackError::Folder { path, reason };
    let reject = |path: &Path, reason: String| fault((path.into(), reason));
    let entries = fs::read_dir(folder).map_err(|error| reject(folder, error.to_string()))?;
    let mut stems = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| reject(folder, error.to_string()))?.path();
        if path.extension() == Some(OsStr::new("pdi")) {
            let stem = path.file_stem().and_then(OsStr::to_str);
            stems.push(stem.ok_or_else(|| reject(&path, "its name is not UTF-8".into()))?.to_owned());
        }
    }
    stems.sort_unstable();
    let (mut data, mut kernels) = (Vec::new(), Vec::new());
    for stem in stems {
        let files = KernelFiles::new(folder, stem.as_str());
        let content = files.read(FILE_LIMIT).map_err(fault)?;
        let Some(content) = content else { continue };
        let Some(instructions) = content.instructions else {
            return Err(reject(&files.instructions(), "it is missing, but its PDI exists".into()));
        };
        let manifest = content.manifest.and_then(|text| Manifest::parse(&text).ok());
        let artifact = assemble(&stem, arch, content.pdi, instructions, manifest.as_ref(), None);
        let artifact = artifact.map_err(|wrong| fault(files.fault(wrong)))?;
        let mut add = |bytes: &[u8]| {
            let place = u32::try_from(data.len()).ok().zip(u32::try_from(bytes.len()).ok());
            data.extend_from_slice(bytes);
            place.ok_or_else(|| reject(folder, "they exceed 4 GiB".into()))
        };
        let (pdi, instructions) = (add(artifact.pdi())?, add(artifact.instructions())?);
        kernels.push(Entry { stem, manifest, pdi, instructions });
    }
    let count = kernels.len();
    let index = serde_json::to_vec(&Index { arch: arch.name.clone(), kernels });
    let index = index.map_err(|error| reject(folder, error.to_string()))?;
    let length = u32::try_from(index.len()).map_err(|_| reject(folder, "there are too many".into()))?;
    Ok(([&MAGIC[..], &length.to_le_bytes(), &index, &data].concat(), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::{arch, put, sum};
    use crate::manifest::tests::described;

    fn folder() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let (artifact, manifest) = described(64);
        KernelFiles::new(root.path().join("aie2p"), artifact.name()).publish(&artifact, &manifest).unwrap();
        // As the C++ backend leaves it: without a manifest.
        let (op, node) = sum(32);
        put(root.path(), op, &node, &arch("aie2p"));
        root
    }

    #[test]
    fn packed_kernels_are_found() {
        let root = folder();
        let (bytes, count) = pack(&root.path().join("aie2p"), &arch("aie2p")).unwrap();
        let pack = KernelPack::open("test", bytes).unwrap();
        assert_eq!((count, pack.len(), pack.arch(), pack.is_empty()), (2, 2, "aie2p", false));
        for elements in [64, 32] {
            let ((op, node), wide, narrow) = (sum(elements), arch("aie2p"), arch("aie2"));
            let wanted = Wanted::of(op, &node, &wide);
            assert_eq!(pack.load(&wanted).unwrap().unwrap().name(), wanted.name);
            assert!(pack.load(&Wanted::of(op, &node, &narrow)).unwrap().is_none());
        }
        let ((op, mut node), arch) = (sum(64), arch("aie2p"));
        assert!(pack.load(&Wanted::of(op, &sum(65).1, &arch)).unwrap().is_none());
        // The manifest has parameters that this name has not.
        node.params.0[0] = 1;
        assert!(pack.load(&Wanted::of(op, &node, &arch)).unwrap().is_none());
    }

    #[test]
    fn every_prefix_and_every_flipped_byte_is_rejected_or_harmless() {
        let root = folder();
        let (bytes, _) = pack(&root.path().join("aie2p"), &arch("aie2p")).unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2p"));
        let wanted = Wanted::of(op, &node, &arch);
        let good = KernelPack::open("test", bytes.clone()).unwrap().load(&wanted).unwrap().unwrap();
        for length in 0..bytes.len() {
            KernelPack::open("test", bytes[..length].to_vec()).unwrap_err();
        }
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 0x20;
            let Ok(pack) = KernelPack::open("test", changed) else { continue };
            if let Ok(Some(artifact)) = pack.load(&wanted) {
                assert_eq!(artifact.identity(), good.identity(), "byte {position}");
            }
        }
    }

    #[test]
    fn what_is_no_kernel_is_not_packed() {
        let root = folder();
        let path = root.path().join("aie2p");
        fs::write(path.join("broken.pdi"), "").unwrap();
        let message = pack(&path, &arch("aie2p")).unwrap_err().to_string();
        assert!(message.contains("broken_insts.bin"), "{message}");
        fs::write(path.join("broken_insts.bin"), "").unwrap();
        assert!(pack(&path, &arch("aie2p")).unwrap_err().to_string().contains("broken.pdi"));
        assert!(pack(&root.path().join("no"), &arch("aie2p")).unwrap_err().to_string().contains("no: "));
    }
}
