//! Kernel artifacts: what a compiler makes and a device loads.
//!
//! An artifact is a PDI and an instruction stream that belong together. Both are validated when the
//! artifact is made, so that a driver never hands a damaged file, or one for another generation, to a
//! device: loading a design of the wrong generation blocks a real NPU until its driver resets it.

use crate::arch::Arch;
use crate::format::FormatError;
use crate::format::extent::{ArgumentExtent, ExtentError, argument_extents};
use crate::format::instructions::{AheadChannel, InstructionStream, KeptMemory, can_replace};
use crate::format::pdi::{self, Pdi};
use crate::format::reference;
use crate::stream_maker::StreamMaker;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fmt, fs, io};

/// Why two files do not make an artifact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The PDI is not valid.
    #[error("kernel {name}: its PDI cannot be used: {source}; delete the kernel's files and compile it again")]
    Pdi {
        /// Kernel name.
        name: Arc<str>,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The instruction stream is not valid.
    #[error("kernel {name}: its instructions cannot be used: {source}; delete the kernel's files and compile it again")]
    Instructions {
        /// Kernel name.
        name: Arc<str>,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The instruction stream is for another generation.
    #[error(
        "kernel {name}: expected instructions for {arch} (device generation {expected}), found device \
         generation {found}; compile the kernel for {arch}"
    )]
    Generation {
        /// Kernel name.
        name: Arc<str>,
        /// Requested generation.
        arch: Arc<str>,
        /// Its number in the instructions' header.
        expected: u8,
        /// The number there is.
        found: u8,
    },
}

/// Why [`KernelArtifact::from_files`] has no kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactFileError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not valid, or the instructions are for another generation.
    #[error("{}: {source}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ArtifactError,
    },
}

/// A SHA-256 digest. Displayed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// With which other PDIs of its design a kernel's stream works: those that have what it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The design, in its version and for its array.
    pub name: String,
    /// What the stream needs that not all of its PDIs have, in the design's words.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<String>,
    /// What the kernel's PDI has of this, at least all that the stream needs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub has: BTreeSet<String>,
}

/// A kernel ready to be loaded. Immutable, thread-safe, and cheap to clone: clones share the bytes.
#[derive(Clone)]
pub struct KernelArtifact {
    name: Arc<str>,
    arch: Arc<str>,
    pdi: Arc<[u8]>,
    instructions: Arc<[u8]>,
    argument_count: usize,
    operation_count: usize,
    charged_operations: u64,
    has_completion_token: bool,
    digest: Digest,
    /// Found when it is first asked for: streams that are made for one dispatch are never compared.
    identity: OnceLock<Digest>,
    maker: Option<Arc<dyn StreamMaker>>,
    ahead: Arc<[AheadChannel]>,
    configuration: Option<Arc<Configuration>>,
    kept: Arc<[KeptMemory]>,
}

impl KernelArtifact {
    /// Validates both files and puts them together.
    ///
    /// `name` is the kernel's name; `arch` names the generation, as the arch file does (for example
    /// `"aie2p"`), and `generation` is its number in the header of instruction streams (3 for aie2, 4 for
    /// aie2p). A PDI alone does not say which generation it is for.
    ///
    /// # Errors
    /// When the PDI or the instruction stream is not valid, or the stream is for another generation.
    pub fn new(
        name: impl Into<Arc<str>>,
        arch: impl Into<Arc<str>>,
        generation: u8,
        pdi: impl Into<Arc<[u8]>>,
        instructions: impl Into<Arc<[u8]>>,
    ) -> Result<Self, ArtifactError> {
        let (name, arch): (Arc<str>, Arc<str>) = (name.into(), arch.into());
        let (pdi, instructions): (Arc<[u8]>, Arc<[u8]>) = (pdi.into(), instructions.into());
        if let Err(source) = Pdi::parse(&pdi) {
            return Err(ArtifactError::Pdi { name, source });
        }
        let stream = match InstructionStream::parse(&instructions) {
            Ok(stream) => stream,
            Err(source) => return Err(ArtifactError::Instructions { name, source }),
        };
        let found = stream.header().generation;
        if found != generation {
            return Err(ArtifactError::Generation { name, arch, expected: generation, found });
        }
        let (argument_count, operation_count) = (stream.argument_count(), stream.operations().count());
        let charged_operations = stream.charged_operations();
        let has_completion_token = stream.has_completion_token();
        let digest = Digest::of(&pdi::canonical(&pdi));
        Ok(Self {
            name,
            arch,
            pdi,
            instructions,
            argument_count,
            operation_count,
            charged_operations,
            has_completion_token,
            digest,
            identity: OnceLock::new(),
            maker: None,
            ahead: Arc::default(),
            configuration: None,
            kept: Arc::default(),
        })
    }

