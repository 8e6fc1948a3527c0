//! Buffer types and buffers.
//!
//! Buffers are host-visible: ggml's CPU code and its model loader access them directly, so coherence with the device is
//! restored around each graph and not here. Only accesses that come through these callbacks wait for work in flight.

use super::ggml;
use super::guard::{guard, guard_device};
use super::layout::Layout;
use super::registry::backend_device;
use super::types::{
    BufferFields, BufferHead, BufferI, BufferTail, BufferTypeI, Inserted2d, Null, Omitted, RawBufferType, RawTensor,
};
use crate::config::log;
use crate::device::backend_device::BackendDevice;
use crate::memory::host_memory::ALIGNMENT;
use crate::memory::host_memory::HostSpan;
use aie_hal::{Buffer, DeviceError};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// What our buffer type's context points to. Lives as long as the process.
struct TypeContext {
    name: CString,
    device: Arc<BackendDevice>,
}

/// What a buffer's context points to. Owned by the buffer, freed in `free_buffer`.
struct BufferContext {
    device: Arc<BackendDevice>,
    buffer: Arc<dyn Buffer>,
    base: usize,
}

/// Makes the buffer type of a device, in the loaded layout. It lives as long as the process.
pub fn buffer_type(layout: Layout, owner: &Arc<BackendDevice>, device: *mut c_void) -> *mut c_void {
    let name = CString::new(owner.context.name.as_str()).unwrap_or_default();
    let context = Box::into_raw(Box::new(TypeContext { name, device: Arc::clone(owner) })).cast();
    match layout {
        Layout::V2a | Layout::V2b => type_object::<()>(device, context),
        Layout::V3 => type_object::<Null>(device, context),
    }
}

fn type_object<N: Omitted>(device: *mut c_void, context: *mut c_void) -> *mut c_void {
    let iface = BufferTypeI::<N> {
        get_name: Some(type_name),
        alloc_buffer: Some(alloc_buffer),
        get_alignment: Some(get_alignment),
        get_max_size: Some(get_max_size),
        is_host: Some(is_host),
        ..BufferTypeI::default()
    };
    Box::into_raw(Box::new(RawBufferType { iface, device, context })).cast()
}

/// The device of any buffer type, and whether its buffers are host memory.
///
/// # Safety
/// `buft` is a valid buffer type in the loaded layout.
pub unsafe fn inspect(layout: Layout, buft: *mut c_void) -> (*mut c_void, bool) {
    // SAFETY: by the contract of this function; the layout says which structure it is.
    let (device, is_host) = unsafe {
        match layout {
            Layout::V2a | Layout::V2b => {
                let buft = &*buft.cast::<RawBufferType<()>>();
                (buft.device, buft.iface.is_host)
            }
            Layout::V3 => {
                let buft = &*buft.cast::<RawBufferType<Null>>();
                (buft.device, buft.iface.is_host)
            }
        }
    };
    // SAFETY: the callback belongs to this buffer type.
    (device, is_host.is_some_and(|f| unsafe { f(buft) }))
}

/// # Safety
/// `buft` came from [`buffer_type`].
unsafe fn type_context(buft: *mut c_void) -> &'static TypeContext {
    let layout = ggml().map_or(Layout::V3, |g| g.symbols.layout);
    // SAFETY: by the contract of this function; the context was leaked there.
    unsafe {
        let context = match layout {
            Layout::V2a | Layout::V2b => (*buft.cast::<RawBufferType<()>>()).context,
            Layout::V3 => (*buft.cast::<RawBufferType<Null>>()).context,
        };
        &*context.cast::<TypeContext>()
    }
}

unsafe extern "C" fn type_name(buft: *mut c_void) -> *const c_char {
    // SAFETY: ggml passes the buffer type this callback belongs to.
    guard("buffer type name", c"HSA".as_ptr(), || unsafe { type_context(buft) }.name.as_ptr())
}

unsafe extern "C" fn get_alignment(_: *mut c_void) -> usize {
    ALIGNMENT
}

unsafe extern "C" fn get_max_size(buft: *mut c_void) -> usize {
    guard("buffer type size", usize::MAX, || {
        // SAFETY: as in `type_name`.
        unsafe { type_context(buft) }.device.context.hal.limits().max_buffer_bytes
    })
}

unsafe extern "C" fn is_host(_: *mut c_void) -> bool {
    true
}

unsafe extern "C" fn alloc_buffer(buft: *mut c_void, size: usize) -> *mut c_void {
    guard_device("alloc_buffer", null_mut(), || {
        // SAFETY: as in `type_name`.
        let device = &unsafe { type_context(buft) }.device;
        let allocated = device.context.allocate(size.max(1));
        wrap(buft, device, allocated, size, || format!("a buffer of {size} bytes cannot be allocated"))
    })
}

