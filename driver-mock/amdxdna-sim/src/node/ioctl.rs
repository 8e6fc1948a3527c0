//! Ioctls of the accel node: the caller's memory on one side, functions on structures on the other.
//!
//! As the kernel's DRM core does, the number alone decides which call it is; a structure that is shorter than the newest
//! kernel's is filled up with zeros, and of the result as much is copied back as the caller has room for, on errors too.

use super::file::{File, prefix};
use crate::abi::*;
use crate::errno::Errno;
use crate::user;
use bytemuck::bytes_of;
use std::sync::Arc;

/// Longest list that CONFIG_HWCTX takes, in bytes.
const CONFIG_BYTES: u32 = 4096;
/// Bytes of `amdxdna_qos_info`, and where the priority is in it.
const QOS_BYTES: usize = 24;
const QOS_PRIORITY: usize = 20;

/// Descriptors that are BOs: PRIME calls make and read them.
pub trait Descriptors {
    /// Registers a descriptor of a BO.
    fn exported(&self, fd: i32, bo: Arc<super::Bo>);
    /// The BO of a descriptor, when it is one of this process.
    fn bo(&self, fd: i32) -> Option<Arc<super::Bo>>;
}

/// The simulated call with this request number.
pub fn call(request: u64) -> Option<&'static Call> {
    let number = ioctl_number(request);
    CALLS.iter().find(|call| call.number == number)
}

/// Makes an ioctl; `address` is that of the caller's structure.
///
/// # Safety
/// `address`, and the addresses in the structure, are ones the caller of `ioctl` gave.
///
/// # Errors
/// ENOTTY for a request that is none of DRM's, EINVAL for one that is not known; those of the call; ENODEV once the device is
/// lost.
pub unsafe fn ioctl(file: &File, descriptors: &dyn Descriptors, request: u64, address: u64) -> Result<(), Errno> {
    let device = file.device();
    if ioctl_type(request) != DRM_TYPE {
        return Err(Errno::ENOTTY);
    }
    let Some(call) = call(request) else {
        device.journal.log(|| format!("ioctl {:#x} of the accel node is not simulated", ioctl_number(request)));
        // Of the DRM core, synchronisation objects are a feature that a driver may not have.
        let is_syncobj = (0xbf..=0xcf).contains(&ioctl_number(request));
        return Err(if is_syncobj { Errno::EOPNOTSUPP } else { Errno::EINVAL });
    };
    let mut detail = String::new();
    let result = device.journal.enter(call.name).and_then(|()| {
        if device.is_lost() {
            return Err(Errno::ENODEV);
        }
        let length = ioctl_size(request).min(call.bytes);
        // SAFETY: the caller's structure, as long as the request says.
        let mut bytes = unsafe { user::read(address, length) }?;
        bytes.resize(call.bytes, 0);
        // SAFETY: addresses in the structure are the caller's.
        let result = unsafe { dispatch(file, descriptors, call.name, &mut bytes, &mut detail) };
        // SAFETY: as above.
        unsafe { user::write(address, &bytes[..length]) }?;
        result
    });
    let place = || format!("file={} {detail}", file.number()).trim_end().to_owned();
    device.journal.leave(call.name, place, &result);
    result
}

/// Applies a function to the structure in `bytes`.
fn with<T: bytemuck::Pod>(bytes: &mut [u8], apply: impl FnOnce(&mut T) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut value: T = prefix(bytes);
    let result = apply(&mut value);
    bytes.copy_from_slice(bytes_of(&value));
    result
}