    /// The same kernel, whose streams `maker` makes when its dispatches run. The stream that it has is an example then: one that
    /// uses all arguments, for those who look at it.
    #[must_use]
    pub fn with_stream_maker(self, maker: Arc<dyn StreamMaker>) -> Self {
        Self { maker: Some(maker), ..self }
    }

    /// What makes the streams of dispatches, for a kernel whose streams depend on data. Files do not have it.
    #[must_use]
    pub fn stream_maker(&self) -> Option<&Arc<dyn StreamMaker>> {
        self.maker.as_ref()
    }

    /// The same PDI with other instructions, and without a maker. Its channels that run ahead are the same.
    ///
    /// # Errors
    /// When they are not valid, or for another generation.
    pub fn with_instructions(&self, instructions: impl Into<Arc<[u8]>>) -> Result<Self, ArtifactError> {
        let (name, instructions): (_, Arc<[u8]>) = (self.name.clone(), instructions.into());
        let header = |bytes: &[u8]| InstructionStream::parse(bytes).map(|stream| stream.header().generation);
        let stream = match InstructionStream::parse(&instructions) {
            Ok(stream) => stream,
            Err(source) => return Err(ArtifactError::Instructions { name, source }),
        };
        let found = stream.header().generation;
        match header(&self.instructions) {
            Ok(expected) if expected != found => {
                return Err(ArtifactError::Generation { name, arch: self.arch.clone(), expected, found });
            }
            _ => {}
        }
        let (argument_count, operation_count) = (stream.argument_count(), stream.operations().count());
        let charged_operations = stream.charged_operations();
        let has_completion_token = stream.has_completion_token();
        Ok(Self {
            instructions,
            argument_count,
            operation_count,
            charged_operations,
            has_completion_token,
            identity: OnceLock::new(),
            maker: None,
            ..self.clone()
        })
    }

    /// Puts other operations in the place of those at `place`, a range of the stream's bytes, and copies nothing else. Gives false, and
    /// changes nothing, where they [cannot take it](can_replace), or clones share the stream.
    pub(crate) fn replace_operations(&mut self, place: Range<usize>, operations: &[u8]) -> bool {
        let stream = Arc::get_mut(&mut self.instructions).and_then(|stream| stream.get_mut(place));
        let Some(old) = stream.filter(|old| can_replace(old, operations)) else { return false };
        old.copy_from_slice(operations);
        self.identity = OnceLock::new();
        true
    }

    /// The same kernel, whose PDI has these channels that may run ahead.
    #[must_use]
    pub fn with_ahead(self, ahead: impl Into<Arc<[AheadChannel]>>) -> Self {
        Self { ahead: ahead.into(), identity: OnceLock::new(), ..self }
    }

    /// The channels of its design whose tasks may be started before the dispatches in front of theirs have ended. None, unless who
    /// made the PDI says so ([`KernelArtifact::with_ahead`]).
    #[must_use]
    pub fn ahead(&self) -> &[AheadChannel] {
        &self.ahead
    }

