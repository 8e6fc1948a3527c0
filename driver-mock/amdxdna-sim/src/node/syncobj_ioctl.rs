//! Ioctls of the DRM core on synchronisation objects.

use super::descriptors::{Descriptors, Open};
use super::fence::Fence;
use super::file::File;
use super::syncobj::{Syncobj, Wait};
use crate::user_access::{UserMemory, with};
use amdxdna_sys::*;
use nix::errno::Errno;
use std::sync::Arc;

/// Flags of SYNCOBJ_WAIT and, with one more, of SYNCOBJ_TIMELINE_WAIT.
const WAIT_FLAGS: u32 = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT | WAIT_DEADLINE;
/// `DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE`: a hint to the fences, without effect here.
const WAIT_DEADLINE: u32 = 8;
const EVENTFD_FLAGS: u32 = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE;

fn objects(file: &File, user: UserMemory, address: u64, count: u32) -> Result<Vec<Arc<Syncobj>>, Errno> {
    let handles: Vec<u32> = user.list(address, count)?;
    handles.into_iter().map(|handle| file.syncobj(handle)).collect()
}

/// The points of a list; zeros without one.
fn points(user: UserMemory, address: u64, count: u32) -> Result<Vec<u64>, Errno> {
    if address == 0 { Ok(vec![0; count as usize]) } else { user.list(address, count) }
}

/// Waits for objects at points; writes which was first.
fn wait(
    objects: Vec<Arc<Syncobj>>,
    points: Vec<u64>,
    flags: u32,
    timeout_ns: i64,
    first_signaled: &mut u32,
) -> Result<(), Errno> {
    let points = objects.into_iter().zip(points).collect();
    let first = Wait { points, flags, timeout_ns }.wait()?;
    *first_signaled = first.unwrap_or(u32::MAX);
    Ok(())
}

