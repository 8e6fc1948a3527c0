//! The registry, devices and events.
//!
//! Everything here is made once and lives as long as the process: ggml keeps the pointers, and may load a backend twice.

use super::backend;
use super::buffer::{self, buffer_type, c_name, inspect};
use super::graph;
use super::guard::guard;
use super::layout::Layout;
use super::types::{DeviceI, RawDevice, RawDeviceCaps, RawDeviceProps, RawEvent, RawRegistry, RawTensor, RegistryI};
use super::{Ggml, ggml};
use crate::device_type::{DeviceType, FIT_MEMORY};
use crate::log;
use crate::npu::Npu;
use crate::statistics::StatisticsFile;
use crate::stream::Stream;
use crate::tally;
use aie_hal::TimelinePoint;
use parking_lot::Mutex;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// A device and what ggml points to.
struct Record {
    npu: Arc<Npu>,
    name: &'static CStr,
    description: &'static CStr,
    device: *mut RawDevice,
    buffer_type: *mut c_void,
}

// SAFETY: the pointers lead to objects that are never freed or changed after they were made.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

/// All devices of this process.
pub struct Registry {
    raw: *mut RawRegistry,
    records: Vec<&'static Record>,
    forced_type: Option<DeviceType>,
    statistics: Option<StatisticsFile>,
    backends: AtomicUsize,
    /// Whether it was said that nothing ran on the array.
    told: AtomicBool,
}

// SAFETY: `raw` leads to an object that is never freed or changed.
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

impl Registry {
    /// The registry, made by `devices` the first time.
    pub fn get_or_make(
        ggml: &Ggml,
        devices: impl FnOnce() -> (Vec<Arc<Npu>>, Option<DeviceType>, Option<StatisticsFile>),
    ) -> &'static Self {
        REGISTRY.get_or_init(|| {
            let (npus, forced_type, statistics) = devices();
            let layout = ggml.symbols.layout;
            let iface = RegistryI {
                get_name: Some(registry_name),
                get_device_count: Some(device_count),
                get_device: Some(get_device),
                get_proc_address: None,
            };
            let api_version = layout.api_version();
            let raw = Box::into_raw(Box::new(RawRegistry { api_version, iface, context: null_mut() }));
            let records = npus.into_iter().map(|npu| record(layout, raw.cast(), npu)).collect();
            Self { raw, records, forced_type, statistics, backends: AtomicUsize::new(0), told: AtomicBool::new(false) }
        })
    }

    /// What `ggml_backend_init` returns.
    pub fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// The types of devices that are not ours.
    fn others() -> Vec<c_int> {
        let ours = |device: *mut c_void| npu_of(device).is_some();
        ggml().map(|g| g.symbols.other_device_types(ours)).unwrap_or_default()
    }

    fn device_type(&self) -> DeviceType {
        match self.forced_type {
            Some(kind) => kind,
            None => DeviceType::choose(None, &Self::others(), self.smallest_memory()),
        }
    }

    fn smallest_memory(&self) -> u64 {
        self.records.iter().map(|record| record.npu.device().memory().total).min().unwrap_or_default()
    }

    /// Whether graphs may still run when `graph_compute` returns.
    ///
    /// Our buffers are host-visible, so after our part of a graph the scheduler lets the CPU backend read them in place. It
    /// waits for us before it does so from 0.26 on, if the CPU's part has no inputs from elsewhere; with a second GPU it can
    /// have such inputs. In the other cases a graph is complete when `graph_compute` returns.
    fn asynchronous() -> bool {
        let known = ggml().is_ok_and(|g| g.symbols.layout == Layout::V3);
        known && DeviceType::choose(None, &Self::others(), u64::MAX) == DeviceType::Igpu
    }

    /// Writes statistics, if asked for, and says once if all the work went to the host. For the end of a run: the last backend
    /// was freed, or the process ends.
    pub fn report(&self) {
        let npus: Vec<Arc<Npu>> = self.records.iter().map(|r| Arc::clone(&r.npu)).collect();
        if let Some(file) = &self.statistics {
            file.write(&npus);
        }
        if let Some(warning) = tally::of(&npus).warning()
            && !self.told.swap(true, Ordering::Relaxed)
        {
            log::notice(&warning);
        }
    }

    /// Gives back what the devices keep for later graphs, because the process ends.
    pub fn let_go(&self) {
        self.records.iter().for_each(|record| record.npu.let_go());
    }
}

/// The registry, if there is one.
pub fn registry() -> Option<&'static Registry> {
    REGISTRY.get()
}