    /// The same kernel, whose stream works with other PDIs, too.
    #[must_use]
    pub fn with_configuration(self, configuration: Configuration) -> Self {
        Self { configuration: Some(Arc::new(configuration)), identity: OnceLock::new(), ..self }
    }

    /// With which other PDIs its stream works. None, unless who made it says so ([`KernelArtifact::with_configuration`]).
    #[must_use]
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_deref()
    }

    /// The same stream with the PDI of `other`. None where that is not known to have what it needs.
    #[must_use]
    pub fn with_pdi_of(&self, other: &Self) -> Option<Self> {
        let (own, theirs) = (self.configuration()?, other.configuration()?);
        let works = self.arch == other.arch && own.name == theirs.name && theirs.has.is_superset(&own.needs);
        let moved = || Self { pdi: Arc::clone(&other.pdi), digest: other.digest, ..self.clone() };
        works.then(|| moved().with_configuration(Configuration { has: theirs.has.clone(), ..own.clone() }))
    }

    /// The same kernel, whose PDI has this memory that nothing but streams writes.
    #[must_use]
    pub fn with_kept(self, kept: impl Into<Arc<[KeptMemory]>>) -> Self {
        Self { kept: kept.into(), identity: OnceLock::new(), ..self }
    }

    /// The memory of its design that nothing but streams writes. None, unless who made the PDI says so ([`KernelArtifact::with_kept`]).
    #[must_use]
    pub fn kept(&self) -> &[KeptMemory] {
        &self.kept
    }

    /// The same kernel under another name.
    #[must_use]
    pub fn renamed(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Whether the PDI has a description, be it a damaged one, that a simulated device computes; the instructions are not executed then.
    #[must_use]
    pub fn is_description(&self) -> bool {
        Pdi::parse(&self.pdi).is_ok_and(|pdi| !matches!(reference::extract(&pdi.cdo()), Ok(None)))
    }

    /// Reads the PDI and the instruction stream of a kernel for `arch` and validates both. The kernel is named after the
    /// file of the PDI.
    ///
    /// ```no_run
    /// use aie_hal::{ArchRegistry, KernelArtifact};
    ///
    /// let arch = ArchRegistry::builtin().get("aie2p").expect("a built-in generation");
    /// let kernel = KernelArtifact::from_files(&arch, "add.pdi", "add_insts.bin")?;
    /// println!("{} takes {} arguments", kernel.name(), kernel.argument_count());
    /// # Ok::<(), aie_hal::artifact::ArtifactFileError>(())
    /// ```
    ///
    /// # Errors
    /// [`ArtifactFileError`], which names the file.
    pub fn from_files(
        arch: &Arch,
        pdi: impl AsRef<Path>,
        instructions: impl AsRef<Path>,
    ) -> Result<Self, ArtifactFileError> {
        let (pdi, instructions) = (pdi.as_ref(), instructions.as_ref());
        let read = |path: &Path| {
            fs::read(path).map_err(|source| ArtifactFileError::Unreadable { path: path.to_owned(), source })
        };
        let name = pdi.file_stem().unwrap_or_default().to_string_lossy();
        Self::new(name, arch.name.as_str(), arch.dev_gen, read(pdi)?, read(instructions)?).map_err(|source| {
            let path = if matches!(source, ArtifactError::Pdi { .. }) { pdi } else { instructions };
            ArtifactFileError::Invalid { path: path.to_owned(), source }
        })
    }

    /// The kernel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The generation it is for.
    #[must_use]
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// The PDI file, which is valid.
    #[must_use]
    pub fn pdi(&self) -> &[u8] {
        &self.pdi
    }

    /// The instruction stream file, which is valid. Its length is in bytes.
    #[must_use]
    pub fn instructions(&self) -> &[u8] {
        &self.instructions
    }

    /// Arguments a dispatch has: the highest that the instructions use, plus one.
    #[must_use]
    pub fn argument_count(&self) -> usize {
        self.argument_count
    }

    /// Operations of the instruction stream, which the command processor executes one after the other. Of a kernel with a
    /// [`StreamMaker`] those of its example.
    #[must_use]
    pub fn operation_count(&self) -> usize {
        self.operation_count
    }

    /// What their time is reckoned by: [`InstructionStream::charged_operations`] of the stream that
    /// [`KernelArtifact::operation_count`] counts.
    #[must_use]
    pub fn charged_operations(&self) -> u64 {
        self.charged_operations
    }

    /// Whether the instructions wait for any output. A dispatch of a kernel that does not is complete before
    /// its data has arrived.
    #[must_use]
    pub fn has_completion_token(&self) -> bool {
        self.has_completion_token
    }

    /// The bytes that a dispatch touches of each argument, [`KernelArtifact::argument_count`] of them, as
    /// [`argument_extents`] finds them in the two files. Goes through both files whenever it is called.
    ///
    /// # Errors
    /// [`ExtentError`] when they cannot be determined, which says nothing against the kernel.
    pub fn argument_extents(&self) -> Result<Vec<ArgumentExtent>, ExtentError> {
        // Both files were valid when the artifact was made.
        let unreadable = |error: FormatError| ExtentError(error.to_string());
        let pdi = Pdi::parse(&self.pdi).map_err(unreadable)?;
        let stream = InstructionStream::parse(&self.instructions).map_err(unreadable)?;
        argument_extents(&pdi.cdo(), &stream)
    }

    /// SHA-256 of the PDI in its [canonical form](crate::format::pdi::canonical), which for most files is the file. Hardware contexts
    /// count distinct PDIs, and this distinguishes them: several artifacts can share one PDI with different instructions.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// SHA-256 over PDI, instructions, and, where there are any, the channels that [may run ahead](Self::ahead), the memory that
    /// [is kept](Self::kept) and the [configuration](Self::configuration). Artifacts with equal identities do the same.
    #[must_use]
    pub fn identity(&self) -> &Digest {
        self.identity.get_or_init(|| identity_of(self))
    }
}

