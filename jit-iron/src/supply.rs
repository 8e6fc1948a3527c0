//! Whether any kernel could come, before one is asked for.
//!
//! A device for which none can would do all its work on the host, and nobody would notice. The answer is cheap, and on the side
//! of hope: one kernel anywhere is enough, whatever it computes, and so is a compiler that starts.

use crate::compiler::KernelCompiler;
use crate::jit_policy::JitPolicy;
use crate::kernel_files::KernelFiles;
use crate::settings::{GGML_HSA_JIT, GGML_HSA_KERNEL_DIR};
use crate::sources::Sources;
use aie_hal::Arch;
use aie_hal::format::pdi::Pdi;
use aie_hal::format::reference;
use std::fs;
use std::path::Path;

impl Sources {
    /// Whether a kernel for `arch` could come from any source; if not, what each source said.
    pub(crate) fn supply(&self, arch: &Arch) -> Result<(), String> {
        let mut tried = Vec::new();
        let found = self.embedded_supply(arch, &mut tried)
            || self.directory_supply(arch, &mut tried)
            || self.cache_supply(arch, &mut tried)
            || self.compiler_supply(&mut tried);
        // Compilers that share a folder say the same.
        tried.dedup();
        if found { Ok(()) } else { Err(tried.join("; ")) }
    }

    fn embedded_supply(&self, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let others: Vec<&str> =
            self.embedded.iter().map(|pack| pack.arch()).filter(|name| *name != arch.name).collect();
        if self.embedded.iter().any(|pack| pack.arch() == arch.name && pack.pdis().any(|pdi| self.counts(pdi))) {
            return true;
        }
        tried.push(match &others[..] {
            [] => "none are built into the library".into(),
            others => format!("those built into the library are for [{}]", others.join(", ")),
        });
        false
    }

    fn directory_supply(&self, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let Some(directory) = &self.directory else {
            tried.push(format!("no kernel directory ({GGML_HSA_KERNEL_DIR} is not set)"));
            return false;
        };
        self.folder_supply(&directory.path().join(&arch.name), arch, tried)
    }

    /// What compilers kept. Without a compiler nobody knows which kernels of a cache are the right ones.
    fn cache_supply(&self, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let Some(cache) = &self.cache else { return false };
        self.counting_compilers().any(|compiler| self.folder_supply(&cache.folder(compiler, arch), arch, tried))
    }

    fn compiler_supply(&self, tried: &mut Vec<String>) -> bool {
        if self.policy == JitPolicy::Off {
            tried.push(format!("compiling is off ({GGML_HSA_JIT})"));
            return false;
        }
        let before = tried.len();
        // From the last one: who is asked when nothing else is there needs the least.
        let found = self.counting_compilers().rev().any(|compiler| match compiler.available() {
            Ok(()) => true,
            Err(error) => {
                tried.push(format!("compiler {}: {error}", compiler.name()));
                false
            }
        });
        if !found && tried.len() == before {
            tried.push("no compiler".into());
        }
        found
    }

    /// On silicon reference kernels do not count, nor does who makes them.
    fn counting_compilers(&self) -> impl DoubleEndedIterator<Item = &dyn KernelCompiler> {
        self.compilers
            .iter()
            .map(|compiler| &**compiler)
            .filter(|compiler| !self.silicon || compiler.folder().is_empty())
    }

