//! The device behind the vfio-user protocol: one client, which is QEMU's `vfio-user-pci`.

use crate::config_space::{ConfigSpace, VECTORS};
use crate::device::Device;
use std::fs::File;
use std::io::Error;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error as ThisError;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

/// The device cannot be served.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket cannot be made.
    #[error("cannot create the socket {path}: {cause}")]
    Socket {
        /// Where.
        path: String,
        /// Why.
        cause: String,
    },
    /// The connection has failed.
    #[error("the connection to the virtual machine has failed: {0}")]
    Connection(String),
}

/// A device that waits for a virtual machine.
pub struct Listener {
    server: Server,
    device: Arc<Device>,
}

impl Listener {
    /// Makes the socket. A file that is left from another run is not replaced.
    ///
    /// # Errors
    /// [`ServeError::Socket`].
    pub fn new(device: Arc<Device>, socket: &Path) -> Result<Self, ServeError> {
        let server = Server::new(socket, true, interrupts(), regions(&device));
        let server = server
            .map_err(|cause| ServeError::Socket { path: socket.display().to_string(), cause: cause.to_string() })?;
        Ok(Self { server, device })
    }

    /// Serves one virtual machine until it ends. The socket is removed afterwards.
    ///
    /// # Errors
    /// [`ServeError::Connection`].
    pub fn serve(self) -> Result<(), ServeError> {
        let served = self.server.run(&mut Backend(self.device.clone()));
        self.device.journal.flush();
        served.map_err(|cause| ServeError::Connection(cause.to_string()))
    }
}

fn regions(device: &Device) -> Vec<ServerRegion> {
    let bars = &device.settings.model.layout.bars;
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match bars.get(index as usize) {
                Some(bytes) => u64::from(*bytes),
                None if index == VFIO_PCI_CONFIG_REGION_INDEX => ConfigSpace::length() as u64,
                None => 0,
            };
            let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
            let argsz = size_of::<vfio_region_info>() as u32;
            let region_info = vfio_region_info { argsz, index, flags, size, ..vfio_region_info::default() };
            ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
        })
        .collect()
}

fn interrupts() -> Vec<IrqInfo> {
    let info = |index| match index {
        VFIO_PCI_MSIX_IRQ_INDEX => {
            IrqInfo { index, flags: VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE, count: u32::from(VECTORS) }
        }
        _ => IrqInfo { index, flags: 0, count: 0 },
    };
    (0..VFIO_PCI_NUM_IRQS).map(info).collect()
}

struct Backend(Arc<Device>);

impl Backend {
    /// Logs a request that fails; QEMU says little about it.
    fn logged<T>(&self, what: &str, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| {
            self.0.journal.note(format!("{what}: {error}"));
            eprintln!("aie-npu-pci: {what}: {error}");
        })
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            self.0.read_config(usize::try_from(offset).unwrap_or(usize::MAX), data);
        } else {
            self.0.read(region, offset, data);
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            self.0.write_config(usize::try_from(offset).unwrap_or(usize::MAX), data);
        } else {
            self.0.write(region, offset, data);
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), Error> {
        self.0.journal.detail(format_args!("map    {address:#x}+{size:#x} offset {offset:#x} flags {flags:?}"));
        // Without a file it is not memory, but another device's registers.
        let Some(file) = fd else { return Ok(()) };
        let mapped = self.0.space.map(address, size, &file, offset, flags.contains(DmaMapFlags::WRITE));
        self.logged("the guest's memory cannot be mapped", mapped)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> Result<(), Error> {
        self.0.journal.detail(format_args!("unmap  {address:#x}+{size:#x}"));
        let all = flags.contains(DmaUnmapFlags::UNMAP_ALL);
        let range = if all { 0..u64::MAX } else { address..address.saturating_add(size) };
        let unmapped = self.0.space.unmap(range);
        self.logged("the guest's memory cannot be unmapped", unmapped)
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.0.journal.detail(format_args!("reset"));
        self.0.reset();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> Result<(), Error> {
        self.0
            .journal
            .detail(format_args!("irqs   index {index} flags {flags:#x} from {start}, {count}, {} files", fds.len()));
        if index == VFIO_PCI_MSIX_IRQ_INDEX {
            if flags & VFIO_IRQ_SET_DATA_NONE != 0 && count == 0 {
                self.0.clear_interrupts();
            } else if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                self.0.set_interrupts(start as usize, fds);
            }
        }
        Ok(())
    }
}