fn identity_of(artifact: &KernelArtifact) -> Digest {
    let mut identity = Sha256::new_with_prefix(artifact.digest.as_bytes());
    identity.update(&artifact.instructions);
    for AheadChannel { column, channel, packet, first_descriptor, descriptors, results } in &*artifact.ahead {
        identity.update([*column, *channel, packet.unwrap_or(u8::MAX), *first_descriptor, *descriptors, *results]);
    }
    if !artifact.kept.is_empty() {
        // Otherwise one could be two channels.
        identity.update(b"kept");
    }
    for KeptMemory { column, row, offset, bytes } in &*artifact.kept {
        identity.update([*column, *row]);
        identity.update(offset.to_le_bytes());
        identity.update(bytes.to_le_bytes());
    }
    if let Some(Configuration { name, needs, has }) = artifact.configuration() {
        // No word has a zero.
        for words in [&BTreeSet::from([name.clone()]), needs, has] {
            words.iter().for_each(|word| identity.update([word.as_bytes(), &[0]].concat()));
            identity.update([0]);
        }
    }
    Digest(identity.finalize().into())
}

impl fmt::Debug for KernelArtifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelArtifact")
            .field("name", &self.name)
            .field("arch", &self.arch)
            .field("pdi_bytes", &self.pdi.len())
            .field("instruction_bytes", &self.instructions.len())
            .field("argument_count", &self.argument_count)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// A kernel that uses the arguments with these indices, for tests of this crate. Its name is also what its PDI describes.
