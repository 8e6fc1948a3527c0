//! `/dev/kfd`, as far as a machine without a GPU needs it: the version, and events.
//!
//! ROCR's host agent waits for events in a thread of its own; so waiting really waits, until an event is set or the time is up.

use crate::journal::Journal;
use crate::kfd_calls::KFD_CALLS;
use crate::user_access::{UserMemory, prefix};
use amdxdna_sys::RequestCode;
use bytemuck::{Pod, Zeroable, bytes_of};
use nix::errno::Errno;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The type letter of KFD's ioctls.
pub(crate) const KFD_TYPE: u32 = b'K' as u32;

const VERSION: (u32, u32) = (1, 18);
/// Results of a wait.
const COMPLETE: u32 = 0;
const TIMED_OUT: u32 = 1;

/// `kfd_ioctl_create_event_args`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
struct CreateEvent {
    page_offset: u64,
    trigger: u32,
    kind: u32,
    auto_reset: u32,
    node: u32,
    id: u32,
    slot: u32,
}

/// `kfd_ioctl_wait_events_args`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
struct WaitEvents {
    events: u64,
    count: u32,
    all: u32,
    timeout: u32,
    result: u32,
}

/// Bytes of `kfd_event_data`, and where the event's number is in it.
const EVENT_BYTES: usize = 48;
const EVENT_ID: usize = 40;
/// More events than a process can have.
const MOST_EVENTS: u32 = 4096;

#[derive(Debug, Clone, Copy, Default)]
struct Event {
    auto_reset: bool,
    set: bool,
}

#[derive(Debug)]
pub struct Kfd {
    events: Mutex<BTreeMap<u32, Event>>,
    changed: Condvar,
    journal: Arc<Journal>,
}

impl Kfd {
    pub fn new(journal: Arc<Journal>) -> Self {
        Self { events: Mutex::default(), changed: Condvar::new(), journal }
    }

    /// Makes an ioctl of `user`; `address` is that of the caller's structure.
    ///
    /// # Errors
    /// ENOTTY for what is not KFD's, EINVAL for what is not simulated, and those of the call.
    pub fn ioctl(&self, user: UserMemory, request: u64, address: u64) -> Result<(), Errno> {
        let (number, code) = (request as u32 & 0xff, RequestCode(request as u32));
        if request as u32 >> 8 & 0xff != KFD_TYPE {
            return Err(Errno::ENOTTY);
        }
        let Some((name, _)) = KFD_CALLS.iter().find(|call| call.1 == number) else {
            self.journal.log(|| format!("ioctl {number:#x} of KFD is not simulated"));
            return Err(Errno::EINVAL);
        };
        let result = self.journal.enter(name).and_then(|()| {
            let mut bytes = user.read(address, code.bytes())?;
            self.dispatch(user, number, &mut bytes)?;
            user.write(address, &bytes)
        });
        self.journal.leave_unordered(name, &result);
        result
    }

    fn dispatch(&self, user: UserMemory, number: u32, bytes: &mut [u8]) -> Result<(), Errno> {
        match number {
            0x01 => {
                put(bytes, &[VERSION.0, VERSION.1]);
            }
            0x08 => {
                let mut event: CreateEvent = prefix(bytes);
                let mut events = self.events.lock();
                let free = (1..=MOST_EVENTS).find(|id| !events.contains_key(id)).ok_or(Errno::ENOSPC)?;
                events.insert(free, Event { auto_reset: event.auto_reset != 0, set: false });
                (event.id, event.slot, event.trigger, event.page_offset) = (free, free, free, 0);
                put(bytes, &event);
            }
            0x09 => {
                self.events.lock().remove(&prefix(bytes)).ok_or(Errno::EINVAL)?;
                self.changed.notify_all();
            }
            0x0a | 0x0b => {
                let mut events = self.events.lock();
                events.get_mut(&prefix(bytes)).ok_or(Errno::EINVAL)?.set = number == 0x0a;
                self.changed.notify_all();
            }
            0x0c => {
                let mut wait: WaitEvents = prefix(bytes);
                wait.result = self.wait(user, &wait)?;
                put(bytes, &wait);
            }
            // No GPU: there is nothing to set or to list.
            _ => {}
        }
        Ok(())
    }

