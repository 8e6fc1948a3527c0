//! Ioctls of the accel node: the caller's memory on one side, functions on structures on the other.
//!
//! As the kernel's DRM core does, the number alone decides which call it is; a structure that is shorter than the newest
//! kernel's is filled up with zeros, and of the result as much is copied back as the caller has room for, on errors too.

use super::descriptors::{Descriptors, Open};
use super::file::File;
use super::syncobj_ioctl;
use crate::call_fields::{self, call};
use crate::kernel::{Queries, WaitCmd};
use crate::user_access::{UserMemory, prefix, with};
use amdxdna_sys::*;
use bytemuck::bytes_of;
use nix::errno::Errno;

/// Longest list that CONFIG_HWCTX takes, in bytes.
const CONFIG_BYTES: u32 = 4096;
/// Bytes of an answer about memory.
const USAGE_BYTES: usize = size_of::<amdxdna_drm_bo_usage>();
/// A call of the DRM core that only the master of a display may make.
const UPDATE_DRAW: u32 = 0x3f;
/// Bytes of `amdxdna_qos_info`, and where the priority is in it.
const QOS_BYTES: usize = 24;
const QOS_PRIORITY: usize = 20;

/// Whether the kernel of `file` knows a call at all.
fn exists(file: &File, name: &str) -> Result<(), Errno> {
    let profile = &file.device().profile;
    match name {
        "WAIT_CMD" if profile.wait_cmd == WaitCmd::Missing => Err(Errno::EINVAL),
        "GET_ARRAY" if !profile.get_array => Err(Errno::EINVAL),
        // The DRM core rejects them for a driver that does not have the feature.
        _ if name.starts_with("SYNCOBJ_") && !profile.syncobj => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

/// Makes an ioctl of `user`; `address` is that of the caller's structure.
///
/// # Errors
/// ENOTTY for a request that is none of DRM's, EINVAL for one that is not known; those of the call; ENODEV once the device is
/// lost.
pub fn ioctl(
    file: &File,
    descriptors: &Descriptors,
    user: UserMemory,
    request: u64,
    address: u64,
) -> Result<(), Errno> {
    let (device, code) = (file.device(), RequestCode(request as u32));
    if !code.is_drm() {
        return Err(Errno::ENOTTY);
    }
    if code.number() == UPDATE_DRAW {
        return Err(Errno::EACCES);
    }
    let Some(call) = call(code) else {
        device.journal.log(|| format!("ioctl {:#x} of the accel node is not simulated", code.number()));
        return Err(Errno::EINVAL);
    };
    let mut seen = None;
    let result = device.journal.enter(call.name).and_then(|()| {
        if device.is_lost() {
            return Err(Errno::ENODEV);
        }
        exists(file, call.name)?;
        let length = code.bytes().min(call.code.bytes());
        let mut bytes = user.read(address, length)?;
        bytes.resize(call.code.bytes(), 0);
        let before = bytes.clone();
        let result = dispatch(file, descriptors, user, call.name, &mut bytes);
        user.write(address, &bytes[..length])?;
        seen = Some((before, bytes));
        result
    });
    device.journal.leave(call.name, || call_fields::line(file.number(), call.name, seen.as_ref(), &result), &result);
    result
}

fn dispatch(
    file: &File,
    descriptors: &Descriptors,
    user: UserMemory,
    name: &str,
    bytes: &mut [u8],
) -> Result<(), Errno> {
    match name {
        "CREATE_BO" => with(bytes, |a: &mut amdxdna_drm_create_bo| {
            if a.vaddr == 0 {
                return file.create_bo(a);
            }
            file.create_user_bo(a, user, |fd| import(file, descriptors, fd))
        }),
        "GET_BO_INFO" => with(bytes, |a: &mut amdxdna_drm_get_bo_info| file.get_bo_info(a)),
        "SYNC_BO" => with(bytes, |a: &mut amdxdna_drm_sync_bo| file.sync_bo(a.handle, a.direction, a.offset, a.size)),
        "GEM_CLOSE" => with(bytes, |a: &mut drm_gem_close| file.gem_close(a.handle)),
        "CREATE_HWCTX" => with(bytes, |a: &mut amdxdna_drm_create_hwctx| {
            if a.ext != 0 || a.ext_flags != 0 {
                return Err(Errno::EINVAL);
            }
            let qos = user.read(a.qos_p, QOS_BYTES)?;
            file.create_hwctx(a, prefix(&qos[QOS_PRIORITY..]))
        }),
        "DESTROY_HWCTX" => with(bytes, |a: &mut amdxdna_drm_destroy_hwctx| {
            if a.pad != 0 && file.device().profile.padding_is_checked {
                return Err(Errno::EINVAL);
            }
            file.destroy_hwctx(a.handle)
        }),
        "CONFIG_HWCTX" => with(bytes, |a: &mut amdxdna_drm_config_hwctx| {
            if a.pad != 0 && file.device().profile.padding_is_checked {
                return Err(Errno::EINVAL);
            }
            match a.param_type {
                DRM_AMDXDNA_HWCTX_CONFIG_CU if a.param_val_size > CONFIG_BYTES => Err(Errno::E2BIG),
                DRM_AMDXDNA_HWCTX_CONFIG_CU => {
                    file.config_cu(a.handle, &user.read(a.param_val, a.param_val_size as usize)?)
                }
                DRM_AMDXDNA_HWCTX_ASSIGN_DBG_BUF => file.config_debug_bo(a.handle, a.param_val as u32, true),
                DRM_AMDXDNA_HWCTX_REMOVE_DBG_BUF => file.config_debug_bo(a.handle, a.param_val as u32, false),
                _ => Err(Errno::EINVAL),
            }
        }),
        "EXEC_CMD" => with(bytes, |a: &mut amdxdna_drm_exec_cmd| exec_cmd(file, user, a)),
        "WAIT_CMD" => with(bytes, |a: &mut amdxdna_drm_wait_cmd| file.wait_cmd(a.hwctx, a.seq, a.timeout)),
        "GET_INFO" => with(bytes, |a: &mut amdxdna_drm_get_info| {
            let room = a.buffer_size as usize;
            let is_mainline = file.device().profile.queries == Queries::Mainline;
            if a.param == DRM_AMDXDNA_QUERY_AIE_STATUS && is_mainline {
                return columns(file, user, a);
            }
            let answer = file.info(a.param, room).map_err(|(errno, needed)| {
                a.buffer_size = needed as u32;
                errno
            })?;
            user.write(a.buffer, &answer[..answer.len().min(room)])?;
            match a.param {
                // What is left of the room, not what was written.
                DRM_AMDXDNA_QUERY_HW_CONTEXTS if is_mainline => a.buffer_size -= answer.len() as u32,
                DRM_AMDXDNA_QUERY_HW_CONTEXTS | DRM_AMDXDNA_QUERY_SENSORS => a.buffer_size = answer.len() as u32,
                _ => {}
            }
            Ok(())
        }),
        "GET_ARRAY" => with(bytes, |a: &mut amdxdna_drm_get_array| {
            let room = a.element_size as usize;
            let is_mainline = file.device().profile.queries == Queries::Mainline;
            if is_mainline && a.pad != 0 {
                return Err(Errno::EINVAL);
            }
            if is_mainline && a.param == DRM_AMDXDNA_BO_USAGE && a.num_element == 1 && room > 0 {
                // The caller's structure says whose memory it is.
                let room = room.min(USAGE_BYTES);
                let asked: amdxdna_drm_bo_usage = prefix(&user.read(a.buffer, room)?);
                return match asked.pid {
                    0 => Err(Errno::EINVAL),
                    pid => user.write(a.buffer, &bytes_of(&file.usage(pid))[..room]),
                };
            }
            let (element, answer) = file.array(a.param, room, a.num_element as usize).map_err(|(errno, count)| {
                a.num_element = count as u32;
                errno
            })?;
            if is_mainline && a.param == DRM_AMDXDNA_HW_LAST_ASYNC_ERR {
                (a.num_element, a.element_size) = (1, element.min(room) as u32);
            }
            let room = if is_mainline { room.min(element) } else { room };
            for (index, one) in answer.chunks_exact(element).enumerate() {
                let target = a.buffer.checked_add((index * room) as u64).ok_or(Errno::EFAULT)?;
                user.write(target, &one[..element.min(room)])?;
            }
            a.num_element = (answer.len() / element) as u32;
            a.element_size = element.min(room) as u32;
            Ok(())
        }),
        "SET_STATE" => with(bytes, |a: &mut amdxdna_drm_set_state| {
            file.can_set(a.param, nix::unistd::geteuid().is_root())?;
            // Every state has eight bytes.
            file.set(a.param, &user.read(a.buffer, (a.buffer_size as usize).min(8))?)
        }),
        "VERSION" => with(bytes, |a: &mut drm_version| version(file, user, a)),
        "GET_CAP" => with(bytes, |a: &mut drm_get_cap| {
            const CAP_TIMESTAMP_MONOTONIC: u64 = 6;
            a.value = match a.capability {
                DRM_CAP_PRIME => DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT,
                DRM_CAP_SYNCOBJ | DRM_CAP_SYNCOBJ_TIMELINE => u64::from(file.device().profile.syncobj),
                CAP_TIMESTAMP_MONOTONIC => 1,
                // All others are those of a display.
                _ => return Err(Errno::EOPNOTSUPP),
            };
            Ok(())
        }),
        "PRIME_HANDLE_TO_FD" => with(bytes, |a: &mut drm_prime_handle| {
            if a.flags & !((libc::O_CLOEXEC | libc::O_RDWR) as u32) != 0 {
                return Err(Errno::EINVAL);
            }
            let bo = file.bo(a.handle).ok_or(Errno::ENOENT)?;
            if matches!(&bo.kind, super::Kind::User { .. }) {
                return Err(Errno::EOPNOTSUPP);
            }
            let close_on_exec = a.flags & libc::O_CLOEXEC as u32 != 0;
            let own = if matches!(&bo.kind, super::Kind::Dev { .. }) { None } else { bo.memory() };
            a.fd = own.ok_or(Errno::EOPNOTSUPP)?.0.export(close_on_exec)?;
            descriptors.set(a.fd, Open::Bo(bo));
            Ok(())
        }),
        "PRIME_FD_TO_HANDLE" => with(bytes, |a: &mut drm_prime_handle| {
            a.handle = import(file, descriptors, a.fd)?;
            Ok(())
        }),
        _ => syncobj_ioctl::dispatch(file, descriptors, user, name, bytes),
    }
}

/// Makes a handle of a descriptor of a BO.
fn import(file: &File, descriptors: &Descriptors, fd: i32) -> Result<u32, Errno> {
    match descriptors.get(fd) {
        Some(Open::Bo(bo)) => Ok(file.import(&bo)),
        _ => file.import_descriptor(fd),
    }
}

fn exec_cmd(file: &File, user: UserMemory, a: &mut amdxdna_drm_exec_cmd) -> Result<(), Errno> {
    let reject_if = |wrong: bool| if wrong { Err(Errno::EINVAL) } else { Ok(()) };
    reject_if(a.ext != 0 || a.ext_flags != 0)?;
    let has_dependencies = file.device().profile.dependencies;
    match a.type_ {
        AMDXDNA_CMD_SUBMIT_EXEC_BUF => {
            reject_if(a.arg_count > limits::ARGUMENT_BOS || a.cmd_count != 1 || a.cmd_handles as u32 == 0)?;
            let arguments: Vec<u32> = user.list(a.args, a.arg_count)?;
            a.seq = file.exec_cmd(a.hwctx, a.cmd_handles as u32, &arguments)?;
            Ok(())
        }
        AMDXDNA_CMD_SUBMIT_DEPENDENCY if has_dependencies => {
            reject_if(a.cmd_count != a.arg_count || a.arg_count > limits::ARGUMENT_BOS)?;
            let (handles, points) = (user.list(a.cmd_handles, a.arg_count)?, user.list(a.args, a.arg_count)?);
            a.seq = file.exec_dependency(a.hwctx, &handles.into_iter().zip(points).collect::<Vec<_>>())?;
            Ok(())
        }
        AMDXDNA_CMD_SUBMIT_SIGNAL if has_dependencies => {
            reject_if(a.cmd_count != 1 || a.arg_count != 1)?;
            file.exec_signal(a.hwctx, a.cmd_handles as u32, a.args)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// GET_INFO of the state of columns: which ones contexts have, and zeros for what is in them.
fn columns(file: &File, user: UserMemory, a: &amdxdna_drm_get_info) -> Result<(), Errno> {
    let room = (a.buffer_size as usize).min(size_of::<amdxdna_drm_query_aie_status>());
    let mut status: amdxdna_drm_query_aie_status = prefix(&user.read(a.buffer, room)?);
    let active = file.active_columns();
    let states = vec![0; (active.count_ones() as usize * file.column_bytes()).min(status.buffer_size as usize)];
    user.write(status.buffer, &states)?;
    status.cols_filled = active;
    user.write(a.buffer, &bytes_of(&status)[..room])
}

fn version(file: &File, user: UserMemory, a: &mut drm_version) -> Result<(), Errno> {
    let (major, minor) = file.device().profile.version;
    (a.version_major, a.version_minor, a.version_patchlevel) = (major, minor, 0);
    let texts = [
        (&mut a.name_len, a.name, "amdxdna_accel_driver"),
        (&mut a.date_len, a.date, "0"),
        (&mut a.desc_len, a.desc, "AMD XDNA DRM implementation"),
    ];
    for (length, address, text) in texts {
        let room = std::mem::replace(length, text.len() as u64) as usize;
        if address != 0 {
            user.write(address, &text.as_bytes()[..text.len().min(room)])?;
        }
    }
    Ok(())
}