/// Makes a call on synchronisation objects.
///
/// # Errors
/// EINVAL for one that is not known, for unknown flags, padding and no handles; ENOENT for an unknown handle; EFAULT; those of
/// waiting; EOPNOTSUPP for eventfds.
pub(super) fn dispatch(
    file: &File,
    descriptors: &Descriptors,
    user: UserMemory,
    name: &str,
    bytes: &mut [u8],
) -> Result<(), Errno> {
    let reject_if = |wrong: bool| if wrong { Err(Errno::EINVAL) } else { Ok(()) };
    match name {
        "SYNCOBJ_CREATE" => with(bytes, |a: &mut drm_syncobj_create| {
            reject_if(a.flags & !DRM_SYNCOBJ_CREATE_SIGNALED != 0)?;
            a.handle = file.add_syncobj(Syncobj::new(a.flags != 0));
            Ok(())
        }),
        "SYNCOBJ_DESTROY" => with(bytes, |a: &mut drm_syncobj_destroy| {
            reject_if(a.pad != 0)?;
            file.remove_syncobj(a.handle)
        }),
        "SYNCOBJ_WAIT" => with(bytes, |a: &mut drm_syncobj_wait| {
            reject_if(a.flags & !WAIT_FLAGS != 0)?;
            if a.count_handles == 0 {
                return Ok(());
            }
            let objects = objects(file, user, a.handles, a.count_handles)?;
            let points = vec![0; objects.len()];
            wait(objects, points, a.flags, a.timeout_nsec, &mut a.first_signaled)
        }),
        "SYNCOBJ_TIMELINE_WAIT" => with(bytes, |a: &mut drm_syncobj_timeline_wait| {
            reject_if(a.flags & !(WAIT_FLAGS | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE) != 0)?;
            if a.count_handles == 0 {
                return Ok(());
            }
            let objects = objects(file, user, a.handles, a.count_handles)?;
            let points = points(user, a.points, a.count_handles)?;
            wait(objects, points, a.flags, a.timeout_nsec, &mut a.first_signaled)
        }),
        "SYNCOBJ_RESET" | "SYNCOBJ_SIGNAL" => with(bytes, |a: &mut drm_syncobj_array| {
            reject_if(a.pad != 0 || a.count_handles == 0)?;
            let fence = || (name == "SYNCOBJ_SIGNAL").then_some(Fence::Signaled);
            let objects = objects(file, user, a.handles, a.count_handles)?;
            objects.iter().for_each(|object| object.replace(fence()));
            Ok(())
        }),
        "SYNCOBJ_TIMELINE_SIGNAL" => with(bytes, |a: &mut drm_syncobj_timeline_array| {
            reject_if(a.flags != 0 || a.count_handles == 0)?;
            let objects = objects(file, user, a.handles, a.count_handles)?;
            let points = points(user, a.points, a.count_handles)?;
            objects.iter().zip(points).for_each(|(object, point)| object.add_point(point, Fence::Signaled));
            Ok(())
        }),
        "SYNCOBJ_QUERY" => with(bytes, |a: &mut drm_syncobj_timeline_array| {
            reject_if(a.flags & !DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED != 0 || a.count_handles == 0)?;
            let objects = objects(file, user, a.handles, a.count_handles)?;
            for (index, object) in objects.iter().enumerate() {
                let target = a.points.checked_add(8 * index as u64).ok_or(Errno::EFAULT)?;
                user.write(target, &object.query(a.flags != 0).to_le_bytes())?;
            }
            Ok(())
        }),
        "SYNCOBJ_TRANSFER" => with(bytes, |a: &mut drm_syncobj_transfer| {
            reject_if(a.pad != 0 || a.flags & !DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT != 0)?;
            let (source, target) = (file.syncobj(a.src_handle), file.syncobj(a.dst_handle));
            let (target, source) = (target?, source?);
            let fence = match source.fence(a.src_point) {
                Some(fence) => fence,
                None if a.flags == 0 => return Err(Errno::EINVAL),
                None => source.submitted(a.src_point)?,
            };
            match a.dst_point {
                0 => target.take_over(source.number(a.src_point), fence),
                point => target.add_point(point, fence),
            }
            Ok(())
        }),
        "SYNCOBJ_HANDLE_TO_FD" => with(bytes, |a: &mut drm_syncobj_handle| {
            reject_if(a.pad != 0)?;
            if a.flags == DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE {
                // An unknown object and one without a fence look the same here.
                let fence = file.syncobj(a.handle)?.fence(a.point).ok_or(Errno::EINVAL)?;
                a.fd = crate::memory::placeholder()?.release();
                descriptors.set(a.fd, Open::SyncFile(fence));
                return Ok(());
            }
            reject_if(a.flags != 0 || a.point != 0)?;
            let object = file.syncobj(a.handle).map_err(|_| Errno::EINVAL)?;
            a.fd = crate::memory::placeholder()?.release();
            descriptors.set(a.fd, Open::Syncobj(object));
            Ok(())
        }),
        "SYNCOBJ_FD_TO_HANDLE" => with(bytes, |a: &mut drm_syncobj_handle| {
            reject_if(a.pad != 0)?;
            if a.flags == DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE {
                let Some(Open::SyncFile(fence)) = descriptors.get(a.fd) else { return Err(Errno::EINVAL) };
                let object = file.syncobj(a.handle)?;
                match a.point {
                    0 => object.replace(Some(fence)),
                    point => object.add_point(point, fence),
                }
                return Ok(());
            }
            reject_if(a.flags != 0 || a.point != 0)?;
            let Some(Open::Syncobj(object)) = descriptors.get(a.fd) else { return Err(Errno::EINVAL) };
            a.handle = file.add_syncobj(object);
            Ok(())
        }),
        "SYNCOBJ_EVENTFD" => with(bytes, |a: &mut drm_syncobj_eventfd| {
            reject_if(a.flags & !EVENTFD_FLAGS != 0 || a.pad != 0)?;
            file.syncobj(a.handle)?;
            match crate::memory::is_eventfd(a.fd) {
                Ok(true) => Err(Errno::EOPNOTSUPP),
                Ok(false) => Err(Errno::EINVAL),
                Err(errno) => Err(errno),
            }
        }),
        _ => Err(Errno::EINVAL),
    }
}
