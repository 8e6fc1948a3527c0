//! Backends: streams of graphs.

use super::event::event_context;
use super::ggml;
use super::graph::GraphRef;
use super::guard::{guard, guard_device, parent};
use super::layout::Layout;
use super::registry::{backend_freed, backend_made};
use super::types::{BackendHead, BackendI, BackendTail, Inserted2d, RawBackend, RawGraph, Status};
use crate::config::log;
use crate::plan::stream::{ComputeError, Stream};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// ggml compares the bytes, and nothing else has these.
static mut GUID: [u8; 16] = *b"aie-hal-ggml-hsa";

/// What a backend's context points to. Owned by the backend, freed in `free`.
struct Context {
    stream: Arc<Stream>,
    name: &'static CStr,
}

/// Makes ggml's object for a stream, in the loaded layout.
pub fn make(layout: Layout, name: &'static CStr, device: *mut c_void, stream: Arc<Stream>) -> *mut c_void {
    let context = Box::into_raw(Box::new(Context { stream, name })).cast();
    backend_made();
    match layout {
        Layout::V2a => object::<()>(device, context),
        Layout::V2b | Layout::V3 => object::<Inserted2d>(device, context),
    }
}

fn object<I: Default>(device: *mut c_void, context: *mut c_void) -> *mut c_void {
    let head = BackendHead { get_name: Some(get_name), free: Some(free), ..BackendHead::default() };
    let tail = BackendTail {
        synchronize: Some(synchronize),
        graph_compute: Some(graph_compute),
        event_record: Some(event_record),
        event_wait: Some(event_wait),
        ..BackendTail::default()
    };
    let iface = BackendI { head, inserted: I::default(), tail };
    Box::into_raw(Box::new(RawBackend { guid: &raw mut GUID, iface, device, context })).cast()
}

fn layout() -> Layout {
    ggml().map_or(Layout::V3, |g| g.symbols.layout)
}

/// # Safety
/// `backend` was made by [`make`] and not freed.
unsafe fn context<'a>(backend: *mut c_void) -> &'a Context {
    // SAFETY: by the contract of this function; `make` used the same layout.
    unsafe {
        let context = match layout() {
            Layout::V2a => (*backend.cast::<RawBackend<()>>()).context,
            Layout::V2b | Layout::V3 => (*backend.cast::<RawBackend<Inserted2d>>()).context,
        };
        &*context.cast::<Context>()
    }
}

unsafe extern "C" fn get_name(backend: *mut c_void) -> *const c_char {
    // SAFETY: ggml passes a live backend of ours, here and in the functions below.
    guard("backend name", c"HSA".as_ptr(), || unsafe { context(backend) }.name.as_ptr())
}

unsafe extern "C" fn free(backend: *mut c_void) {
    guard_device("backend free", (), || {
        // SAFETY: as above; ggml frees a backend once, and both parts came from `Box::into_raw` in `make`.
        let context = unsafe {
            match layout() {
                Layout::V2a => Box::from_raw(backend.cast::<RawBackend<()>>()).context,
                Layout::V2b | Layout::V3 => Box::from_raw(backend.cast::<RawBackend<Inserted2d>>()).context,
            }
        };
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(context.cast::<Context>()) });
        backend_freed();
    });
}

unsafe extern "C" fn synchronize(backend: *mut c_void) {
    // SAFETY: as above.
    guard_device("synchronize", (), || unsafe { context(backend) }.stream.synchronize());
}

unsafe extern "C" fn graph_compute(backend: *mut c_void, graph: *mut RawGraph) -> Status {
    if let Some(parent) = parent() {
        log::error(&format!(
            "a graph cannot be computed: the devices belong to process {}, and a forked child of it cannot use them; start a program \
             instead, or fork before llama.cpp loads its backends",
            parent.id()
        ));
    }
    guard_device("graph_compute", Status::Failed, || {
        // SAFETY: as above. ggml keeps a graph unchanged during this call, and the memory of its tensors valid until it has
        // synchronised with the backend after the last time it computed the graph.
        let (stream, graph) = unsafe { (&context(backend).stream, GraphRef::new(graph)) };
        match graph.map_err(ComputeError::from).and_then(|graph| stream.compute(&graph)) {
            Ok(()) => Status::Success,
            Err(cause) => {
                log::error(&format!("{}: a graph cannot be computed: {cause}", stream.name()));
                Status::Failed
            }
        }
    })
}

unsafe extern "C" fn event_record(backend: *mut c_void, event: *mut c_void) {
    // SAFETY: as above, and the event is a live one of this device.
    guard_device("event_record", (), || unsafe { event_context(event).record(&context(backend).stream) });
}

unsafe extern "C" fn event_wait(backend: *mut c_void, event: *mut c_void) {
    guard_device("event_wait", (), || {
        // SAFETY: as above.
        let (stream, event) = unsafe { (&context(backend).stream, event_context(event)) };
        if let Some(point) = event.point() {
            stream.wait_for(point);
        }
    });
}