/// A buffer of type `buft` on memory of the program, which is used in place: the model loader offers the file it has mapped.
/// Null, with a message, if the device cannot.
///
/// # Safety
/// `buft` came from [`buffer_type`]; `size` bytes at `pointer` stay readable until the buffer is freed, and writable where a
/// tensor in them is written.
pub unsafe fn from_host(
    device: &Arc<BackendDevice>,
    buft: *mut c_void,
    pointer: *mut c_void,
    size: usize,
) -> *mut c_void {
    let base = pointer.expose_provenance();
    // SAFETY: by the contract of this function, for longer than any graph can name the span.
    let span = unsafe { HostSpan::new(base, size) };
    let imported = device.context.import(span).map(|buffer| (base, buffer));
    wrap(buft, device, imported, size, || format!("{size} bytes at {base:#x} cannot be used in place"))
}

/// Has ggml make its buffer object, which it deletes itself, for a buffer at an address. Null, with a message, if there is none.
fn wrap(
    buft: *mut c_void,
    device: &Arc<BackendDevice>,
    buffer: Result<(usize, Arc<dyn Buffer>), DeviceError>,
    size: usize,
    failure: impl FnOnce() -> String,
) -> *mut c_void {
    let (base, buffer) = match buffer {
        Ok(buffer) => buffer,
        Err(cause) => {
            log::error(&format!("{}: {}: {cause}", device.context.name, failure()));
            return null_mut();
        }
    };
    let Ok(ggml) = ggml() else { return null_mut() };
    let context = Box::into_raw(Box::new(BufferContext { device: Arc::clone(device), buffer, base })).cast();
    let head = BufferHead {
        free_buffer: Some(free_buffer),
        get_base: Some(get_base),
        init_tensor: None,
        memset_tensor: Some(memset_tensor),
        set_tensor: Some(set_tensor),
        get_tensor: Some(get_tensor),
    };
    let inserted = Inserted2d { set_tensor_2d: Some(set_tensor_2d), get_tensor_2d: Some(get_tensor_2d) };
    let tail = BufferTail { cpy_tensor: Some(cpy_tensor), clear: Some(clear), reset: None };
    // SAFETY: the table is the loaded layout's, and its callbacks expect a `BufferContext`.
    unsafe {
        match ggml.symbols.layout {
            Layout::V2a => ggml.symbols.buffer_init(buft, BufferI { head, inserted: (), tail }, context, size),
            Layout::V2b | Layout::V3 => ggml.symbols.buffer_init(buft, BufferI { head, inserted, tail }, context, size),
        }
    }
}

/// # Safety
/// `buffer` was made by [`wrap`] and not freed.
unsafe fn context_pointer(buffer: *mut c_void) -> *mut BufferContext {
    let layout = ggml().map_or(Layout::V3, |g| g.symbols.layout);
    // SAFETY: by the contract of this function.
    unsafe { BufferFields::of(layout, buffer) }.context.cast()
}

/// # Safety
/// As [`context_pointer`].
unsafe fn context<'a>(buffer: *mut c_void) -> &'a BufferContext {
    // SAFETY: by the contract of this function the context is alive.
    unsafe { &*context_pointer(buffer) }
}

impl BufferContext {
    /// The offset in the buffer of `offset` bytes into a tensor.
    ///
    /// # Safety
    /// `tensor` is a valid tensor.
    unsafe fn offset(&self, tensor: *const RawTensor, offset: usize) -> Result<usize, DeviceError> {
        // SAFETY: by the contract of this function.
        let data = unsafe { (*tensor).data }.addr();
        data.checked_sub(self.base).and_then(|start| start.checked_add(offset)).ok_or_else(|| {
            DeviceError::InvalidArgument(format!(
                "a tensor at {data:#x} is not in the buffer at {:#x}+{}",
                self.base,
                self.buffer.size()
            ))
        })
    }

    /// Writes `data` at `offset` bytes into a tensor.
    ///
    /// # Safety
    /// `tensor` is a valid tensor.
    unsafe fn write(&self, tensor: *const RawTensor, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: by the contract of this function.
        let at = unsafe { self.offset(tensor, offset) }?;
        self.device.write(self.base, &*self.buffer, at, data)
    }

    /// Reads from `offset` bytes into a tensor.
    ///
    /// # Safety
    /// `tensor` is a valid tensor.
    unsafe fn read(&self, tensor: *const RawTensor, offset: usize, target: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: by the contract of this function.
        let at = unsafe { self.offset(tensor, offset) }?;
        self.device.read(&*self.buffer, at, target)
    }
}

fn report(function: &str, result: Result<(), DeviceError>) {
    if let Err(cause) = result {
        log::error(&format!("{function}: {cause}; nothing was copied"));
    }
}

unsafe extern "C" fn free_buffer(buffer: *mut c_void) {
    guard_device("free_buffer", (), || {
        // SAFETY: ggml frees a buffer once; the context came from `Box::into_raw` in `wrap`.
        let context = unsafe { Box::from_raw(context_pointer(buffer)) };
        context.device.free(context.base, context.buffer.size());
    });
}