/// Notes that a backend was made.
pub fn backend_made() {
    if let Some(registry) = registry() {
        registry.backends.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes that a backend was freed; the last one ends a run.
pub fn backend_freed() {
    if let Some(registry) = registry()
        && registry.backends.fetch_sub(1, Ordering::Relaxed) == 1
    {
        registry.report();
    }
}

/// Our device behind a ggml device, if it is one of ours.
pub fn npu_of(device: *mut c_void) -> Option<&'static Arc<Npu>> {
    let records = &registry()?.records;
    records.iter().find(|r| r.device.cast() == device).map(|r| &r.npu)
}

fn record(layout: Layout, reg: *mut c_void, npu: Arc<Npu>) -> &'static Record {
    let iface = DeviceI {
        get_name: Some(get_name),
        get_description: Some(get_description),
        get_memory: Some(get_memory),
        get_type: Some(get_type),
        get_props: Some(get_props),
        init_backend: Some(init_backend),
        get_buffer_type: Some(get_buffer_type),
        get_host_buffer_type: None,
        buffer_from_host_ptr: Some(buffer_from_host_ptr),
        supports_op: Some(supports_op),
        supports_buft: Some(supports_buft),
        offload_op: None,
        event_new: Some(event_new),
        event_free: Some(event_free),
        event_synchronize: Some(event_synchronize),
    };
    let device = Box::into_raw(Box::new(RawDevice { iface, reg, context: null_mut() }));
    let buffer_type = buffer_type(layout, &npu, device.cast());
    let (name, description) = (c_name(npu.name()), c_name(npu.description()));
    let record: &'static Record = Box::leak(Box::new(Record { npu, name, description, device, buffer_type }));
    // SAFETY: the device was made above and nobody else knows it yet.
    unsafe { (*device).context = std::ptr::from_ref(record).cast_mut().cast() };
    record
}

/// # Safety
/// `device` is one of ours.
unsafe fn of(device: *mut c_void) -> &'static Record {
    // SAFETY: by the contract of this function; devices and records are never freed.
    unsafe { &*(*device.cast::<RawDevice>()).context.cast::<Record>() }
}

unsafe extern "C" fn registry_name(_: *mut c_void) -> *const c_char {
    c"HSA".as_ptr()
}

unsafe extern "C" fn device_count(_: *mut c_void) -> usize {
    registry().map_or(0, |r| r.records.len())
}

unsafe extern "C" fn get_device(_: *mut c_void, index: usize) -> *mut c_void {
    guard("get_device", null_mut(), || {
        registry().and_then(|r| r.records.get(index)).map_or(null_mut(), |r| r.device.cast())
    })
}

unsafe extern "C" fn get_name(device: *mut c_void) -> *const c_char {
    // SAFETY: ggml passes a device of ours, here and in the functions below.
    unsafe { of(device) }.name.as_ptr()
}

unsafe extern "C" fn get_description(device: *mut c_void) -> *const c_char {
    // SAFETY: as above.
    unsafe { of(device) }.description.as_ptr()
}

fn memory(record: &Record) -> (usize, usize) {
    let report = record.npu.device().memory();
    let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    (size(report.free.max(FIT_MEMORY).min(report.total)), size(report.total))
}

unsafe extern "C" fn get_memory(device: *mut c_void, free: *mut usize, total: *mut usize) {
    // SAFETY: as above, and `free` and `total` are writable.
    guard("get_memory", (), || unsafe { (*free, *total) = memory(of(device)) });
}

unsafe extern "C" fn get_type(_: *mut c_void) -> c_int {
    guard("get_type", DeviceType::Accel.raw() as c_int, || {
        registry().map_or(DeviceType::Accel, Registry::device_type).raw() as c_int
    })
}

unsafe extern "C" fn get_props(device: *mut c_void, props: *mut RawDeviceProps) {
    guard("get_props", (), || {
        // SAFETY: as above, and `props` is a writable structure, whose last member is in the padding of older versions.
        unsafe {
            let record = of(device);
            let (memory_free, memory_total) = memory(record);
            props.write(RawDeviceProps {
                name: record.name.as_ptr(),
                description: record.description.as_ptr(),
                memory_free,
                memory_total,
                device_type: get_type(device),
                device_id: std::ptr::null(),
                caps: RawDeviceCaps {
                    async_: Registry::asynchronous(),
                    host_buffer: false,
                    buffer_from_host_ptr: record.npu.device().info().host_import,
                    events: true,
                    mmap_support: true,
                },
            });
        }
    });
}

