//! Where the kernels of this process come from, put together from the settings.
//!
//! Devices whose kernels come from the same compilers share a store. All have the kernels that were built into the library, the
//! user's directory and the cache; which compilers there are, and in which order, is the device's ([`CompilerName::default_of`])
//! or the user's choice (`GGML_HSA_COMPILERS`). On an NPU native kernels have a gate before them ([`crate::kernels::selftest`]).

use crate::config::log;
use crate::config::{CompilerName, Config, SelfTest};
use crate::kernels::selftest::gate::Gate;
use crate::kernels::selftest::npu::Npu;
use crate::kernels::selftest::tester::Tester;
use crate::kernels::verbose;
use crate::settings::{GGML_HSA_COMPILERS, GGML_HSA_REFERENCE_KERNELS, PATH};
use aie_driver_mock::Execution;
use aie_hal::{ArchRegistry, Device, Environment};
use aie_jit_iron::clear::clear;
use aie_jit_iron::installation;
use aie_jit_iron::iron::{self, IronPlaces, WORKER};
use aie_jit_iron::worker::locate::WorkerPlaces;
use aie_jit_iron::{
    KernelCache, KernelPack, KernelStore, KernelStoreBuilder, StoreError, WorkerCommand, WorkerCompiler,
};
use aie_jit_native::NativeCompiler;
use aie_ops::compiler::{KernelCompiler, ReferenceCompiler};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

// `const PACKS: &[(&str, &[u8])]`, file name and content of the packs in the directory that `GGML_HSA_EMBED_KERNELS` named, from
// the build script.
include!(concat!(env!("OUT_DIR"), "/embedded_packs.rs"));

/// What devices that share a store have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    /// Whether reference kernels do nothing there.
    is_silicon: bool,
    compilers: Vec<CompilerName>,
    /// The NPU that native kernels are tested on.
    tested_on: Option<String>,
    /// Whether kernels are foreseen only.
    foresight: bool,
}

/// A store, or why there is none.
type Made = Result<Arc<KernelStore>, StoreError>;

/// The stores of a process. Each is made when the first device needs it.
pub struct KernelStores<'a> {
    config: &'a Config,
    environment: &'a Environment,
    /// Whether kernels are foreseen only.
    foresight: bool,
    made: Mutex<Vec<(Kind, Made)>>,
    /// By NPU.
    gates: Mutex<Vec<(String, Arc<Gate>)>>,
}

impl<'a> KernelStores<'a> {
    /// No stores yet. Empties the cache when that was requested.
    pub fn new(config: &'a Config, environment: &'a Environment) -> Self {
        if config.cache_clear {
            match clear(config.cache.path()) {
                Ok(cleared) => {
                    log::info(|| format!("kernel cache {} emptied: {} entries", config.cache, cleared.items));
                    if let [first, ..] = &cleared.kept[..] {
                        let (count, first) = (cleared.kept.len(), first.display());
                        log::warn(&format!(
                            "kernel cache {}: {count} entries were not written by this library and stay, for example {first}",
                            config.cache
                        ));
                    }
                    cleared.failed.iter().for_each(|problem| log::warn(&format!("kernel cache: {problem}")));
                }
                Err(cause) => log::error(&format!("{cause}; nothing was deleted")),
            }
        }
        Self { config, environment, foresight: false, made: Mutex::default(), gates: Mutex::default() }
    }

    /// Stores that tell where kernels would come from and write nothing.
    pub fn foreseeing(config: &'a Config, environment: &'a Environment) -> Self {
        Self { config, environment, foresight: true, made: Mutex::default(), gates: Mutex::default() }
    }

    /// The store for a device.
    ///
    /// # Errors
    /// The kernel directory cannot be used, or there is nothing that could have kernels for the device;
    /// [`StoreError::NoKernels`] for one that is not simulated, unless work for the array must not go elsewhere: then it is
    /// offered, so that the work fails.
    pub fn of(&self, device: &dyn Device) -> Result<Arc<KernelStore>, StoreError> {
        let (is_silicon, compilers) = (!self.is_simulated(device), self.compilers(device));
        let is_tested = self.is_tested(device) && compilers.contains(&CompilerName::Native);
        let tested_on = is_tested.then(|| device.info().uri.path().to_owned());
        let foresight = self.foresight || only_plans(device);
        let store = self.shared(Kind { is_silicon, compilers, tested_on, foresight }, device)?;
        match device.info().simulated {
            true => store.serves(device.arch())?,
            false if self.config.require_array => {}
            false => store.supplies(device.arch())?,
        }
        Ok(store)
    }

