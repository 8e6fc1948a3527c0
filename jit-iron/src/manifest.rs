//! What is known of a kernel on disk beside its two files: its origin, and its expected content.
//!
//! Names say the shapes of a kernel but not what it was built from. The manifest does, so that a kernel built by other sources or
//! another toolchain is recognised as stale, and a file that was changed as damaged. It is a JSON file, `<name>.json`, for
//! people too. Directories of the C++ backend have none.

use aie_hal::KernelArtifact;
use aie_hal::artifact::Configuration;
use aie_hal::format::instructions::{AheadChannel, KeptMemory};
use aie_ops::Node;
use aie_ops::compiler::KernelCompiler;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Version of [`Manifest`]. Readers take this one only.
const VERSION: u32 = 1;
/// Distinguishes our files from other JSON files.
const PROGRAM: &str = "aie-hal";

/// A manifest cannot be read, or describes other files.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is none.
    #[error("not a manifest: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It is of another program or version, which are given.
    #[error("a manifest of {0} {1}; this version reads {PROGRAM} {VERSION}")]
    Version(String, u32),
    /// A file has another size: which, its bytes, and those that are expected.
    #[error("the {0} has {1} bytes, its manifest says {2}")]
    Length(&'static str, usize, usize),
    /// A file has other content.
    #[error("the {0} is not the one its manifest describes")]
    Content(&'static str),
}

/// The manifest of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    version: u32,
    program: String,
    /// The name that backends ask for.
    pub kernel: String,
    /// Generation.
    pub arch: String,
    /// Operation, parameters, types and shapes: the normalised node.
    pub node: Node,
    /// What it was built from and by.
    pub origin: Origin,
    /// Bytes of the PDI.
    pub pdi_bytes: usize,
    /// SHA-256 of the PDI, hexadecimal.
    pub pdi_sha256: String,
    /// Bytes of the instruction stream.
    pub instructions_bytes: usize,
    /// [`KernelArtifact::identity`], hexadecimal: SHA-256 over the binary SHA-256 of the PDI, the instruction stream, and what
    /// `ahead`, `kept` and `configuration` say.
    pub identity: String,
    /// [`KernelArtifact::ahead`]: channels whose tasks may run ahead, which neither file says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<AheadChannel>,
    /// [`KernelArtifact::configuration`]: with which other PDIs the stream works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// [`KernelArtifact::kept`]: memory that nothing but streams writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptMemory>,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// How long compiling took, in milliseconds.
    pub milliseconds: u64,
}

/// What a kernel was built from and by. Kernels of different origins are not the same kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Name of the compiler.
    pub compiler: String,
    /// Versions of the toolchain, and its options.
    pub toolchain: String,
    /// Digest of the kernel's sources.
    pub sources: String,
}

impl Origin {
    /// That of the kernels `compiler` would make now.
    pub fn of(compiler: &dyn KernelCompiler) -> Self {
        Self { compiler: compiler.name().into(), toolchain: compiler.identity(), sources: compiler.sources() }
    }

    /// Where this origin differs from the wanted one; `None` when it does not. An unknown toolchain matches any.
    pub fn difference(&self, wanted: &Self) -> Option<String> {
        let parts = [
            ("compiler", &self.compiler, &wanted.compiler),
            ("toolchain", &self.toolchain, &wanted.toolchain),
            ("sources", &self.sources, &wanted.sources),
        ];
        let known = |has: &String| !has.is_empty();
        let (what, had, has) = parts.into_iter().find(|(_, had, has)| had != has && known(has))?;
        Some(format!("it was built with {what} `{}`, now it is `{}`", short(had), short(has)))
    }
}

/// The beginning of a digest; other texts whole.
fn short(text: &str) -> &str {
    let digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digest { &text[..12] } else { text }
}