unsafe extern "C" fn init_backend(device: *mut c_void, _: *const c_char) -> *mut c_void {
    guard("init_backend", null_mut(), || {
        // SAFETY: as above.
        let record = unsafe { of(device) };
        let npu = &record.npu;
        match (ggml(), Stream::new(Arc::clone(npu), Registry::asynchronous())) {
            (Ok(ggml), Ok(stream)) => backend::make(ggml.symbols.layout, record.name, device, stream),
            (Err(cause), _) => {
                log::error(&format!("{}: {cause}", npu.name()));
                null_mut()
            }
            (_, Err(cause)) => {
                log::error(&format!("{}: cannot be used: {cause}", npu.name()));
                null_mut()
            }
        }
    })
}

unsafe extern "C" fn get_buffer_type(device: *mut c_void) -> *mut c_void {
    // SAFETY: as above.
    unsafe { of(device) }.buffer_type
}

/// Where the device can import: a mapped model file then needs no second copy in device memory.
unsafe extern "C" fn buffer_from_host_ptr(
    device: *mut c_void,
    pointer: *mut c_void,
    size: usize,
    _: usize,
) -> *mut c_void {
    guard("buffer_from_host_ptr", null_mut(), || {
        // SAFETY: as above; ggml keeps the memory until it frees the buffer.
        unsafe {
            let record = of(device);
            buffer::from_host(&record.npu, record.buffer_type, pointer, size)
        }
    })
}

unsafe extern "C" fn supports_op(device: *mut c_void, op: *const RawTensor) -> bool {
    guard("supports_op", false, || {
        let Ok(ggml) = ggml() else { return false };
        // SAFETY: as above, and `op` and its sources are valid tensors.
        let (npu, op) = unsafe { (&of(device).npu, &*op) };
        // SAFETY: as above. Their data and buffers are not looked at.
        let supported = match unsafe { graph::node(ggml, op) } {
            Ok(None) => true,
            Ok(Some(node)) => npu.supports(&node),
            Err(_) => false,
        };
        if !supported && !op.view_src.is_null() && !op.data.is_null() {
            npu.left_to_others(op.data.addr());
        }
        supported
    })
}

/// Our own buffers, and, where the device can import it, all host memory that does not belong to another of our devices.
unsafe extern "C" fn supports_buft(device: *mut c_void, buft: *mut c_void) -> bool {
    guard("supports_buft", false, || {
        let Ok(ggml) = ggml() else { return false };
        // SAFETY: ggml passes a valid buffer type.
        let (owner, is_host) = unsafe { inspect(ggml.symbols.layout, buft) };
        if owner == device {
            return true;
        }
        // SAFETY: ggml asks with a device of ours.
        let imports = unsafe { of(device) }.npu.device().info().host_import;
        is_host && imports && npu_of(owner).is_none()
    })
}

/// What an event's context points to.
#[derive(Default)]
pub struct EventContext {
    /// The last recorded point and its stream.
    recorded: Mutex<Option<(TimelinePoint, Weak<Stream>)>>,
}

impl EventContext {
    /// Records what `stream` has submitted so far.
    pub fn record(&self, stream: &Arc<Stream>) {
        *self.recorded.lock() = Some((stream.point(), Arc::downgrade(stream)));
    }

    /// The recorded point.
    pub fn point(&self) -> Option<TimelinePoint> {
        self.recorded.lock().as_ref().map(|(point, _)| point.clone())
    }

    fn synchronize(&self) {
        let recorded = self.recorded.lock().clone();
        if let Some((point, stream)) = recorded {
            match stream.upgrade() {
                Some(stream) => stream.settle(),
                // The stream settled when it was dropped.
                None => drop(point),
            }
        }
    }
}

/// # Safety
/// `event` came from `event_new` and was not freed.
pub unsafe fn event_context<'a>(event: *mut c_void) -> &'a EventContext {
    // SAFETY: by the contract of this function.
    unsafe { &*(*event.cast::<RawEvent>()).context.cast() }
}

unsafe extern "C" fn event_new(device: *mut c_void) -> *mut c_void {
    guard("event_new", null_mut(), || {
        let context = Box::into_raw(Box::<EventContext>::default()).cast();
        Box::into_raw(Box::new(RawEvent { device, context })).cast()
    })
}

unsafe extern "C" fn event_free(_: *mut c_void, event: *mut c_void) {
    guard("event_free", (), || {
        // SAFETY: both came from `Box::into_raw` in `event_new`, and ggml frees an event once.
        unsafe {
            let event = Box::from_raw(event.cast::<RawEvent>());
            drop(Box::from_raw(event.context.cast::<EventContext>()));
        }
    });
}

unsafe extern "C" fn event_synchronize(_: *mut c_void, event: *mut c_void) {
    // SAFETY: ggml passes a live event of ours.
    guard("event_synchronize", (), || unsafe { event_context(event) }.synchronize());
}