    fn folder_supply(&self, folder: &Path, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "pdi"));
        let mut seen = false;
        for path in paths {
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let files = KernelFiles::new(folder, stem);
            let Ok(Some(content)) = files.read(arch.limits.device_heap_bytes) else { continue };
            if content.instructions.is_none() {
                continue;
            }
            if self.counts(&content.pdi) {
                return true;
            }
            seen = true;
        }
        let what = if seen { "reference kernels only, which an NPU does not run, in" } else { "no kernels in" };
        tried.push(format!("{what} {}", folder.display()));
        false
    }

    fn counts(&self, pdi: &[u8]) -> bool {
        !self.silicon || !Pdi::parse(pdi).is_ok_and(|pdi| !matches!(reference::extract(&pdi.cdo()), Ok(None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::KernelCache;
    use crate::compiler::{CompileError, ReferenceCompiler};
    use crate::directory::tests::{arch, put, sum};
    use crate::pack::{KernelPack, pack};
    use crate::store::{KernelStore, KernelStoreBuilder, StoreError};
    use aie_hal::KernelArtifact;
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::pdi;
    use aie_ops::{Node, Operation};
    use rstest::rstest;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// A compiler for silicon that is there or not, and is never asked for a kernel.
    #[derive(Debug)]
    struct Iron(bool);

    impl KernelCompiler for Iron {
        fn name(&self) -> &str {
            "iron"
        }
        fn identity(&self) -> String {
            String::new()
        }
        fn sources(&self, _: &dyn Operation, _: &Node, _: &Arch) -> String {
            String::new()
        }
        fn available(&self) -> Result<(), CompileError> {
            if self.0 { Ok(()) } else { Err(CompileError::Unavailable("there is no Python".into())) }
        }
        fn compile(&self, _: &dyn Operation, _: &Node, _: &Arch) -> Result<KernelArtifact, CompileError> {
            panic!("nothing is compiled to learn what could come")
        }
    }

    /// Reference kernels, or compiled ones, of aie2p in `folder`.
    fn fill(folder: &Path, code: bool) {
        let (op, node) = sum(64);
        let name = put(folder, op, &node, &arch("aie2p"));
        if code {
            let mut cdo = CdoBuilder::new();
            cdo.write(0x0023_2000, 1);
            fs::write(folder.join("aie2p").join(format!("{name}.pdi")), pdi::write(&cdo).unwrap()).unwrap();
        }
    }

    fn message(builder: KernelStoreBuilder) -> Option<String> {
        builder.build().unwrap().supplies(&arch("aie2p")).err().map(|error| {
            assert!(matches!(error, StoreError::NoKernels { .. }));
            error.to_string()
        })
    }

    fn silicon() -> KernelStoreBuilder {
        KernelStore::builder().for_silicon()
    }

    #[rstest]
    #[case::code(true, None)]
    #[case::reference(false, Some("reference kernels only, which an NPU does not run, in "))]
    fn a_directory_counts_when_an_npu_can_run_what_is_in_it(#[case] code: bool, #[case] expected: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        fill(root.path(), code);
        let told = message(silicon().kernel_directory(root.path()));
        assert_eq!(told.is_some(), expected.is_some(), "{told:?}");
        assert!(told.unwrap_or_default().contains(expected.unwrap_or_default()));
        assert_eq!(message(KernelStore::builder().kernel_directory(root.path())), None);
        // Of another generation.
        fs::rename(root.path().join("aie2p"), root.path().join("aie2")).unwrap();
        let told = message(silicon().kernel_directory(root.path())).unwrap();
        assert!(told.contains(&format!("no kernels in {}", root.path().join("aie2p").display())), "{told}");
    }

    #[test]
    fn half_a_kernel_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        fill(root.path(), true);
        let folder = root.path().join("aie2p");
        fs::remove_file(folder.join("add-64f32-64f32-64f32_insts.bin")).unwrap();
        assert!(message(silicon().kernel_directory(root.path())).is_some());
    }

    #[rstest]
    #[case::code(true)]
    #[case::reference(false)]
    fn what_is_built_in_counts_the_same_way(#[case] code: bool) {
        let root = tempfile::tempdir().unwrap();
        fill(root.path(), code);
        let (bytes, _) = pack(&root.path().join("aie2p"), &arch("aie2p")).unwrap();
        let embedded =
            |builder: KernelStoreBuilder, name| builder.embedded(KernelPack::open(name, bytes.clone()).unwrap());
        assert_eq!(message(embedded(silicon(), "aie2p")).is_none(), code);
        assert_eq!(message(embedded(KernelStore::builder(), "aie2p")), None);
        let other = embedded(silicon(), "aie2p").build().unwrap().supplies(&arch("aie2")).unwrap_err().to_string();
        assert!(other.contains("those built into the library are for [aie2p]"), "{other}");
    }

    #[test]
    fn a_cache_counts_for_the_compiler_that_filled_it() {
        let root = tempfile::tempdir().unwrap();
        let cache = |path: &PathBuf| KernelCache::open(path).unwrap();
        let path = root.path().join("cache");
        let with = |compiler: Option<Iron>| {
            let builder = silicon().cache(cache(&path));
            compiler.into_iter().fold(builder, |builder, compiler| builder.compiler(Arc::new(compiler)))
        };
        let told = message(with(Some(Iron(false)))).unwrap();
        assert!(told.contains("no kernels in ") && told.contains("compiler iron: there is no Python"), "{told}");
        fill(&path, true);
        assert_eq!(message(with(Some(Iron(false)))), None);
        assert_eq!(message(with(Some(Iron(false))).policy(JitPolicy::Off)), None);
        assert!(message(with(None)).unwrap().contains("no compiler"));
    }

    #[test]
    fn a_compiler_counts_when_it_starts_and_may() {
        assert_eq!(message(silicon().compiler(Arc::new(Iron(true)))), None);
        assert_eq!(message(silicon().compiler(Arc::new(Iron(true))).policy(JitPolicy::Background)), None);
        let told = message(silicon().compiler(Arc::new(Iron(true))).policy(JitPolicy::Off)).unwrap();
        assert!(told.contains("compiling is off (GGML_HSA_JIT)"), "{told}");
        assert!(message(silicon().compiler(Arc::new(ReferenceCompiler))).unwrap().contains("no compiler"));
        assert_eq!(message(KernelStore::builder().compiler(Arc::new(ReferenceCompiler))), None);
    }

    #[test]
    fn the_message_says_what_would_change_it() {
        let told = message(silicon()).unwrap();
        let expected = [
            "none are built into the library",
            "GGML_HSA_KERNEL_DIR is not set",
            "ggml-hsa-gen-kernels",
            "GGML_HSA_IRON_DIR",
            "GGML_HSA_JIT_PYTHON",
        ];
        assert!(expected.iter().all(|part| told.contains(part)), "{told}");
    }
}
