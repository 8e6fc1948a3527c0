//! What libhsa calls instead of `ioctl`, `mmap` and `munmap`.
//!
//! A call of a thread that is not in an activity of the interposer goes straight on. None of these functions panics: what they
//! index was checked, and a panic nevertheless would end the process at the C boundary, with its message.

use super::{Activity, INTERPOSER, Interposer, Offset, PLACEHOLDER_CONTEXT, Ringing, with_activity};
use aie_driver_xdna::accel::command_buffer::CommandBuffer;
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::{
    AMDXDNA_BO_CMD, DRM_AMDXDNA_QUERY_AIE_VERSION, Request, RequestCode, amdxdna_drm_config_hwctx,
    amdxdna_drm_create_bo, amdxdna_drm_create_hwctx, amdxdna_drm_destroy_hwctx, amdxdna_drm_exec_cmd,
    amdxdna_drm_get_bo_info, amdxdna_drm_get_info, amdxdna_drm_wait_cmd, drm_gem_close, ert,
};
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::Ordering;

/// # Safety
/// As `ioctl`: `argument` points to the structure of `request`.
pub(super) unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let code = RequestCode(request as u32);
    // Structures have grown at their ends, so their size is not checked; requests to /dev/kfd are not DRM's.
    let number = code.is_drm().then(|| code.number());
    if let (Some(interposer), Some(number)) = (INTERPOSER.get(), number) {
        if number != drm_gem_close::NUMBER {
            interposer.descriptor.store(descriptor, Ordering::Relaxed);
        }
        if number == amdxdna_drm_get_info::NUMBER {
            // SAFETY: ROCR passes the structure of the request.
            if unsafe { (*argument.cast::<amdxdna_drm_get_info>()).param } == DRM_AMDXDNA_QUERY_AIE_VERSION {
                interposer.placeholders.lock().clear();
            }
        }
        // SAFETY: ROCR passes the structure of the request.
        let answered = with_activity(|activity| match activity {
            // SAFETY: as above.
            Activity::Ringing(ringing) => unsafe { in_doorbell(ringing, code, argument) },
            // ROCR destroys its placeholder context along with its queue.
            // SAFETY: as above.
            _ if number == amdxdna_drm_destroy_hwctx::NUMBER => unsafe {
                (*argument.cast::<amdxdna_drm_destroy_hwctx>()).handle == PLACEHOLDER_CONTEXT
            },
            _ => false,
        });
        if answered {
            return 0;
        }
    }
    // SAFETY: the caller's own arguments.
    let result = unsafe { libc::ioctl(descriptor, request as _, argument) };
    if result < 0 && number == Some(drm_gem_close::NUMBER) {
        let ours = |interposer: &Interposer| interposer.descriptor.load(Ordering::Relaxed) == descriptor;
        if INTERPOSER.get().is_some_and(ours) {
            // ROCR would end the process on this error.
            tracing::warn!("a buffer of the NPU was not closed: {}", std::io::Error::last_os_error());
            return 0;
        }
    }
    if result >= 0 && number == Some(amdxdna_drm_create_bo::NUMBER) {
        // SAFETY: the kernel has filled ROCR's structure of this request.
        let made = unsafe { *argument.cast::<amdxdna_drm_create_bo>() };
        with_activity(|activity| {
            if let Activity::Observing(observation) = activity {
                observation.observed.buffer = Some(made.handle);
            }
        });
    }
    result
}

/// Answers a call of a doorbell, if it is one the interposer answers.
///
/// # Safety
/// `argument` points to the structure of the request with this code.
unsafe fn in_doorbell(ringing: &mut Ringing, code: RequestCode, argument: *mut c_void) -> bool {
    match code.number() {
        amdxdna_drm_create_bo::NUMBER => {
            // SAFETY: as the caller promises.
            let create = unsafe { &mut *argument.cast::<amdxdna_drm_create_bo>() };
            let fits = create.type_ == AMDXDNA_BO_CMD && create.size <= PAGE as u64;
            let Some(buffer) = ringing.buffers.get(ringing.taken).filter(|_| fits) else { return false };
            // What the last doorbell left must not be taken for a state of this one.
            (0..ert::chain::HANDLES).for_each(|index| buffer.words().set(index, 0));
            create.handle = buffer.handle();
            ringing.taken += 1;
            true
        }
        amdxdna_drm_get_bo_info::NUMBER => {
            // SAFETY: as the caller promises.
            let info = unsafe { &mut *argument.cast::<amdxdna_drm_get_bo_info>() };
            let Some(buffer) = ringing.find(u64::from(info.handle)) else { return false };
            info.map_offset = buffer.map_offset();
            info.vaddr = buffer.words().address().addr() as u64;
            true
        }
        drm_gem_close::NUMBER => {
            // SAFETY: as the caller promises.
            let close = unsafe { &*argument.cast::<drm_gem_close>() };
            ringing.find(u64::from(close.handle)).is_some()
        }
        amdxdna_drm_create_hwctx::NUMBER => {
            // SAFETY: as the caller promises.
            unsafe { (*argument.cast::<amdxdna_drm_create_hwctx>()).handle = PLACEHOLDER_CONTEXT };
            true
        }
        amdxdna_drm_config_hwctx::NUMBER | amdxdna_drm_destroy_hwctx::NUMBER => true,
        amdxdna_drm_exec_cmd::NUMBER => {
            // SAFETY: as the caller promises.
            let execute = unsafe { &mut *argument.cast::<amdxdna_drm_exec_cmd>() };
            ringing.execute(code, execute);
            true
        }
        amdxdna_drm_wait_cmd::NUMBER => {
            ringing.wait();
            true
        }
        _ => false,
    }
}

/// # Safety
/// As `mmap`.
pub(super) unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: Offset,
) -> *mut c_void {
    let mut place = None;
    if let Some(interposer) = INTERPOSER.get()
        && descriptor >= 0
        && descriptor == interposer.descriptor.load(Ordering::Relaxed)
    {
        let known = with_activity(|activity| match activity {
            Activity::Ringing(ringing) => {
                let same = |b: &&CommandBuffer| b.map_offset() == offset as u64;
                ringing.buffers.iter().find(same).map(|buffer| buffer.words().address().cast::<c_void>())
            }
            Activity::Observing(observation) => {
                // One mapping; and the place stays known, because a release of what is in it stops here too.
                place = observation.place.clone().filter(|place| place.len() >= length && !observation.mapped);
                observation.mapped |= place.is_some();
                None
            }
            Activity::None => None,
        });
        if let Some(known) = known {
            return known;
        }
    }
    match place {
        // SAFETY: the caller that named the place owns its range, and has only reserved it; otherwise the caller's own arguments.
        Some(place) => unsafe {
            let address = std::ptr::with_exposed_provenance_mut(place.start);
            libc::mmap(address, length, protection, flags | libc::MAP_FIXED, descriptor, offset)
        },
        // SAFETY: the caller's own arguments.
        None => unsafe { libc::mmap(address, length, protection, flags, descriptor, offset) },
    }
}

/// # Safety
/// As `munmap`.
pub(super) unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    let keep = with_activity(|activity| match activity {
        Activity::Ringing(ringing) => ringing.buffers.iter().any(|buffer| buffer.words().address().cast() == address),
        Activity::Observing(observation) => {
            observation.observed.unmapped = true;
            // In a place of the caller's, who reserves the range again.
            observation.place.as_ref().is_some_and(|place| place.contains(&address.addr()))
        }
        Activity::None => false,
    });
    if keep {
        return 0;
    }
    // SAFETY: the caller's own arguments.
    unsafe { libc::munmap(address, length) }
}