    /// What tests the NPU behind `device`; `None` for one that is simulated, and where the self-test is off.
    pub fn gate(&self, device: &dyn Device) -> Option<Arc<Gate>> {
        if !self.is_tested(device) {
            return None;
        }
        let info = device.info();
        let mut gates = self.gates.lock();
        if let Some((_, gate)) = gates.iter().find(|(npu, _)| npu == info.uri.path()) {
            return Some(Arc::clone(gate));
        }
        let (arches, _) = ArchRegistry::from_environment();
        let limit = self.config.self_test_limit;
        let tester = match Npu::of(device, &arches) {
            Ok(npu) => Tester::of_npu(npu, arches, &self.config.cache, limit),
            Err(cause) => Tester::new(Arc::new(move || Err(cause.to_string())), limit, None),
        };
        let (mode, loops, npu) = (self.config.self_test, self.config.native_loops, info.uri.to_string());
        let gate = Arc::new(Gate::new(tester, mode, loops, Arc::clone(device.arch()), npu));
        gates.push((info.uri.path().to_owned(), Arc::clone(&gate)));
        Some(gate)
    }

    fn is_simulated(&self, device: &dyn Device) -> bool {
        device.info().simulated || self.config.reference_kernels
    }

    fn compilers(&self, device: &dyn Device) -> Vec<CompilerName> {
        let default = || CompilerName::default_of(&device.info().uri, self.is_simulated(device), device.arch());
        self.config.jit.compilers.clone().unwrap_or_else(default)
    }

    /// Whether there is a self-test: on every NPU, and on a simulated kernel device that runs native kernels.
    fn is_tested(&self, device: &dyn Device) -> bool {
        let runs_code = || !self.is_simulated(device) || self.compilers(device).contains(&CompilerName::Native);
        !device.info().simulated && self.config.self_test != SelfTest::Off && runs_code()
    }

    fn shared(&self, kind: Kind, device: &dyn Device) -> Made {
        let mut made = self.made.lock();
        if let Some((_, store)) = made.iter().find(|(other, _)| *other == kind) {
            return store.clone();
        }
        let store = self.make(&kind, device);
        made.push((kind, store.clone()));
        store
    }

    fn make(&self, kind: &Kind, device: &dyn Device) -> Made {
        let mut builder = self.builder(kind.foresight);
        if kind.is_silicon {
            builder = builder.for_silicon();
        }
        for compiler in &kind.compilers {
            builder = match compiler {
                CompilerName::Native if kind.tested_on.is_some() => {
                    let native = |gate| NativeCompiler::admitted_by(gate).with_products(self.config.native_products);
                    let tested = self.gate(device).map(|gate| Arc::new(native(gate)));
                    tested.into_iter().fold(builder, |builder, native| builder.compiler(native))
                }
                CompilerName::Native => {
                    let native = NativeCompiler::with_loops(self.config.native_loops.untested());
                    builder.compiler(Arc::new(native.with_products(self.config.native_products)))
                }
                CompilerName::Iron => self.iron().into_iter().fold(builder, KernelStoreBuilder::compiler),
                CompilerName::Reference if kind.is_silicon => {
                    log::error(&format!(
                        "{GGML_HSA_COMPILERS}: `reference` does nothing on an NPU and is ignored; for a simulated kernel device, \
                         set {GGML_HSA_REFERENCE_KERNELS}"
                    ));
                    builder
                }
                CompilerName::Reference => self.reference(builder, kind.foresight),
            };
        }
        builder.build().map(Arc::new)
    }

    fn builder(&self, foresight: bool) -> KernelStoreBuilder {
        let jit = &self.config.jit;
        let mut builder = KernelStore::builder().policy(jit.policy).background_threads(jit.limits.workers);
        for (name, bytes) in PACKS {
            match KernelPack::open(name, *bytes) {
                Ok(pack) => builder = builder.embedded(pack),
                Err(cause) => log::error(&format!("{cause}; continuing without it")),
            }
        }
        if let Some(directory) = &self.config.kernel_directory {
            builder = builder.kernel_directory(directory);
        }
        if foresight {
            builder = builder.foresight();
            // Opening it would make it.
            if !self.config.cache.path().exists() {
                return builder;
            }
        }
        match KernelCache::open(self.config.cache.path()) {
            Ok(cache) => builder.cache(cache),
            Err(cause) => {
                log::error(&format!("{cause}; kernels are not cached"));
                builder
            }
        }
    }