/// # Safety
/// As for [`ioctl`].
unsafe fn dispatch(
    file: &File,
    descriptors: &dyn Descriptors,
    name: &str,
    bytes: &mut [u8],
    detail: &mut String,
) -> Result<(), Errno> {
    match name {
        "CREATE_BO" => with(bytes, |a: &mut CreateBo| {
            let result = file.create_bo(a);
            *detail = format!("type={} size={} handle={}", a.kind, a.size, a.handle);
            result
        }),
        "GET_BO_INFO" => with(bytes, |a: &mut GetBoInfo| {
            *detail = format!("handle={}", a.handle);
            file.get_bo_info(a)
        }),
        "SYNC_BO" => with(bytes, |a: &mut SyncBo| {
            *detail = format!("handle={} direction={} offset={} size={}", a.handle, a.direction, a.offset, a.size);
            file.sync_bo(a.handle, a.offset, a.size)
        }),
        "GEM_CLOSE" => with(bytes, |a: &mut GemClose| {
            *detail = format!("handle={}", a.handle);
            file.gem_close(a.handle)
        }),
        "CREATE_HWCTX" => with(bytes, |a: &mut CreateHwctx| {
            if a.ext != 0 || a.ext_flags != 0 {
                return Err(Errno::EINVAL);
            }
            // SAFETY: the address of the caller's QoS structure.
            let qos = unsafe { user::read(a.qos_p, QOS_BYTES) }?;
            let result = file.create_hwctx(a, prefix(&qos[QOS_PRIORITY..]));
            *detail = format!("tiles={} handle={}", a.num_tiles, a.handle);
            result
        }),
        "DESTROY_HWCTX" => with(bytes, |a: &mut DestroyHwctx| {
            *detail = format!("handle={}", a.handle);
            file.destroy_hwctx(a.handle)
        }),
        "CONFIG_HWCTX" => with(bytes, |a: &mut ConfigHwctx| {
            *detail = format!("handle={} type={} bytes={}", a.handle, a.param_type, a.param_val_size);
            match a.param_type {
                param::HWCTX_CONFIG_CU if a.param_val_size > CONFIG_BYTES => Err(Errno::E2BIG),
                param::HWCTX_CONFIG_CU => {
                    // SAFETY: the address of the caller's list.
                    let list = unsafe { user::read(a.param_val, a.param_val_size as usize) }?;
                    file.config_cu(a.handle, &list)
                }
                param::HWCTX_ASSIGN_DBG_BUF | param::HWCTX_REMOVE_DBG_BUF => Err(Errno::EOPNOTSUPP),
                _ => Err(Errno::EINVAL),
            }
        }),
        "EXEC_CMD" => with(bytes, |a: &mut ExecCmd| {
            // SAFETY: the address of the caller's list.
            let result = unsafe { exec_cmd(file, a) };
            *detail = format!("context={} arguments={} seq={}", a.hwctx, a.arg_count, a.seq);
            result
        }),
        "WAIT_CMD" => with(bytes, |a: &mut WaitCmd| {
            *detail = format!("context={} timeout={} seq={}", a.hwctx, a.timeout, a.seq);
            file.wait_cmd(a.hwctx, a.seq, a.timeout)
        }),
        "GET_INFO" => with(bytes, |a: &mut GetInfo| {
            *detail = format!("query={} bytes={}", a.param, a.buffer_size);
            let room = a.buffer_size as usize;
            let answer = file.info(a.param, room).map_err(|(errno, needed)| {
                a.buffer_size = needed as u32;
                errno
            })?;
            // SAFETY: the caller's buffer, as long as it says.
            unsafe { user::write(a.buffer, &answer[..answer.len().min(room)]) }?;
            if a.param == param::QUERY_HW_CONTEXTS {
                a.buffer_size = answer.len() as u32;
            }
            Ok(())
        }),
        "GET_ARRAY" => with(bytes, |a: &mut GetArray| {
            *detail = format!("query={} elements={} of {}", a.param, a.num_element, a.element_size);
            let room = a.element_size as usize;
            let (element, answer) = file.array(a.param, room, a.num_element as usize).map_err(|(errno, count)| {
                a.num_element = count as u32;
                errno
            })?;
            for (index, one) in answer.chunks_exact(element).enumerate() {
                let target = a.buffer.checked_add((index * room) as u64).ok_or(Errno::EFAULT)?;
                // SAFETY: the caller's buffer has room for as many elements as there are, of this size.
                unsafe { user::write(target, &one[..element.min(room)]) }?;
            }
            a.num_element = (answer.len() / element) as u32;
            a.element_size = element.min(room) as u32;
            Ok(())
        }),
        "SET_STATE" => with(bytes, |a: &mut SetState| {
            *detail = format!("what={}", a.param);
            // SAFETY: asking for a number.
            let is_root = unsafe { libc::geteuid() } == 0;
            // SAFETY: the caller's buffer; a power mode has eight bytes.
            let value = unsafe { user::read(a.buffer, (a.buffer_size as usize).min(8)) }?;
            file.set(a.param, &value, is_root)
        }),
        "VERSION" => with(bytes, |a: &mut DrmVersion| {
            // SAFETY: the caller's buffers, as long as it says.
            unsafe { version(a) }
        }),
        // The accel node has none of the capabilities that can be asked for but PRIME.
        "GET_CAP" => with(bytes, |a: &mut GetCap| {
            const CAP_PRIME: u64 = 5;
            *detail = format!("capability={}", a.capability);
            a.value = if a.capability == CAP_PRIME { 3 } else { 0 };
            Ok(())
        }),
        "PRIME_HANDLE_TO_FD" => with(bytes, |a: &mut PrimeHandle| {
            *detail = format!("handle={}", a.handle);
            if a.flags & !((libc::O_CLOEXEC | libc::O_RDWR) as u32) != 0 {
                return Err(Errno::EINVAL);
            }
            let bo = file.bo(a.handle).ok_or(Errno::ENOENT)?;
            let close_on_exec = a.flags & libc::O_CLOEXEC as u32 != 0;
            let own = if matches!(bo.kind(), super::Kind::Dev { .. }) { None } else { bo.memory() };
            a.fd = own.ok_or(Errno::EOPNOTSUPP)?.0.export(close_on_exec)?;
            descriptors.exported(a.fd, bo);
            Ok(())
        }),
        "PRIME_FD_TO_HANDLE" => with(bytes, |a: &mut PrimeHandle| {
            a.handle = match descriptors.bo(a.fd) {
                Some(bo) => file.import(&bo),
                None => file.import_descriptor(a.fd)?,
            };
            *detail = format!("handle={}", a.handle);
            Ok(())
        }),
        _ => Err(Errno::EINVAL),
    }
}