unsafe extern "C" fn get_base(buffer: *mut c_void) -> *mut c_void {
    // SAFETY: ggml passes a live buffer of ours.
    guard("get_base", null_mut(), || std::ptr::with_exposed_provenance_mut(unsafe { context(buffer) }.base))
}

unsafe extern "C" fn memset_tensor(buffer: *mut c_void, tensor: *mut RawTensor, value: u8, offset: usize, size: usize) {
    guard_device("memset_tensor", (), || {
        // SAFETY: ggml passes a live buffer of ours and a tensor in it.
        let (context, at) = unsafe { (context(buffer), context(buffer).offset(tensor, offset)) };
        let result =
            at.and_then(|at| context.device.fill(context.base, &*context.buffer, at..at.saturating_add(size), value));
        report("memset_tensor", result);
    });
}

unsafe extern "C" fn set_tensor(
    buffer: *mut c_void,
    tensor: *mut RawTensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: ggml passes a live buffer of ours, a tensor in it, and `size` readable bytes: one piece.
    unsafe { set_tensor_2d(buffer, tensor, data, offset, size, 1, 0, 0) };
}

unsafe extern "C" fn get_tensor(
    buffer: *mut c_void,
    tensor: *const RawTensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: ggml passes a live buffer of ours, a tensor in it, and `size` writable bytes that are its own: one piece.
    unsafe { get_tensor_2d(buffer, tensor, data, offset, size, 1, 0, 0) };
}

unsafe extern "C" fn set_tensor_2d(
    buffer: *mut c_void,
    tensor: *mut RawTensor,
    data: *const c_void,
    offset: usize,
    size: usize,
    copies: usize,
    stride_tensor: usize,
    stride_data: usize,
) {
    guard_device("set_tensor", (), || {
        for copy in 0..if size > 0 { copies } else { 0 } {
            // SAFETY: ggml passes a live buffer of ours, a tensor in it, and `copies` pieces of `size` readable bytes,
            // `stride_data` bytes apart.
            let result = unsafe {
                let piece = std::slice::from_raw_parts(data.cast::<u8>().add(copy * stride_data), size);
                context(buffer).write(tensor, offset + copy * stride_tensor, piece)
            };
            report("set_tensor", result);
        }
    });
}

unsafe extern "C" fn get_tensor_2d(
    buffer: *mut c_void,
    tensor: *const RawTensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
    copies: usize,
    stride_tensor: usize,
    stride_data: usize,
) {
    guard_device("get_tensor", (), || {
        for copy in 0..if size > 0 { copies } else { 0 } {
            // SAFETY: as in `set_tensor_2d`, with writable bytes that are the caller's own.
            let result = unsafe {
                let piece = std::slice::from_raw_parts_mut(data.cast::<u8>().add(copy * stride_data), size);
                context(buffer).read(tensor, offset + copy * stride_tensor, piece)
            };
            report("get_tensor", result);
        }
    });
}

/// Copies from any host-visible buffer. ggml has checked that both tensors have the same layout, and falls back to its own
/// copy when this returns false.
unsafe extern "C" fn cpy_tensor(buffer: *mut c_void, source: *const RawTensor, target: *mut RawTensor) -> bool {
    guard_device("cpy_tensor", false, || {
        let Ok(ggml) = ggml() else { return false };
        // SAFETY: ggml passes valid tensors, `target` in a live buffer of ours.
        let (source, to) = unsafe { (&*source, context(buffer)) };
        let Ok(shape) = super::graph::tensor(ggml, source) else { return false };
        let length = shape.span_bytes();
        if length == 0 || source.buffer.is_null() || source.data.is_null() {
            return length == 0;
        }
        let layout = ggml.symbols.layout;
        // SAFETY: a tensor's buffer is a live buffer in the loaded layout, and its type a valid buffer type.
        let (device, is_host) = unsafe { inspect(layout, BufferFields::of(layout, source.buffer).buft) };
        if !is_host {
            return false;
        }
        if let Some(owner) = backend_device(device) {
            owner.synchronize();
        }
        // SAFETY: the source is host memory of `length` bytes (`ggml_nbytes`).
        let data = unsafe { std::slice::from_raw_parts(source.data.cast::<u8>(), length) };
        // SAFETY: `target` is a tensor in this buffer.
        let result = unsafe { to.write(target, 0, data) };
        let copied = result.is_ok();
        report("cpy_tensor", result);
        copied
    })
}

unsafe extern "C" fn clear(buffer: *mut c_void, value: u8) {
    guard_device("clear", (), || {
        // SAFETY: ggml passes a live buffer of ours.
        let context = unsafe { context(buffer) };
        let result = context.device.fill(context.base, &*context.buffer, 0..context.buffer.size(), value);
        report("clear", result);
    });
}

/// A name in static storage, for messages.
pub fn c_name(name: &str) -> &'static CStr {
    Box::leak(CString::new(name.replace('\0', " ")).unwrap_or_default().into_boxed_c_str())
}
