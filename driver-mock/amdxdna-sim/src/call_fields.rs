//! What the stream of calls records of a request: its fields without addresses, before and after the call.
//!
//! The same for the simulated device and for the host's own, so that their streams can be laid side by side.

use crate::node::ioctl_prefix as prefix;
use amdxdna_sys::*;
use bytemuck::Pod;
use nix::errno::Errno;

/// A structure before and after its call, filled up with zeros where the caller's is shorter.
pub type Seen = (Vec<u8>, Vec<u8>);

/// Most points of a wait that are recorded.
const POINTS: usize = 64;

/// What a line says between the name and the result.
pub fn line<T>(file: u64, name: &str, seen: Option<&Seen>, result: &Result<T, Errno>) -> String {
    let fields = seen.map(|(before, after)| {
        // Points were read by then; an earlier error may be that they cannot be.
        let waited = matches!(result, Ok(_) | Err(Errno::ETIME | Errno::EINTR));
        fields(name, before, after, waited)
    });
    format!("file={file} {}", fields.unwrap_or_default()).trim_end().to_owned()
}

/// A field, and what the call has made of it.
fn changed<T: PartialEq + std::fmt::Display>(before: T, after: T) -> String {
    if before == after { before.to_string() } else { format!("{before}->{after}") }
}

fn fields(name: &str, before: &[u8], after: &[u8], waited: bool) -> String {
    match name {
        "CREATE_BO" => {
            let a: amdxdna_drm_create_bo = prefix(after);
            let user = if a.vaddr == 0 { "" } else { " user" };
            format!("type={} size={} handle={}{user}", a.type_, a.size, a.handle)
        }
        "GET_BO_INFO" => format!("handle={}", prefix::<amdxdna_drm_get_bo_info>(after).handle),
        "SYNC_BO" => {
            let a: amdxdna_drm_sync_bo = prefix(after);
            format!("handle={} direction={} offset={} size={}", a.handle, a.direction, a.offset, a.size)
        }
        "GEM_CLOSE" => format!("handle={}", prefix::<drm_gem_close>(after).handle),
        "CREATE_HWCTX" => {
            let a: amdxdna_drm_create_hwctx = prefix(after);
            format!("tiles={} handle={}", a.num_tiles, a.handle)
        }
        "DESTROY_HWCTX" => format!("handle={}", prefix::<amdxdna_drm_destroy_hwctx>(after).handle),
        "CONFIG_HWCTX" => {
            let a: amdxdna_drm_config_hwctx = prefix(after);
            format!("handle={} type={} bytes={}", a.handle, a.param_type, a.param_val_size)
        }
        "EXEC_CMD" => {
            let a: amdxdna_drm_exec_cmd = prefix(after);
            format!("context={} arguments={} seq={}", a.hwctx, a.arg_count, a.seq)
        }
        "WAIT_CMD" => {
            let a: amdxdna_drm_wait_cmd = prefix(after);
            format!("context={} timeout={} seq={}", a.hwctx, a.timeout, a.seq)
        }
        "GET_INFO" => {
            let (a, b): (amdxdna_drm_get_info, amdxdna_drm_get_info) = (prefix(before), prefix(after));
            format!("query={} bytes={}", a.param, changed(a.buffer_size, b.buffer_size))
        }
        "GET_ARRAY" => {
            let (a, b): (amdxdna_drm_get_array, amdxdna_drm_get_array) = (prefix(before), prefix(after));
            let (elements, size) = (changed(a.num_element, b.num_element), changed(a.element_size, b.element_size));
            format!("query={} elements={elements} of {size}", a.param)
        }
        "SET_STATE" => format!("what={}", prefix::<amdxdna_drm_set_state>(after).param),
        "GET_CAP" => format!("capability={}", prefix::<drm_get_cap>(after).capability),
        "PRIME_HANDLE_TO_FD" | "PRIME_FD_TO_HANDLE" => format!("handle={}", prefix::<drm_prime_handle>(after).handle),
        _ => syncobj_fields(name, after, waited),
    }
}

