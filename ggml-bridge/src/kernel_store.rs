//! Where the kernels of this process come from, put together from the settings.
//!
//! Devices of one kind share a store: simulated ones, whose kernels are reference artifacts, and NPUs, whose kernels are made
//! by IRON. Both have the kernels that were built into the library, the user's directory and the cache.

use crate::config::Config;
use crate::settings::PATH;
use crate::{log, verbose};
use aie_hal::{Device, Environment};
use aie_jit_iron::clear::clear;
use aie_jit_iron::installation;
use aie_jit_iron::iron::{self, IronPlaces, WORKER};
use aie_jit_iron::worker::locate::WorkerPlaces;
use aie_jit_iron::{
    KernelCache, KernelPack, KernelStore, KernelStoreBuilder, StoreError, WorkerCommand, WorkerCompiler,
};
use aie_ops::compiler::{KernelCompiler, ReferenceCompiler};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

// `const PACKS: &[(&str, &[u8])]`, file name and content of the packs in the directory that `GGML_HSA_EMBED_KERNELS` named, from
// the build script.
include!(concat!(env!("OUT_DIR"), "/embedded_packs.rs"));

/// The stores of a process. Each is made when the first device needs it.
pub struct KernelStores<'a> {
    config: &'a Config,
    environment: &'a Environment,
    simulated: OnceLock<Result<Arc<KernelStore>, StoreError>>,
    silicon: OnceLock<Result<Arc<KernelStore>, StoreError>>,
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
        Self { config, environment, simulated: OnceLock::new(), silicon: OnceLock::new() }
    }

    /// The store for a device.
    ///
    /// # Errors
    /// The kernel directory cannot be used, or there is nothing that could have kernels for the device;
    /// [`StoreError::NoKernels`] for one that is not simulated, unless work for the array must not go elsewhere: then it is
    /// offered, so that the work fails.
    pub fn of(&self, device: &dyn Device) -> Result<Arc<KernelStore>, StoreError> {
        let mock = device.info().driver == aie_driver_mock::SCHEME;
        let store = if mock || self.config.reference_kernels {
            self.simulated.get_or_init(|| self.reference(self.builder()).build().map(Arc::new))
        } else {
            self.silicon.get_or_init(|| {
                let builder = self.builder().for_silicon();
                let builder = self.iron().into_iter().fold(builder, KernelStoreBuilder::compiler);
                builder.build().map(Arc::new)
            })
        };
        let store = store.clone()?;
        match mock {
            true => store.serves(device.arch())?,
            false if self.config.require_array => {}
            false => store.supplies(device.arch())?,
        }
        Ok(store)
    }

    fn builder(&self) -> KernelStoreBuilder {
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
    fn reference(&self, builder: KernelStoreBuilder) -> KernelStoreBuilder {
        let here = Arc::new(ReferenceCompiler);
        if self.config.jit.limits.workers == 0 {
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
