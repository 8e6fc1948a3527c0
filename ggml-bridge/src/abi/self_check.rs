//! Trying out structures on a ggml that is newer than any we know.
//!
//! ggml has changed its callback tables twice without raising the version number its loader checks. So before a newer
//! ggml gets a device, it gets a buffer type and a buffer whose callbacks give known answers, and is asked for them through its
//! public functions. If a member was inserted, an answer is wrong or missing.

use super::layout::Layout;
use super::symbols::Symbols;
use super::types::{BufferHead, BufferI, BufferTypeI, Inserted2d, Null, RawBuffer, RawBufferType};
use std::ffi::c_void;

const ALIGNMENT: usize = 4096;
const MAX_SIZE: usize = 0x1234_5000;
const BASE: usize = 0x5678_9000;

unsafe extern "C" fn name(_: *mut c_void) -> *const std::ffi::c_char {
    c"probe".as_ptr()
}

unsafe extern "C" fn alignment(_: *mut c_void) -> usize {
    ALIGNMENT
}

unsafe extern "C" fn max_size(_: *mut c_void) -> usize {
    MAX_SIZE
}

unsafe extern "C" fn is_host(_: *mut c_void) -> bool {
    true
}

unsafe extern "C" fn base(_: *mut c_void) -> *mut c_void {
    std::ptr::without_provenance_mut(BASE)
}

/// Asks for known answers.
///
/// # Errors
/// What was asked and what came back.
pub fn check(symbols: &Symbols) -> Result<(), String> {
    if symbols.layout != Layout::V3 {
        return Err("functions that came with ggml 0.26 are missing".into());
    }
    let equal = |what: &str, given: usize, expected: usize| {
        if given == expected { Ok(()) } else { Err(format!("{what} is {given:#x} instead of {expected:#x}")) }
    };
    let iface = BufferTypeI::<Null> {
        get_name: Some(name),
        get_alignment: Some(alignment),
        get_max_size: Some(max_size),
        is_host: Some(is_host),
        ..BufferTypeI::default()
    };
    let device = std::ptr::without_provenance_mut::<c_void>(0x10);
    // ggml deletes buffers, not buffer types. The buffer is left to it for good: freeing it would use the structures in doubt.
    let buft: *mut c_void =
        Box::into_raw(Box::new(RawBufferType { iface, device, context: std::ptr::null_mut() })).cast();
    let ask = |function: &'static str, object: *mut c_void| symbols.ask(function, object);
    equal("a buffer type's alignment", ask("ggml_backend_buft_get_alignment", buft)?, ALIGNMENT)?;
    equal("a buffer type's largest size", ask("ggml_backend_buft_get_max_size", buft)?, MAX_SIZE)?;
    equal("a buffer type's device", ask("ggml_backend_buft_get_device", buft)?, device.addr())?;
    equal("whether a buffer type is in host memory", ask("ggml_backend_buft_is_host", buft)? & 0xff, 1)?;

    let head = BufferHead { get_base: Some(base), ..BufferHead::default() };
    let iface = BufferI::<Inserted2d> { head, ..BufferI::default() };
    let context = std::ptr::without_provenance_mut(0x20);
    // SAFETY: the layout is V3; the callbacks use no context.
    let buffer = unsafe { symbols.buffer_init(buft, iface, context, 4096) };
    equal("a buffer's size", ask("ggml_backend_buffer_get_size", buffer)?, 4096)?;
    equal("a buffer's type", ask("ggml_backend_buffer_get_type", buffer)?, buft.addr())?;
    equal("a buffer's base", ask("ggml_backend_buffer_get_base", buffer)?, BASE)?;
    equal("a buffer's usage", ask("ggml_backend_buffer_get_usage", buffer)? & 0xffff_ffff, 0)?;
    // SAFETY: ggml returned a buffer whose size and type are where this structure has them.
    let (stored, usage) = unsafe {
        let buffer = &*buffer.cast::<RawBuffer<Inserted2d>>();
        (buffer.context, buffer.usage)
    };
    equal("a buffer's context", stored.addr(), context.addr())?;
    equal("a buffer's stored usage", usize::try_from(usage).unwrap_or(usize::MAX), 0)
}