fn syncobj_fields(name: &str, after: &[u8], waited: bool) -> String {
    match name {
        "SYNCOBJ_CREATE" | "SYNCOBJ_DESTROY" => format!("handle={}", prefix::<drm_syncobj_create>(after).handle),
        "SYNCOBJ_HANDLE_TO_FD" | "SYNCOBJ_FD_TO_HANDLE" => {
            format!("handle={}", prefix::<drm_syncobj_handle>(after).handle)
        }
        "SYNCOBJ_WAIT" => {
            let a: drm_syncobj_wait = prefix(after);
            format!("objects={} flags={}", a.count_handles, a.flags)
        }
        "SYNCOBJ_TIMELINE_WAIT" => {
            let a: drm_syncobj_timeline_wait = prefix(after);
            let count = if waited { (a.count_handles as usize).min(POINTS) } else { 0 };
            let points = peek::<u64>(a.points, count).unwrap_or_else(|| vec![0; count]);
            let points: Vec<String> = points.iter().map(ToString::to_string).collect();
            format!("points={} flags={}", points.join("+"), a.flags)
        }
        "SYNCOBJ_RESET" | "SYNCOBJ_SIGNAL" => format!("objects={}", prefix::<drm_syncobj_array>(after).count_handles),
        "SYNCOBJ_TIMELINE_SIGNAL" => {
            format!("objects={}", prefix::<drm_syncobj_timeline_array>(after).count_handles)
        }
        "SYNCOBJ_QUERY" => {
            let a: drm_syncobj_timeline_array = prefix(after);
            format!("objects={} flags={}", a.count_handles, a.flags)
        }
        "SYNCOBJ_TRANSFER" => {
            let a: drm_syncobj_transfer = prefix(after);
            format!("from={} to={}", a.src_handle, a.dst_handle)
        }
        _ => String::new(),
    }
}

/// Values at an address of this process, where there may be nothing.
pub fn peek<T: Pod>(address: u64, count: usize) -> Option<Vec<T>> {
    let mut values = vec![T::zeroed(); count];
    let bytes = size_of_val(values.as_slice());
    if bytes == 0 {
        return Some(values);
    }
    let target = libc::iovec { iov_base: values.as_mut_ptr().cast(), iov_len: bytes };
    let source = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address as usize), iov_len: bytes };
    // SAFETY: the target is as long as it says, and of a type that any bytes are a value of. The kernel checks the source.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const target, 1, &raw const source, 1, 0) };
    usize::try_from(read).is_ok_and(|read| read == bytes).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::bytes_of;

    fn recorded<T: Pod>(name: &str, before: &T, after: &T, result: Result<(), Errno>) -> String {
        line(2, name, Some(&(bytes_of(before).to_vec(), bytes_of(after).to_vec())), &result)
    }

    #[test]
    fn fields_are_told_without_addresses() {
        let before = amdxdna_drm_create_bo { vaddr: 0x7f00_0000, size: 4096, type_: 1, ..Default::default() };
        let after = amdxdna_drm_create_bo { handle: 3, ..before };
        assert_eq!(recorded("CREATE_BO", &before, &after, Ok(())), "file=2 type=1 size=4096 handle=3 user");
        assert_eq!(line::<()>(2, "CREATE_BO", None, &Err(Errno::EFAULT)), "file=2");
    }

    #[test]
    fn sizes_that_the_kernel_changes_are_told_twice() {
        let before = amdxdna_drm_get_info { param: 5, buffer_size: 256, buffer: 1 };
        let after = amdxdna_drm_get_info { buffer_size: 128, ..before };
        assert_eq!(recorded("GET_INFO", &before, &after, Ok(())), "file=2 query=5 bytes=256->128");
        assert_eq!(recorded("GET_INFO", &before, &before, Ok(())), "file=2 query=5 bytes=256");
    }

    #[test]
    fn points_are_told_when_the_kernel_has_read_them() {
        let points = [3_u64, 4];
        let wait = drm_syncobj_timeline_wait {
            points: points.as_ptr().expose_provenance() as u64,
            count_handles: 2,
            flags: 3,
            ..Default::default()
        };
        let recorded = |result| recorded("SYNCOBJ_TIMELINE_WAIT", &wait, &wait, result);
        assert_eq!(recorded(Ok(())), "file=2 points=3+4 flags=3");
        assert_eq!(recorded(Err(Errno::ETIME)), "file=2 points=3+4 flags=3");
        assert_eq!(recorded(Err(Errno::EFAULT)), "file=2 points= flags=3");
    }

    #[test]
    fn memory_that_is_not_there_is_no_fault() {
        assert_eq!(peek::<u64>(16, 1), None);
        let there = 64_u32;
        assert_eq!(peek::<u32>((&raw const there).expose_provenance() as u64, 1), Some(vec![64]));
        assert_eq!(peek::<u64>(16, 0), Some(Vec::new()));
    }
}
