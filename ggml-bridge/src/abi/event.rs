//! Events: points in the work of a stream.

use super::guard::guard_device;
use super::types::RawEvent;
use crate::plan::stream::Stream;
use aie_hal::TimelinePoint;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

/// What an event's context points to.
#[derive(Default)]
pub struct EventContext {
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
        // A stream that is gone synchronized when it was dropped.
        let stream = self.recorded.lock().as_ref().and_then(|(_, stream)| stream.upgrade());
        if let Some(stream) = stream {
            stream.synchronize();
        }
    }
}

/// # Safety
/// `event` came from `event_new` and was not freed.
pub unsafe fn event_context<'a>(event: *mut c_void) -> &'a EventContext {
    // SAFETY: by the contract of this function.
    unsafe { &*(*event.cast::<RawEvent>()).context.cast() }
}

/// Makes an event.
///
/// # Safety
/// Called by ggml, with a device and an event of ours.
pub unsafe extern "C" fn event_new(device: *mut c_void) -> *mut c_void {
    guard_device("event_new", null_mut(), || {
        let context = Box::into_raw(Box::<EventContext>::default()).cast();
        Box::into_raw(Box::new(RawEvent { device, context })).cast()
    })
}

/// Frees an event.
///
/// # Safety
/// Called by ggml, with a device and an event of ours.
pub unsafe extern "C" fn event_free(_: *mut c_void, event: *mut c_void) {
    guard_device("event_free", (), || {
        // SAFETY: both came from `Box::into_raw` in `event_new`, and ggml frees an event once.
        unsafe {
            let event = Box::from_raw(event.cast::<RawEvent>());
            drop(Box::from_raw(event.context.cast::<EventContext>()));
        }
    });
}

/// Waits for an event.
///
/// # Safety
/// Called by ggml, with a device and an event of ours.
pub unsafe extern "C" fn event_synchronize(_: *mut c_void, event: *mut c_void) {
    // SAFETY: ggml passes a live event of ours.
    guard_device("event_synchronize", (), || unsafe { event_context(event) }.synchronize());
}
