//! Takes down the calls of an open node, for a bug report.

use super::call_error::CallError;
use amdxdna_sys::layout::ioctls;
use amdxdna_sys::recording::{Fields, MMAP, OK, OPEN, RecordedCall};
use amdxdna_sys::{Request, amdxdna_drm_get_bo_info};
use bytemuck::bytes_of;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// The calls so far. Clones share them. Contents of BOs are among them only where the driver notes its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    calls: Vec<RecordedCall>,
    /// Memory beside the next request's structure.
    beside: Option<Fields>,
    /// BOs by their offset for mapping.
    offsets: HashMap<u64, u32>,
}

fn result<T>(result: &Result<T, &io::Error>) -> String {
    match result {
        Ok(_) => OK.to_owned(),
        Err(cause) => format!("{:?}", Errno::from_raw(cause.raw_os_error().unwrap_or_default())),
    }
}

impl Recorder {
    /// What was recorded.
    pub(crate) fn calls(&self) -> Vec<RecordedCall> {
        self.0.lock().calls.clone()
    }

    pub(super) fn opened<T>(&self, opened: &io::Result<T>) {
        let call = RecordedCall::new(OPEN, Fields::default(), &result(&opened.as_ref()));
        self.0.lock().calls.push(call);
    }

    /// The next request has `fields` beside its structure.
    pub(super) fn beside(&self, fields: Fields) {
        self.0.lock().beside = Some(fields);
    }

    /// A request with its structure before and after it.
    pub(super) fn requested<T: Request>(&self, before: &T, after: &T, ended: &Result<(), CallError>) {
        let Some(call) = ioctls().find(|call| call.code == T::CODE) else { return };
        let result = result(&ended.as_ref().map_err(|error| &error.cause));
        let mut call = RecordedCall::of(call, bytes_of(before), bytes_of(after), &result);
        let mut state = self.0.lock();
        call.given.0.extend(state.beside.take().unwrap_or_default().0);
        if T::NAME == amdxdna_drm_get_bo_info::NAME {
            let info: amdxdna_drm_get_bo_info = bytemuck::pod_read_unaligned(bytes_of(after));
            state.offsets.insert(info.map_offset, info.handle);
        }
        state.calls.push(call);
    }

    /// What the last request was answered beside its structure.
    pub(super) fn informed(&self, bytes: &[u8]) {
        if let Some(call) = self.0.lock().calls.last_mut() {
            call.inform(bytes);
        }
    }

    pub(super) fn mapped<T>(&self, offset: u64, bytes: usize, mapped: &io::Result<T>) {
        let mut state = self.0.lock();
        let mut given = Fields::default();
        given.push("handle", state.offsets.get(&offset).copied().unwrap_or_default());
        given.push("length", bytes);
        state.calls.push(RecordedCall::new(MMAP, given, &result(&mapped.as_ref())));
    }

    /// The driver has written to a BO, or read it.
    pub(super) fn contents(&self, name: &str, handle: u32, bytes: &[u8]) {
        let mut given = Fields::default();
        given.push("handle", handle);
        let mut call = RecordedCall::new(name, given, OK);
        match name {
            amdxdna_sys::recording::READ => {
                call.given.push("length", bytes.len());
                call.answered.push_data(bytes);
            }
            _ => call.given.push_data(bytes),
        }
        self.0.lock().calls.push(call);
    }
}
