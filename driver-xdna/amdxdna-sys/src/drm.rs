//! The DRM core, as far as an accel node has it: `drm/drm.h`.

use crate::declaration::Ioctl;

/// Number of PRIME_HANDLE_TO_FD; its structure serves two requests.
pub const PRIME_HANDLE_TO_FD: u32 = 0x2d;
/// Number of PRIME_FD_TO_HANDLE.
pub const PRIME_FD_TO_HANDLE: u32 = 0x2e;
/// Number of SYNCOBJ_HANDLE_TO_FD; its structure serves two requests, as do the arrays of handles.
pub const SYNCOBJ_HANDLE_TO_FD: u32 = 0xc1;
/// Number of SYNCOBJ_FD_TO_HANDLE.
pub const SYNCOBJ_FD_TO_HANDLE: u32 = 0xc2;
/// Number of SYNCOBJ_RESET.
pub const SYNCOBJ_RESET: u32 = 0xc4;
/// Number of SYNCOBJ_SIGNAL.
pub const SYNCOBJ_SIGNAL: u32 = 0xc5;
/// Number of SYNCOBJ_QUERY.
pub const SYNCOBJ_QUERY: u32 = 0xcb;
/// Number of SYNCOBJ_TIMELINE_SIGNAL.
pub const SYNCOBJ_TIMELINE_SIGNAL: u32 = 0xcd;

structures! {
    "DRM_IOCTL_":
    /// Name and version of the kernel driver. Lengths and addresses are those of a 64-bit system.
    drm_version = ReadWrite 0x00, "VERSION" {
        version_major: i32, version_minor: i32, version_patchlevel: i32, pad: i32, name_len: u64, name: u64, date_len: u64,
        date: u64, desc_len: u64, desc: u64,
    }
    /// Gives a BO's handle back.
    drm_gem_close = Write 0x09, "GEM_CLOSE" { handle: u32, pad: u32 }
    /// Asks for a capability.
    drm_get_cap = ReadWrite 0x0c, "GET_CAP" { capability: u64, value: u64 }
    /// A BO as a descriptor and back.
    drm_prime_handle { handle: u32, flags: u32, fd: i32 }
    /// Makes a synchronisation object.
    drm_syncobj_create = ReadWrite 0xbf, "SYNCOBJ_CREATE" { handle: u32, flags: u32 }
    /// Gives one back.
    drm_syncobj_destroy = ReadWrite 0xc0, "SYNCOBJ_DESTROY" { handle: u32, pad: u32 }
    /// One as a descriptor and back. Headers of older kernels end before `point`.
    [since "7.0"] drm_syncobj_handle { handle: u32, flags: u32, fd: i32, pad: u32, point: u64 }
    /// Waits for synchronisation objects. Headers before Linux 6.6 end before `deadline_nsec`.
    drm_syncobj_wait = ReadWrite 0xc3, "SYNCOBJ_WAIT" {
        handles: u64, timeout_nsec: i64, count_handles: u32, flags: u32, first_signaled: u32, pad: u32, deadline_nsec: u64,
    }
    /// Handles of synchronisation objects, for reset and signal.
    drm_syncobj_array { handles: u64, count_handles: u32, pad: u32 }
    /// Waits for points of timelines. `timeout_nsec` is an absolute time of CLOCK_MONOTONIC. Headers before Linux 6.6 end before
    /// `deadline_nsec`.
    drm_syncobj_timeline_wait = ReadWrite 0xca, "SYNCOBJ_TIMELINE_WAIT" {
        handles: u64, points: u64, timeout_nsec: i64, count_handles: u32, flags: u32, first_signaled: u32, pad: u32,
        deadline_nsec: u64,
    }
    /// Handles with points, for query and timeline signal.
    drm_syncobj_timeline_array { handles: u64, points: u64, count_handles: u32, flags: u32 }
    /// Copies a point of one timeline to another.
    drm_syncobj_transfer = ReadWrite 0xcc, "SYNCOBJ_TRANSFER" {
        src_handle: u32, dst_handle: u32, src_point: u64, dst_point: u64, flags: u32, pad: u32,
    }
    /// Signals an eventfd with a point.
    drm_syncobj_eventfd = ReadWrite 0xcf, "SYNCOBJ_EVENTFD" { handle: u32, flags: u32, point: u64, fd: i32, pad: u32 }
}

constants! {
    /// Capability: PRIME, in one or both directions.
    DRM_CAP_PRIME: u64 = 0x5;
    /// BOs can be imported.
    DRM_PRIME_CAP_IMPORT: u64 = 0x1;
    /// BOs can be exported.
    DRM_PRIME_CAP_EXPORT: u64 = 0x2;
    /// Capability: synchronisation objects.
    DRM_CAP_SYNCOBJ: u64 = 0x13;
    /// Capability: timelines of them.
    DRM_CAP_SYNCOBJ_TIMELINE: u64 = 0x14;
    /// A synchronisation object that is signalled from the start.
    DRM_SYNCOBJ_CREATE_SIGNALED: u32 = 1;
    /// Wait for all, not for one.
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL: u32 = 1;
    /// A point that was not submitted yet is waited for too.
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT: u32 = 2;
    /// Wait until the point was submitted, not until it is reached.
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE: u32 = 4;
    /// Ask for the last point that was submitted, not the last that was reached.
    DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED: u32 = 1;
    /// A descriptor of the fence inside instead of the object.
    DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE: u32 = 1;
    /// A descriptor with a fence, put into an object that exists.
    DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE: u32 = 1;
}

/// Requests whose structures serve another one too.
pub(crate) const SHARED_IOCTLS: &[Ioctl] = &[
    Ioctl::shared::<drm_prime_handle>("DRM_IOCTL_PRIME_HANDLE_TO_FD", PRIME_HANDLE_TO_FD),
    Ioctl::shared::<drm_prime_handle>("DRM_IOCTL_PRIME_FD_TO_HANDLE", PRIME_FD_TO_HANDLE),
    Ioctl::shared::<drm_syncobj_handle>("DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD", SYNCOBJ_HANDLE_TO_FD),
    Ioctl::shared::<drm_syncobj_handle>("DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE", SYNCOBJ_FD_TO_HANDLE),
    Ioctl::shared::<drm_syncobj_array>("DRM_IOCTL_SYNCOBJ_RESET", SYNCOBJ_RESET),
    Ioctl::shared::<drm_syncobj_array>("DRM_IOCTL_SYNCOBJ_SIGNAL", SYNCOBJ_SIGNAL),
    Ioctl::shared::<drm_syncobj_timeline_array>("DRM_IOCTL_SYNCOBJ_QUERY", SYNCOBJ_QUERY),
    Ioctl::shared::<drm_syncobj_timeline_array>("DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL", SYNCOBJ_TIMELINE_SIGNAL),
];
