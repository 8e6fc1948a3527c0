//! SYNC_BO, and the debug BOs of contexts, which alone come from the device.
//!
//! Memory is coherent here, so there is nothing to do but to check.

use super::bo::{Bo, Kind};
use super::file::File;
use super::jobs::Pending;
use crate::kernel::Sync;
use amdxdna_sys::SYNC_DIRECT_FROM_DEVICE;
use nix::errno::Errno;
use std::sync::Arc;

impl File {
    /// SYNC_BO.
    ///
    /// # Errors
    /// ENOENT for an unknown handle. EINVAL for a range outside; or, by the kernel, EOPNOTSUPP for imported memory, EINVAL for
    /// a range that begins outside, and for what is not a debug BO when it is to come from the device.
    pub fn sync_bo(&self, handle: u32, direction: u32, offset: u64, size: u64) -> Result<(), Errno> {
        let bo = self.bo(handle).ok_or(Errno::ENOENT)?;
        let length = bo.length() as u64;
        if self.device.profile.sync == Sync::Handle {
            let inside = offset.checked_add(size).is_some_and(|end| end <= length);
            return if inside { Ok(()) } else { Err(Errno::EINVAL) };
        }
        match &bo.kind {
            Kind::Imported | Kind::User { .. } => return Err(Errno::EOPNOTSUPP),
            // What is outside of the heaps is left out.
            Kind::Dev { .. } => {}
            _ if offset >= length || offset.checked_add(size).is_none() => return Err(Errno::EINVAL),
            _ => {}
        }
        match bo.debugged() {
            _ if direction != SYNC_DIRECT_FROM_DEVICE => Ok(()),
            Some(context) => self.exec_nothing(context),
            None => Err(Errno::EINVAL),
        }
    }

    /// CONFIG_HWCTX with a debug BO, to assign it or to take it away again.
    ///
    /// # Errors
    /// EOPNOTSUPP where it is not simulated; EINVAL for an unknown context, what is no part of the heap, and a BO of another context;
    /// EBUSY for a BO that is assigned already.
    pub fn config_debug_bo(&self, context: u32, handle: u32, assign: bool) -> Result<(), Errno> {
        if !self.device.profile.debug_bos {
            return Err(Errno::EOPNOTSUPP);
        }
        if !self.state.lock().contexts.contains_key(&context) {
            return Err(Errno::EINVAL);
        }
        let is_part = |bo: &Arc<Bo>| matches!(&bo.kind, Kind::Dev { .. });
        let bo = self.bo(handle).filter(is_part).ok_or(Errno::EINVAL)?;
        match bo.debugged() {
            Some(_) if assign => return Err(Errno::EBUSY),
            found if !assign && found != Some(context) => return Err(Errno::EINVAL),
            _ => {}
        }
        self.exec_nothing(context)?;
        bo.debug(assign.then_some(context));
        Ok(())
    }

    /// Submits a job of the driver's own and waits for it: it has a sequence number like any other.
    fn exec_nothing(&self, context: u32) -> Result<(), Errno> {
        let line = self.line(context)?;
        let sequence = line.add(&self.device, |_| Pending { after: Vec::new(), submission: None })?;
        line.wait(sequence, 0)
    }
}
