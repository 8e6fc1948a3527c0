//! Submitting and waiting: EXEC_CMD, WAIT_CMD, and the handles of synchronisation objects.

use super::bo::{Bo, Kind};
use super::chain::Submission;
use super::fence::Fence;
use super::file::File;
use super::jobs::{ContextQueue, Pending};
use super::syncobj::Syncobj;
use crate::journal::Level;
use crate::kernel::{Profile, WaitCmd};
use nix::errno::Errno;
use std::sync::Arc;

fn is_command(bo: &Bo, profile: &Profile) -> bool {
    if profile.typed_commands { matches!(&bo.kind, Kind::Cmd) } else { bo.is_shared() }
}

impl File {
    /// EXEC_CMD with one command and its argument BOs; returns the sequence number. Blocks while four jobs of the context have
    /// not ended.
    ///
    /// # Errors
    /// EINVAL for a command that is not a command BO, and an unknown context, or one that is not configured where the kernel
    /// looks at that; ENOENT for an unknown argument BO, EALREADY for one that is given twice; EIO for a configuration that the
    /// firmware does not take, where the kernel finds that out now.
    pub fn exec_cmd(&self, context: u32, command: u32, arguments: &[u32]) -> Result<u64, Errno> {
        let profile = &self.device.profile;
        let (line, units, heaps, chain, arguments) = {
            let mut state = self.state.lock();
            let chain = self.bo(command).filter(|bo| is_command(bo, profile)).ok_or(Errno::EINVAL)?;
            let bos = arguments.iter().map(|handle| self.bo(*handle).ok_or(Errno::ENOENT));
            let bos: Vec<_> = bos.collect::<Result<_, _>>()?;
            let found = state.contexts.get_mut(&context).ok_or(Errno::EINVAL)?;
            if let Some(list) = found.configuration.take() {
                // A context whose connection has failed stays without compute units.
                found.units = Some(Vec::new());
                self.connect(&mut state, context, &list).map_err(|_| Errno::EIO)?;
            }
            let found = state.contexts.get(&context).ok_or(Errno::EINVAL)?;
            if found.units.is_none() && profile.configured_first {
                return Err(Errno::EINVAL);
            }
            let units = found.units.clone().unwrap_or_default();
            let mut addresses: Vec<_> = bos.iter().map(Arc::as_ptr).collect();
            addresses.sort_unstable();
            if addresses.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(Errno::EALREADY);
            }
            let heaps = state.heaps.list.to_vec();
            (found.line.clone(), units, heaps, chain, bos)
        };
        let submission = |sequence| Submission {
            units,
            heaps,
            sequence,
            chain,
            arguments,
            handles: self.handles.clone(),
            is_typed: profile.typed_commands,
        };
        let make = |sequence| {
            self.device.journal.count(|counts| counts.doorbells += 1);
            Pending { after: Vec::new(), submission: Some(submission(sequence)) }
        };
        line.add(&self.device, make)
    }

    /// EXEC_CMD of type DEPENDENCY: what is submitted later waits for points of synchronisation objects. Returns the sequence
    /// number.
    ///
    /// # Errors
    /// EINVAL for no points, an unknown context, or a point that nothing has; ENOENT for an unknown object.
    pub fn exec_dependency(&self, context: u32, points: &[(u32, u64)]) -> Result<u64, Errno> {
        if points.is_empty() {
            return Err(Errno::EINVAL);
        }
        let line = self.line(context)?;
        let fence = |(handle, point): &(u32, u64)| self.syncobj(*handle)?.fence(*point).ok_or(Errno::EINVAL);
        let after = points.iter().map(fence).collect::<Result<_, _>>()?;
        line.add(&self.device, |_| Pending { after, submission: None })
    }

    /// EXEC_CMD of type SIGNAL: a point of a synchronisation object is reached when what was submitted so far has completed. A
    /// point that something has already stays as it is.
    ///
    /// # Errors
    /// ENOENT for an unknown object, EINVAL for an unknown context.
    pub fn exec_signal(&self, context: u32, handle: u32, point: u64) -> Result<(), Errno> {
        let object = self.syncobj(handle)?;
        if object.fence(point).is_some() {
            return Ok(());
        }
        let line = self.line(context)?;
        let fence = match line.counts() {
            (0, _) => Fence::Signaled,
            (submitted, _) => Fence::Job(line, submitted - 1),
        };
        object.add_point(point, fence);
        Ok(())
    }

    pub(super) fn line(&self, context: u32) -> Result<Arc<ContextQueue>, Errno> {
        Ok(self.state.lock().contexts.get(&context).ok_or(Errno::EINVAL)?.line.clone())
    }

    /// WAIT_CMD. `timeout` is in milliseconds of device time; 0 waits forever.
    ///
    /// # Errors
    /// EINVAL where the kernel does not have it, EOPNOTSUPP where it has it for other devices; EINVAL for an unknown context or a
    /// sequence number that it has not given out; ETIME.
    pub fn wait_cmd(&self, context: u32, sequence: u64, timeout: u32) -> Result<(), Errno> {
        match self.device.profile.wait_cmd {
            WaitCmd::Works => {}
            WaitCmd::Missing => return Err(Errno::EINVAL),
            WaitCmd::Unsupported => return Err(Errno::EOPNOTSUPP),
        }
        self.line(context)?.wait(sequence, timeout)
    }

    pub(super) fn add_syncobj(&self, object: Arc<Syncobj>) -> u32 {
        self.state.lock().add_syncobj(&self.device, object)
    }

    pub(super) fn syncobj(&self, handle: u32) -> Result<Arc<Syncobj>, Errno> {
        self.state.lock().syncobjs.get(&handle).cloned().ok_or(Errno::ENOENT)
    }

    /// Gives the handle of a synchronisation object back.
    pub(super) fn remove_syncobj(&self, handle: u32) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if handle == 0 && self.device.profile.zero_becomes_free {
            state.first_syncobj = 0;
        }
        state.syncobjs.remove(&handle).ok_or(Errno::EINVAL)?;
        drop(state);
        self.device.journal.change(Level::Syncobjs, -1);
        Ok(())
    }
}