impl Manifest {
    /// Describes `artifact`, the kernel of `node`, which was just built in `took`.
    pub fn new(artifact: &KernelArtifact, node: &Node, origin: Origin, took: Duration) -> Self {
        Self {
            version: VERSION,
            program: PROGRAM.into(),
            kernel: artifact.name().into(),
            arch: artifact.arch().into(),
            node: node.clone(),
            origin,
            pdi_bytes: artifact.pdi().len(),
            pdi_sha256: artifact.digest().to_string(),
            instructions_bytes: artifact.instructions().len(),
            identity: artifact.identity().to_string(),
            ahead: artifact.ahead().to_vec(),
            configuration: artifact.configuration().cloned(),
            kept: artifact.kept().to_vec(),
            made: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// [`ManifestError::Malformed`], [`ManifestError::Version`].
    pub fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = serde_json::from_slice(text)?;
        if manifest.program != PROGRAM || manifest.version != VERSION {
            return Err(ManifestError::Version(manifest.program, manifest.version));
        }
        Ok(manifest)
    }

    /// The file's content.
    ///
    /// # Errors
    /// None in practice: a manifest is plain data.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Whether the two files are the ones that were described.
    ///
    /// # Errors
    /// [`ManifestError::Length`], [`ManifestError::Content`].
    pub fn check(&self, artifact: &KernelArtifact) -> Result<(), ManifestError> {
        let sizes = [
            ("PDI", self.pdi_bytes, artifact.pdi().len()),
            ("instruction stream", self.instructions_bytes, artifact.instructions().len()),
        ];
        if let Some((what, expected, found)) = sizes.into_iter().find(|(_, expected, found)| expected != found) {
            return Err(ManifestError::Length(what, found, expected));
        }
        // The identity covers both files; the PDI's own digest only says which of them it is.
        if self.identity != artifact.identity().to_string() {
            let what = if self.pdi_sha256 == artifact.digest().to_string() { "instruction stream" } else { "PDI" };
            return Err(ManifestError::Content(what));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::directory::tests::{arch, sum};
    use crate::kernel_files::assemble;
    use aie_ops::compiler::ReferenceCompiler;

    pub(crate) fn described(elements: usize) -> (KernelArtifact, Manifest) {
        let ((op, node), arch) = (sum(elements), arch("aie2p"));
        let artifact = ReferenceCompiler.compile(op, &node, &arch).unwrap();
        let origin = Origin { compiler: "c".into(), toolchain: "t 1".into(), sources: "0".repeat(64) };
        let manifest = Manifest::new(&artifact, &node, origin, Duration::from_millis(12));
        (artifact, manifest)
    }

    #[test]
    fn a_manifest_comes_back_and_fits_its_files() {
        let (artifact, manifest) = described(64);
        assert_eq!(Manifest::parse(&manifest.to_json().unwrap()).unwrap(), manifest);
        manifest.check(&artifact).unwrap();
        assert_eq!((manifest.milliseconds, manifest.kernel.as_str()), (12, "add-64f32-64f32-64f32"));
    }

    /// What only the manifest says of a kernel.
    #[test]
    fn what_runs_ahead_and_other_pdis_come_back() {
        let (artifact, manifest) = described(64);
        let text = String::from_utf8(manifest.to_json().unwrap()).unwrap();
        assert!(!text.contains("ahead") && !text.contains("configuration"), "{text}");
        let channel =
            AheadChannel { column: 1, channel: 0, packet: None, first_descriptor: 8, descriptors: 4, results: 0 };
        let has = ["q4_0".to_owned()].into();
        let configuration = Configuration { name: "design".into(), needs: [].into(), has };
        let (node, origin) = (manifest.node, manifest.origin);
        let memory = KeptMemory { column: 1, row: 2, offset: 64, bytes: 32 };
        let artifact = artifact.with_ahead([channel]).with_kept([memory]).with_configuration(configuration.clone());
        let manifest = Manifest::new(&artifact, &node, origin, Duration::ZERO);
        let manifest = Manifest::parse(&manifest.to_json().unwrap()).unwrap();
        let read = |manifest: &Manifest| {
            let (pdi, instructions) = (artifact.pdi().into(), artifact.instructions().into());
            assemble(artifact.name(), &arch("aie2p"), pdi, instructions, Some(manifest), None)
        };
        let found = read(&manifest).unwrap();
        assert_eq!((found.ahead(), found.kept()), (&[channel][..], &[memory][..]));
        assert_eq!(found.configuration(), Some(&configuration));
        // All are promises about the PDI: a changed one is damage.
        let (mut ahead, mut kept, mut other) = (manifest.clone(), manifest.clone(), manifest);
        ahead.ahead[0].packet = Some(1);
        kept.kept[0].bytes = 64;
        other.configuration = Some(Configuration { name: "other".into(), ..configuration });
        for wrong in [ahead, kept, other] {
            let error = read(&wrong).unwrap_err().1;
            assert!(error.starts_with("the instruction stream is not"), "{error}");
        }
    }

    #[test]
    fn other_files_are_distinguished() {
        let (_, manifest) = described(64);
        let (other, _) = described(32);
        let differs = |manifest: &Manifest, artifact| manifest.check(artifact).unwrap_err().to_string();
        assert!(differs(&manifest, &other).contains("PDI"), "{}", differs(&manifest, &other));
        let mut wrong = manifest.clone();
        wrong.instructions_bytes += 1;
        let (artifact, _) = described(64);
        assert!(differs(&wrong, &artifact).starts_with("the instruction stream has"));
        wrong = manifest;
        wrong.identity.replace_range(0..1, "x");
        assert!(differs(&wrong, &artifact).starts_with("the instruction stream is not"));
    }

    #[test]
    fn foreign_json_is_rejected() {
        let (_, manifest) = described(64);
        let text = String::from_utf8(manifest.to_json().unwrap()).unwrap();
        for (from, to) in [("\"aie-hal\"", "\"other\""), ("\"version\":1", "\"version\":9"), ("{", "")] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            Manifest::parse(changed.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn differences_of_origins_are_named() {
        let origin = described(64).1.origin;
        assert_eq!(origin.difference(&origin), None);
        let newer = Origin { toolchain: "t 2".into(), ..origin.clone() };
        assert_eq!(origin.difference(&newer).unwrap(), "it was built with toolchain `t 1`, now it is `t 2`");
        let unknown = Origin { toolchain: String::new(), ..origin.clone() };
        assert_eq!(origin.difference(&unknown), None);
        let edited = Origin { sources: "a".repeat(64), ..origin.clone() };
        assert!(origin.difference(&edited).unwrap().ends_with("now it is `aaaaaaaaaaaa`"));
    }
}
