//! What the stream of calls records of a request: its fields without addresses, before and after the call.
//!
//! The same for the simulated device and for the host's own, so that their streams can be laid side by side.

use crate::user_access::prefix;
use amdxdna_sys::layout::{self, Ioctl};
use amdxdna_sys::{RequestCode, amdxdna_drm_create_bo, drm_syncobj_timeline_wait};
use bytemuck::Pod;
use nix::errno::Errno;
use std::ops::Range;

/// A structure before and after its call, filled up with zeros where the caller's is shorter.
pub type Seen = (Vec<u8>, Vec<u8>);

/// Most points of a wait that are recorded.
const POINTS: usize = 64;

/// The declaration of the call that a request is; the number alone decides.
pub fn call(code: RequestCode) -> Option<&'static Ioctl> {
    layout::ioctls().find(|call| call.code.number() == code.number())
}

/// What a line says between the name and the result.
pub fn line<T>(file: u64, name: &str, seen: Option<&Seen>, result: &Result<T, Errno>) -> String {
    let fields = seen.map(|(before, after)| {
        // Points were read by then; an earlier error may be that they cannot be.
        let waited = matches!(result, Ok(_) | Err(Errno::ETIME | Errno::EINTR));
        fields(name, before, after, waited)
    });
    format!("file={file} {}", fields.unwrap_or_default()).trim_end().to_owned()
}

/// What a line says of calls: their names, their structure, and its fields as `LABEL:FIELD` or by their own name; `*` where the call
/// may change what it was given.
const FIELDS: [(&str, &str, &str); 22] = [
    ("CREATE_BO", "amdxdna_drm_create_bo", "type size handle"),
    ("GET_BO_INFO", "amdxdna_drm_get_bo_info", "handle"),
    ("SYNC_BO", "amdxdna_drm_sync_bo", "handle direction offset size"),
    ("GEM_CLOSE", "drm_gem_close", "handle"),
    ("CREATE_HWCTX", "amdxdna_drm_create_hwctx", "tiles:num_tiles handle"),
    ("DESTROY_HWCTX", "amdxdna_drm_destroy_hwctx", "handle"),
    ("CONFIG_HWCTX", "amdxdna_drm_config_hwctx", "handle type:param_type bytes:param_val_size"),
    ("EXEC_CMD", "amdxdna_drm_exec_cmd", "context:hwctx arguments:arg_count seq"),
    ("WAIT_CMD", "amdxdna_drm_wait_cmd", "context:hwctx timeout seq"),
    ("GET_INFO", "amdxdna_drm_get_info", "query:param bytes:buffer_size*"),
    ("GET_ARRAY", "amdxdna_drm_get_array", "query:param elements:num_element* bytes:element_size*"),
    ("SET_STATE", "amdxdna_drm_set_state", "what:param"),
    ("GET_CAP", "drm_get_cap", "capability"),
    ("PRIME_HANDLE_TO_FD PRIME_FD_TO_HANDLE", "drm_prime_handle", "handle"),
    ("SYNCOBJ_CREATE SYNCOBJ_DESTROY", "drm_syncobj_create", "handle"),
    ("SYNCOBJ_HANDLE_TO_FD SYNCOBJ_FD_TO_HANDLE", "drm_syncobj_handle", "handle"),
    ("SYNCOBJ_WAIT", "drm_syncobj_wait", "objects:count_handles flags"),
    ("SYNCOBJ_TIMELINE_WAIT", "drm_syncobj_timeline_wait", "flags"),
    ("SYNCOBJ_RESET SYNCOBJ_SIGNAL", "drm_syncobj_array", "objects:count_handles"),
    ("SYNCOBJ_TIMELINE_SIGNAL", "drm_syncobj_timeline_array", "objects:count_handles"),
    ("SYNCOBJ_QUERY", "drm_syncobj_timeline_array", "objects:count_handles flags"),
    ("SYNCOBJ_TRANSFER", "drm_syncobj_transfer", "from:src_handle to:dst_handle"),
];

fn place(structure: &str, field: &str) -> Option<Range<usize>> {
    let structure = layout::structs().find(|found| found.name == structure)?;
    let field = structure.fields.iter().find(|found| found.c_name() == field)?;
    Some(field.offset..field.offset + field.size)
}

fn fields(name: &str, before: &[u8], after: &[u8], waited: bool) -> String {
    let known = FIELDS.iter().find(|(calls, ..)| calls.split(' ').any(|call| call == name));
    let Some((_, structure, fields)) = known else { return String::new() };
    let shown = |entry: &str| {
        let (label, field) = entry.split_once(':').unwrap_or((entry, entry));
        let place = place(structure, field.trim_end_matches('*'))?;
        let value = |bytes: &[u8]| bytes.get(place.clone()).map_or(0, prefix::<u64>);
        let (before, after) = (value(before), value(after));
        let is_changed = field.ends_with('*') && before != after;
        Some(if is_changed { format!("{label}={before}->{after}") } else { format!("{label}={after}") })
    };
    let mut shown: Vec<String> = fields.split(' ').filter_map(shown).collect();
    match name {
        "CREATE_BO" if prefix::<amdxdna_drm_create_bo>(after).vaddr != 0 => shown.push("user".into()),
        "SYNCOBJ_TIMELINE_WAIT" => shown.insert(0, format!("points={}", points(&prefix(after), waited))),
        _ => {}
    }
    shown.join(" ")
}

fn points(wait: &drm_syncobj_timeline_wait, waited: bool) -> String {
    let count = if waited { (wait.count_handles as usize).min(POINTS) } else { 0 };
    let points = peek::<u64>(wait.points, count).unwrap_or_else(|| vec![0; count]);
    points.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
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
    use amdxdna_sys::amdxdna_drm_get_info;
    use bytemuck::bytes_of;

    fn recorded<T: Pod>(name: &str, before: &T, after: &T, result: Result<(), Errno>) -> String {
        line(2, name, Some(&(bytes_of(before).to_vec(), bytes_of(after).to_vec())), &result)
    }

    #[test]
    fn every_call_and_field_is_declared() {
        for (calls, structure, fields) in FIELDS {
            assert!(calls.split(' ').all(|call| layout::ioctls().any(|found| found.name == call)), "{calls}");
            for entry in fields.split(' ') {
                let field = entry.rsplit(':').next().unwrap().trim_end_matches('*');
                assert!(place(structure, field).is_some(), "{structure}.{field}");
            }
        }
    }

    #[test]
    fn fields_are_recorded_without_addresses() {
        let before = amdxdna_drm_create_bo { vaddr: 0x7f00_0000, size: 4096, type_: 1, ..Default::default() };
        let after = amdxdna_drm_create_bo { handle: 3, ..before };
        assert_eq!(recorded("CREATE_BO", &before, &after, Ok(())), "file=2 type=1 size=4096 handle=3 user");
        assert_eq!(line::<()>(2, "CREATE_BO", None, &Err(Errno::EFAULT)), "file=2");
    }

    #[test]
    fn sizes_that_the_kernel_changes_are_recorded_twice() {
        let before = amdxdna_drm_get_info { param: 5, buffer_size: 256, buffer: 1 };
        let after = amdxdna_drm_get_info { buffer_size: 128, ..before };
        assert_eq!(recorded("GET_INFO", &before, &after, Ok(())), "file=2 query=5 bytes=256->128");
        assert_eq!(recorded("GET_INFO", &before, &before, Ok(())), "file=2 query=5 bytes=256");
    }

    #[test]
    fn points_are_recorded_when_the_kernel_has_read_them() {
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