    fn wait(&self, user: UserMemory, wait: &WaitEvents) -> Result<u32, Errno> {
        if wait.count > MOST_EVENTS {
            return Err(Errno::EINVAL);
        }
        let list = user.read(wait.events, wait.count as usize * EVENT_BYTES)?;
        let ids: Vec<u32> = list.chunks_exact(EVENT_BYTES).map(|event| prefix(&event[EVENT_ID..])).collect();
        let forever = wait.timeout == u32::MAX;
        let deadline = Instant::now() + Duration::from_millis(u64::from(wait.timeout));
        let mut events = self.events.lock();
        loop {
            let is_set = |id: &u32| events.get(id).map(|event| event.set);
            let states: Option<Vec<bool>> = ids.iter().map(is_set).collect();
            let states = states.ok_or(Errno::EINVAL)?;
            let done = if wait.all != 0 { states.iter().all(|set| *set) } else { states.contains(&true) };
            if done || ids.is_empty() {
                for id in &ids {
                    if let Some(event) = events.get_mut(id).filter(|event| event.set && event.auto_reset) {
                        event.set = false;
                    }
                }
                return Ok(COMPLETE);
            }
            if forever {
                self.changed.wait(&mut events);
            } else if self.changed.wait_until(&mut events, deadline).timed_out() {
                return Ok(TIMED_OUT);
            }
        }
    }
}

/// Puts as much of an answer into the caller's structure as it has room for.
fn put<T: Pod>(bytes: &mut [u8], answer: &T) {
    bytes.iter_mut().zip(bytes_of(answer)).for_each(|(target, byte)| *target = *byte);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn kfd() -> Kfd {
        Kfd::new(Arc::new(Journal::new(Arc::new(Settings::default())).unwrap()))
    }

    fn request(number: u32, bytes: usize) -> u64 {
        3 << 30 | (bytes as u64) << 16 | u64::from(KFD_TYPE) << 8 | u64::from(number)
    }

    fn make<T: Pod>(kfd: &Kfd, number: u32, value: &mut T) -> Result<(), Errno> {
        let address = std::ptr::from_mut(value).expose_provenance() as u64;
        // SAFETY: the address of `value`, with its size; addresses in it are those of live objects of the test.
        kfd.ioctl(unsafe { UserMemory::of_caller() }, request(number, size_of::<T>()), address)
    }

    #[test]
    fn events_wake_those_who_wait() {
        let kfd = kfd();
        let mut version = [0_u32; 2];
        make(&kfd, 0x01, &mut version).unwrap();
        assert_eq!(version, [1, 18]);
        let mut create = CreateEvent { auto_reset: 1, ..CreateEvent::zeroed() };
        make(&kfd, 0x08, &mut create).unwrap();
        let mut data = [0_u8; EVENT_BYTES];
        data[EVENT_ID..EVENT_ID + 4].copy_from_slice(&create.id.to_le_bytes());
        let events = data.as_ptr().expose_provenance() as u64;
        let mut wait = WaitEvents { events, count: 1, all: 0, timeout: 1, result: 9 };
        make(&kfd, 0x0c, &mut wait).unwrap();
        assert_eq!(wait.result, TIMED_OUT);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut wait = WaitEvents { timeout: u32::MAX, ..wait };
                make(&kfd, 0x0c, &mut wait).map(|()| wait.result)
            });
            make(&kfd, 0x0a, &mut [create.id, 0]).unwrap();
            assert_eq!(waiter.join().unwrap(), Ok(COMPLETE));
        });
        make(&kfd, 0x0c, &mut wait).unwrap();
        assert_eq!(wait.result, TIMED_OUT, "the event has been reset");
        make(&kfd, 0x09, &mut [create.id, 0]).unwrap();
        assert_eq!(make(&kfd, 0x0a, &mut [create.id, 0]), Err(Errno::EINVAL));
        assert_eq!(make(&kfd, 0x0c, &mut wait), Err(Errno::EINVAL));
    }

    #[test]
    fn what_is_not_simulated_is_rejected() {
        assert_eq!(make(&kfd(), 0x02, &mut [0_u32; 2]), Err(Errno::EINVAL));
    }
}