/// # Safety
/// As for [`ioctl`].
unsafe fn exec_cmd(file: &File, a: &mut ExecCmd) -> Result<(), Errno> {
    const EXEC_BUFFER: u32 = 0;
    const DEPENDENCY: u32 = 1;
    const SIGNAL: u32 = 2;
    if a.ext != 0 || a.ext_flags != 0 {
        return Err(Errno::EINVAL);
    }
    match a.kind {
        EXEC_BUFFER => {}
        DEPENDENCY | SIGNAL => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    }
    if a.arg_count > limits::ARGUMENT_BOS || a.cmd_count != 1 || a.cmd_handles as u32 == 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's list of handles.
    let list = unsafe { user::read(a.args, a.arg_count as usize * 4) }?;
    let arguments: Vec<u32> = list.chunks_exact(4).map(prefix).collect();
    a.seq = file.exec_cmd(a.hwctx, a.cmd_handles as u32, &arguments)?;
    Ok(())
}

/// # Safety
/// As for [`ioctl`].
unsafe fn version(a: &mut DrmVersion) -> Result<(), Errno> {
    (a.major, a.minor, a.patch) = (0, 7, 0);
    let texts = [
        (&mut a.name_len, a.name, "amdxdna_accel_driver"),
        (&mut a.date_len, a.date, "0"),
        (&mut a.desc_len, a.desc, "AMD XDNA DRM implementation"),
    ];
    for (length, address, text) in texts {
        let room = *length as usize;
        *length = text.len() as u64;
        if address != 0 && room > 0 {
            // SAFETY: the caller's buffer, as long as it says.
            unsafe { user::write(address, &text.as_bytes()[..text.len().min(room)]) }?;
        }
    }
    Ok(())
}