    /// Makes reference kernels: in workers when their program is there, else here. It is safe code of this library that needs
    /// no tools, so kernels do not depend on workers.
    fn reference(&self, builder: KernelStoreBuilder, foresight: bool) -> KernelStoreBuilder {
        let here = Arc::new(ReferenceCompiler);
        if self.config.jit.limits.workers == 0 || foresight {
            return builder.compiler(here);
        }
        let places = WorkerPlaces {
            variable: self.config.jit.worker.clone().map(PathBuf::into_os_string),
            image: installation::image(),
            path: self.environment.get(&PATH).map(ToOwned::to_owned),
        };
        let program = match places.find() {
            Ok(program) => program,
            Err(cause) => {
                let message = format!("{cause}; reference kernels are compiled in this process");
                // Workers are optional, unless the user has named one.
                match &self.config.jit.worker {
                    Some(_) => log::error(&message),
                    None => log::info(|| message),
                }
                return builder.compiler(here);
            }
        };
        let compiler = WorkerCompiler::new(here.name(), WorkerCommand::new(program, [""; 0]), here.sources())
            .cache_folder(here.folder())
            .known_identity(here.identity())
            .limits(self.config.jit.limits.clone());
        // The second one is used only when no worker starts.
        builder.compiler(Arc::new(verbose::listen(compiler, &self.config.jit))).compiler(here)
    }

    /// Makes kernels for the array, when its designs are installed.
    fn iron(&self) -> Option<Arc<dyn KernelCompiler>> {
        let installed = || iron::installed(&installation::image()?).filter(|folder| folder.join(WORKER).is_file());
        let directory = self.config.jit.iron_directory.clone().or_else(installed)?;
        let places = IronPlaces { directory, kernels: None, python: self.config.jit.python.clone() };
        match places.compiler() {
            Ok(builder) => {
                Some(Arc::new(verbose::listen(builder.limits(self.config.jit.limits.clone()), &self.config.jit)))
            }
            Err(cause) => {
                log::error(&format!("{cause}; nothing is compiled for the array"));
                None
            }
        }
    }
}

/// Whether graphs are planned for `device` and never run, so that no kernel has to exist.
pub fn only_plans(device: &dyn Device) -> bool {
    device.info().simulated && Execution::of(&device.info().uri) == Ok(Execution::Plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::drivers;
    use aie_hal::ArchRegistry;
    use aie_ops::{DataType, Node, OpParams, Tensor, table};
    use rstest::rstest;

    fn open(uri: &str) -> Arc<dyn Device> {
        drivers::mock(ArchRegistry::builtin()).open(&uri.parse().unwrap()).unwrap().remove(0)
    }

    fn with_stores(pairs: &[(&str, &str)], check: impl FnOnce(&KernelStores<'_>)) {
        let folder = tempfile::tempdir().unwrap();
        let own = [("GGML_HSA_KERNEL_CACHE_DIR", folder.path().to_str().unwrap()), ("GGML_HSA_JIT_WORKERS", "0")];
        let environment = Environment::from_pairs(pairs.iter().copied().chain(own));
        let (config, problems) = Config::read(&environment);
        assert_eq!(problems, []);
        check(&KernelStores::new(&config, &environment));
    }

    /// No native family has TRI, and the reference compiler has every operation.
    #[rstest]
    #[case::reference("mock:aie2", &[], false)]
    #[case::emulated("mock:aie2?execute=emulated", &[], true)]
    #[case::chosen("mock:aie2", &[("GGML_HSA_COMPILERS", "native,reference")], true)]
    #[case::chosen_without("mock:aie2?execute=emulated", &[("GGML_HSA_COMPILERS", "reference")], false)]
    fn a_simulated_device_has_reference_kernels_for_all_the_rest(
        #[case] uri: &str,
        #[case] pairs: &[(&str, &str)],
        #[case] prefers_code: bool,
    ) {
        with_stores(pairs, |stores| {
            let device = open(uri);
            let store = stores.of(&*device).unwrap();
            assert_eq!(store.prefers_code(), prefers_code);
            let x = Tensor::contiguous(DataType::F32, [8, 8, 1, 1]);
            let node = Node::new("TRI", OpParams::default(), x, vec![Some(x)]);
            let supplied = store.find(table::lookup("TRI").unwrap(), &node, device.arch()).unwrap();
            assert_eq!(supplied.supplier.name(), "reference");
        });
    }

    #[test]
    fn devices_share_a_store_when_their_kernels_come_from_the_same_compilers() {
        with_stores(&[], |stores| {
            let of = |uri| stores.of(&*open(uri)).unwrap();
            assert!(Arc::ptr_eq(&of("mock:aie2"), &of("mock:aie2p")));
            assert!(!Arc::ptr_eq(&of("mock:aie2"), &of("mock:aie2?execute=emulated")));
            assert!(!Arc::ptr_eq(&of("mock:aie2"), &of("mock:aie2?execute=plan")));
        });
    }
}
