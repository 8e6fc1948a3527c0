//! Devices as ggml asks them. What ggml points to is made once and lives as long as the process.

use super::buffer::{self, buffer_type, c_name, inspect};
use super::event::{event_free, event_new, event_synchronize};
use super::guard::{guard, guard_device};
use super::layers::{Layer, Layers};
use super::layout::Layout;
use super::registry::{RegisteredDevice, Registry, backend_device, registry};
use super::types::{DeviceI, RawDevice, RawDeviceCaps, RawDeviceProps, RawTensor};
use super::{backend, ggml, graph};
use crate::config::device_type::{DeviceType, FIT_MEMORY};
use crate::config::log;
use crate::device::backend_device::BackendDevice;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Makes what ggml points to for a device.
pub fn register(layout: Layout, reg: *mut c_void, device: Arc<BackendDevice>) -> &'static RegisteredDevice {
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
    let raw = Box::into_raw(Box::new(RawDevice { iface, reg, context: null_mut() }));
    let buffer_type = buffer_type(layout, &device, raw.cast());
    let (name, description) = (c_name(&device.context.name), c_name(&device.description));
    let registered: &'static RegisteredDevice =
        Box::leak(Box::new(RegisteredDevice { device, name, description, raw, buffer_type }));
    // SAFETY: the device was made above and no one else knows it yet.
    unsafe { (*raw).context = std::ptr::from_ref(registered).cast_mut().cast() };
    registered
}

/// # Safety
/// `device` is one of ours.
unsafe fn of(device: *mut c_void) -> &'static RegisteredDevice {
    // SAFETY: by the contract of this function; devices are never freed.
    unsafe { &*(*device.cast::<RawDevice>()).context.cast::<RegisteredDevice>() }
}

unsafe extern "C" fn get_name(device: *mut c_void) -> *const c_char {
    // SAFETY: ggml passes a device of ours, here and in the functions below.
    unsafe { of(device) }.name.as_ptr()
}

unsafe extern "C" fn get_description(device: *mut c_void) -> *const c_char {
    // SAFETY: as above.
    unsafe { of(device) }.description.as_ptr()
}

fn memory(registered: &RegisteredDevice) -> (usize, usize) {
    let report = registered.device.context.hal.memory();
    let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    (size(report.free.max(FIT_MEMORY).min(report.total)), size(report.total))
}

unsafe extern "C" fn get_memory(device: *mut c_void, free: *mut usize, total: *mut usize) {
    // SAFETY: as above, and `free` and `total` are writable.
    guard("get_memory", (), || unsafe { (*free, *total) = memory(of(device)) });
}

unsafe extern "C" fn get_type(_: *mut c_void) -> c_int {
    guard("get_type", DeviceType::Accel, || registry().map_or(DeviceType::Accel, Registry::device_type)) as c_int
}

unsafe extern "C" fn get_props(device: *mut c_void, props: *mut RawDeviceProps) {
    guard("get_props", (), || {
        // SAFETY: as above, and `props` is a writable structure, whose last member is in the padding of older versions.
        unsafe {
            let registered = of(device);
            let (memory_free, memory_total) = memory(registered);
            props.write(RawDeviceProps {
                name: registered.name.as_ptr(),
                description: registered.description.as_ptr(),
                memory_free,
                memory_total,
                device_type: get_type(device),
                device_id: std::ptr::null(),
                caps: RawDeviceCaps {
                    async_: Registry::asynchronous(),
                    host_buffer: false,
                    buffer_from_host_ptr: registered.device.context.imports(),
                    events: true,
                    mmap_support: true,
                },
            });
        }
    });
}

unsafe extern "C" fn init_backend(device: *mut c_void, _: *const c_char) -> *mut c_void {
    guard_device("init_backend", null_mut(), || {
        // SAFETY: as above.
        let registered = unsafe { of(device) };
        let name = &registered.device.context.name;
        match (ggml(), registered.device.create_stream(Registry::asynchronous())) {
            (Ok(ggml), Ok(stream)) => backend::make(ggml.symbols.layout, registered.name, device, stream),
            (Err(cause), _) => {
                log::error(&format!("{}: {cause}", name));
                null_mut()
            }
            (_, Err(cause)) => {
                log::error(&format!("{}: cannot be used: {cause}", name));
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
    guard_device("buffer_from_host_ptr", null_mut(), || {
        // SAFETY: as above; ggml keeps the memory until it frees the buffer.
        unsafe {
            let registered = of(device);
            buffer::from_host(&registered.device, registered.buffer_type, pointer, size)
        }
    })
}

unsafe extern "C" fn supports_op(device: *mut c_void, op: *const RawTensor) -> bool {
    guard("supports_op", false, || {
        let Ok(ggml) = ggml() else { return false };
        // SAFETY: as above, and `op` and its sources are valid tensors.
        let (owner, op) = unsafe { (&of(device).device, &*op) };
        let layers = Layers { layout: ggml.symbols.layout, device, kind: &|op| ggml.names.op(op) };
        // SAFETY: as above. Where a tensor has a buffer, it is valid, as is what the sources were made of.
        let takes = match unsafe { layers.of(op) } {
            Layer::Own => true,
            Layer::Lookup => !owner.context.leaves_layers(),
            Layer::Foreign => {
                owner.context.leave_layer();
                false
            }
        };
        // SAFETY: as above. Their data is not looked at.
        let supported = takes
            && match unsafe { graph::node(ggml, op) } {
                Ok(None) => true,
                Ok(Some(node)) => owner.context.supports(&node),
                Err(_) => false,
            };
        if !supported && !op.view_src.is_null() && !op.data.is_null() {
            owner.left_to_others(op.data.addr());
        }
        supported
    })
}

/// Our own buffers, and, where it is imported, all host memory that does not belong to another of our devices:
/// inputs are then used in place. Layers whose weights are there are left to the CPU by [`supports_op`].
unsafe extern "C" fn supports_buft(device: *mut c_void, buft: *mut c_void) -> bool {
    guard("supports_buft", false, || {
        let Ok(ggml) = ggml() else { return false };
        // SAFETY: ggml passes a valid buffer type.
        let (owner, is_host) = unsafe { inspect(ggml.symbols.layout, buft) };
        if owner == device {
            return true;
        }
        // SAFETY: ggml asks with a device of ours.
        is_host && backend_device(owner).is_none() && unsafe { of(device) }.device.context.imports()
    })
}