#[cfg(test)]
pub(crate) fn example(arch: &str, name: &str, arguments: impl IntoIterator<Item = u16>) -> KernelArtifact {
    use crate::format::instructions::{Instruction, InstructionWriter};
    let header = crate::ArchRegistry::builtin().get(arch).unwrap().stream_header(1);
    let mut writer = InstructionWriter::new(header);
    for argument in arguments {
        writer.push(&Instruction::AddressPatch { register: 0x1_D004, argument, offset: 0 });
    }
    let pdi = reference::wrap(name.as_bytes()).unwrap();
    KernelArtifact::new(name, arch, header.generation, pdi, writer.finish().unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::dma_channel::Direction;
    use crate::format::instructions::{Header, Instruction, InstructionWriter};
    use rstest::rstest;

    fn artifact(name: &str, arguments: &[u16]) -> KernelArtifact {
        example("aie2p", name, arguments.iter().copied())
    }

    #[rstest]
    #[case::none(&[], 0)]
    #[case::in_order(&[0, 1, 2], 3)]
    #[case::with_gap_and_repeats(&[4, 0, 4], 5)]
    fn arguments_are_counted(#[case] arguments: &[u16], #[case] count: usize) {
        let artifact = artifact("add", arguments);
        assert_eq!(artifact.argument_count(), count);
        assert_eq!((artifact.name(), artifact.arch()), ("add", "aie2p"));
        assert!(!artifact.has_completion_token());
    }

    #[test]
    fn completion_tokens_are_noticed() {
        let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
        let direction = Direction::StreamToMemory;
        writer.push(&Instruction::Sync { direction, column: 0, row: 0, columns: 1, rows: 1, channel: 0 });
        let pdi = example("aie2", "add", []).pdi;
        let artifact = KernelArtifact::new("add", "aie2", 3, pdi, writer.finish().unwrap()).unwrap();
        assert!(artifact.has_completion_token());
    }

    #[test]
    fn digests_tell_pdis_and_kernels_apart() {
        let one = artifact("add", &[0, 1]);
        let same = artifact("add", &[0, 1]);
        let longer = artifact("add", &[0, 1, 2]);
        let other = artifact("mul", &[0, 1]);
        assert_eq!((one.digest(), one.identity()), (same.digest(), same.identity()));
        assert_eq!(one.digest(), longer.digest());
        assert_ne!(one.identity(), longer.identity());
        assert_ne!(one.digest(), other.digest());
        assert_ne!(one.identity(), other.identity());
        assert_eq!(one.digest(), &Digest::of(one.pdi()));
    }

    #[test]
    fn digests_leave_out_what_compilers_do_not_set() {
        let one = artifact("add", &[0, 1]);
        let mut pdi = one.pdi().to_vec();
        // The revoke id, and the checksum of the image header.
        pdi[0x98..0x9C].fill(0x01);
        let sum = u32::from_le_bytes(pdi[0xCC..0xD0].try_into().unwrap()).wrapping_sub(0x0101_0101);
        pdi[0xCC..0xD0].copy_from_slice(&sum.to_le_bytes());
        let other = KernelArtifact::new("add", "aie2p", 4, pdi, one.instructions()).unwrap();
        assert_ne!(one.pdi(), other.pdi());
        assert_eq!((one.digest(), one.identity()), (other.digest(), other.identity()));
    }

    #[test]
    fn digests_are_sha_256_in_hexadecimal() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), expected);
    }

    #[test]
    fn clones_share_their_bytes() {
        let artifact = artifact("add", &[0]);
        let clone = artifact.clone();
        assert!(std::ptr::eq(artifact.pdi(), clone.pdi()));
        assert!(std::ptr::eq(artifact.instructions(), clone.instructions()));
        fn assert_thread_safe<T: Send + Sync + 'static>(_: &T) {}
        assert_thread_safe(&clone);
    }

    #[test]
    fn files_are_read_and_errors_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let arch = crate::ArchRegistry::builtin().get("aie2p").unwrap();
        let files = ["add.pdi", "add_insts.bin"].map(|name| folder.path().join(name));
        let load = || KernelArtifact::from_files(&arch, &files[0], &files[1]);
        let expected = artifact("add", &[0, 1]);
        fs::write(&files[0], expected.pdi()).unwrap();
        let error = load().unwrap_err();
        assert!(matches!(&error, ArtifactFileError::Unreadable { path, .. } if *path == files[1]), "{error}");
        fs::write(&files[1], expected.instructions()).unwrap();
        let kernel = load().unwrap();
        assert_eq!((kernel.name(), kernel.arch(), kernel.identity()), ("add", "aie2p", expected.identity()));

        fs::write(&files[1], example("aie2", "add", [0]).instructions()).unwrap();
        let error = load().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: kernel add: expected instructions for aie2p", files[1].display())));
        fs::write(&files[0], b"no PDI").unwrap();
        let error = load().unwrap_err();
        assert!(error.to_string().starts_with(&files[0].display().to_string()), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn other_instructions_make_another_kernel_of_the_same_pdi() {
        let one = artifact("add", &[0, 1]);
        let other = one.with_instructions(artifact("add", &[0, 1, 2]).instructions()).unwrap();
        assert_eq!((one.digest(), other.argument_count()), (other.digest(), 3));
        assert_eq!(other.identity(), artifact("add", &[0, 1, 2]).identity());
        let error = one.with_instructions(example("aie2", "add", [0]).instructions()).unwrap_err();
        assert!(matches!(error, ArtifactError::Generation { expected: 4, found: 3, .. }), "{error}");
        assert!(matches!(one.with_instructions([0; 4]).unwrap_err(), ArtifactError::Instructions { .. }));
    }

    #[test]
    fn streams_take_other_pdis_of_their_configuration() {
        let with = |kernel: &KernelArtifact, name: &str, needs: &[&str], has: &[&str]| {
            let [needs, has] = [needs, has].map(|words| words.iter().copied().map(Into::into).collect());
            kernel.clone().with_configuration(Configuration { name: name.into(), needs, has })
        };
        let (plain, other) = (artifact("one", &[0, 1]), artifact("two", &[]));
        let one = with(&plain, "design", &["q4_0"], &["q4_0"]);
        assert_ne!(plain.identity(), one.identity());
        let pdi = with(&other, "design", &[], &["q4_0", "q8_0"]);
        let moved = one.with_pdi_of(&pdi).unwrap();
        assert_eq!((moved.digest(), moved.instructions(), moved.name()), (pdi.digest(), one.instructions(), "one"));
        assert_eq!(moved.configuration(), with(&plain, "design", &["q4_0"], &["q4_0", "q8_0"]).configuration());
        assert_ne!(moved.identity(), one.identity());
        for others in [with(&other, "design", &[], &["q8_0"]), with(&other, "else", &[], &["q4_0"]), other] {
            assert!(one.with_pdi_of(&others).is_none());
        }
        assert!(plain.with_pdi_of(&pdi).is_none());
    }

    #[test]
    fn each_part_is_validated() {
        let KernelArtifact { pdi, instructions: stream, .. } = artifact("add", &[0]);
        let make = |pdi: &[u8], stream: &[u8], generation| {
            KernelArtifact::new("add", "aie2p", generation, pdi, stream).unwrap_err()
        };
        let cut = &pdi[..pdi.len() - 1];
        assert!(matches!(make(cut, &stream, 4), ArtifactError::Pdi { .. }));
        let error = make(&pdi, &stream[..stream.len() - 4], 4);
        assert!(matches!(error, ArtifactError::Instructions { .. }));
        assert_eq!(
            error.to_string(),
            "kernel add: its instructions cannot be used: instructions size at offset 0xc: expected 64 bytes by the \
             header, found 60 bytes; delete the kernel's files and compile it again"
        );
        let error = make(&pdi, &stream, 3);
        let (name, arch) = ("add".into(), "aie2p".into());
        assert_eq!(error, ArtifactError::Generation { name, arch, expected: 3, found: 4 });
    }
}
