//! The driver: which simulated devices there are, and opening them.

use crate::device::{MockDevice, title};
use crate::execution::Execution;
use crate::npu::compiled::CompiledArray;
use crate::npu::trace::Trace;
use crate::options::{DEFAULT_ARCH, Options};
use aie_hal::KernelExecutor;
use aie_hal::arch::ArchRegistry;
use aie_hal::device::Device;
use aie_hal::driver::{DeviceListing, Driver};
use aie_hal::error::DriverError;
use aie_hal::{Arch, DeviceUri};
use std::sync::Arc;

/// Bytes of the data pool where the machine does not say how much memory it has.
const FALLBACK_MEMORY: usize = 4 << 30;
/// The same where memory is only planned: more than any model needs.
const PLANNED_MEMORY: usize = 1 << 44;

/// The driver of simulated NPUs, scheme `mock`. Thread-safe.
///
/// Every generation of its registry can be opened. Each [`Driver::open`] makes new devices that share nothing with earlier
/// ones.
#[derive(Debug)]
pub struct MockDriver {
    executor: Arc<dyn KernelExecutor>,
    registry: ArchRegistry,
}

impl MockDriver {
    /// A driver whose devices execute kernels with `executor` and know the built-in generations.
    pub fn new(executor: Arc<dyn KernelExecutor>) -> Self {
        Self { executor, registry: ArchRegistry::builtin() }
    }

    /// The same with other generations, for instance those of [`ArchRegistry::from_environment`].
    #[must_use]
    pub fn with_registry(self, registry: ArchRegistry) -> Self {
        Self { registry, ..self }
    }

    /// Whether `uri` can be opened. Opens nothing, and writes no file.
    ///
    /// # Errors
    /// Those of [`Driver::open`].
    pub fn check(&self, uri: &DeviceUri) -> Result<(), DriverError> {
        self.arch(uri, &Options::parse(uri)?.arch).map(drop)
    }

    fn uris(&self) -> String {
        self.registry.names().map(|name| format!("{}:{name}", crate::SCHEME)).collect::<Vec<_>>().join(", ")
    }

    fn arch(&self, uri: &DeviceUri, name: &str) -> Result<Arc<Arch>, DriverError> {
        self.registry.get(name).ok_or_else(|| DriverError::NoSuchDevice {
            uri: uri.to_string(),
            reason: format!("there is no arch file for `{name}`"),
            available: self.uris(),
        })
    }
}

impl Driver for MockDriver {
    fn scheme(&self) -> &'static str {
        crate::SCHEME
    }

    fn enumerate(&self) -> Result<Vec<DeviceListing>, DriverError> {
        // The default first, so that "the first device" is the one that `mock` opens.
        let mut archs: Vec<_> = self.registry.names().filter_map(|name| self.registry.get(name)).collect();
        archs.sort_by_key(|arch| arch.name != DEFAULT_ARCH);
        let listing = |arch: Arc<Arch>| {
            let uri = DeviceUri::parse(&format!("{}:{}", crate::SCHEME, arch.name))?;
            Ok(DeviceListing { uri, name: title(&arch), arch: Some(arch.name.clone()), disabled: None })
        };
        archs.into_iter().map(listing).collect()
    }

    fn open(&self, uri: &DeviceUri) -> Result<Vec<Arc<dyn Device>>, DriverError> {
        if uri.scheme() != crate::SCHEME {
            return Err(DriverError::UnknownScheme {
                uri: uri.to_string(),
                scheme: uri.scheme().to_owned(),
                available: crate::SCHEME.to_owned(),
            });
        }
        let options = Options::parse(uri)?;
        let arch = self.arch(uri, &options.arch)?;
        let capacity = options.memory.unwrap_or_else(|| match options.execution {
            Execution::Plan => PLANNED_MEMORY,
            _ => available_memory(),
        });
        let indices = options.index.map_or(0..options.devices, |index| index..index + 1);
        indices
            .map(|index| {
                let path = match options.devices {
                    1 => arch.name.clone(),
                    _ => format!("{}/{index}", arch.name),
                };
                let uri = uri.with_path(&path)?;
                let mut compiled = CompiledArray::new(Arc::clone(&arch));
                compiled.set_order(options.seed, options.seeds, options.reloads);
                compiled.keep_residue(options.keeps_residue);
                compiled.set_loops(options.loops);
                options.cycles.into_iter().for_each(|cycles| compiled.set_cycle_limit(cycles));
                if let Some(path) = &options.trace {
                    let trace = Trace::create(path, arch.cost.clock_mhz.expected);
                    let why = |error| format!("{} cannot be made: {error}", path.display());
                    compiled.set_trace(trace.map_err(|error| uri.invalid_param("trace", why(error)))?);
                }
                let device = MockDevice::open(uri, &arch, &options, capacity, Arc::clone(&self.executor), compiled);
                Ok(Arc::new(device) as Arc<dyn Device>)
            })
            .collect()
    }
}

/// Memory that the machine can give away now, in whole pages. The simulated device has no memory of its own, so this is
/// what its data pool really holds.
fn available_memory() -> usize {
    let kibibytes = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
    });
    kibibytes.and_then(|k| k.checked_mul(1024)).map_or(FALLBACK_MEMORY, |bytes| bytes & !4095)
}
