//! What stands in front of the C library's functions.
//!
//! One Rust function for each C function, with the C function's arguments. [`preload!`](crate::preload) exports them under
//! their C names. Functions that are variadic in C (`open`, `ioctl`, `fcntl`) have one fixed argument more: on x86-64 and
//! aarch64 Linux, integers of a variable argument list are passed as any others are.
//!
//! Each function asks the simulator first and goes to the C library when the call is none of its business: another path, another
//! descriptor, a forked child, or a call that the simulator itself makes. What a caller has to keep is what C says of the function of
//! the same name.
#![allow(missing_docs, clippy::missing_safety_doc, reason = "what C says of the functions holds here")]

mod descriptors;
mod exit;
mod files;
mod status;

pub use crate::process::start;
pub use aie_hal::KernelExecutor;
pub use descriptors::{close, dup, dup2, dup3, fcntl, ioctl, mmap, munmap};
pub use exit::{_exit, abort, assert_fail};
pub use files::{access, faccessat, fopen, open, openat, opendir, readlink, readlinkat, realpath};
pub use libc;
pub use status::{fstat, fstatat, lstat, stat, statx};

use nix::errno::Errno;

/// The result of a C function that returns -1 and sets `errno`.
fn result(result: Result<i32, Errno>) -> i32 {
    result.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// Exports the C functions and starts the simulator when the library is loaded. To be used once, in a `cdylib` that is named
/// in `LD_PRELOAD`; the argument is an expression that gives an `Arc<dyn KernelExecutor>`.
#[macro_export]
macro_rules! preload {
    ($executor:expr) => {
        const _: () = {
            use $crate::interpose::libc::{
                DIR, FILE, c_char, c_int, c_uint, c_ulong, c_void, mode_t, size_t, ssize_t,
            };
            use $crate::interpose::libc::stat64 as stat_t;
            use $crate::interpose::libc::statx as statx_t;

            extern "C" fn start() {
                let executor: std::sync::Arc<dyn $crate::interpose::KernelExecutor> = $executor;
                $crate::interpose::start(executor);
            }

            #[used]
            // SAFETY: the dynamic loader calls the functions of this section once, when the C library can be used.
            #[unsafe(link_section = ".init_array")]
            static START: extern "C" fn() = start;

            $crate::export! {
                fn [open open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int = open(path, flags, mode);
                fn [__open_2 __open64_2](path: *const c_char, flags: c_int) -> c_int = open(path, flags, 0);
                fn [openat openat64](folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
                    = openat(folder, path, flags, mode);
                fn [__openat_2 __openat64_2](folder: c_int, path: *const c_char, flags: c_int) -> c_int
                    = openat(folder, path, flags, 0);
                fn [fopen fopen64](path: *const c_char, mode: *const c_char) -> *mut FILE = fopen(path, mode);
                fn [opendir](path: *const c_char) -> *mut DIR = opendir(path);
                fn [access eaccess euidaccess](path: *const c_char, mode: c_int) -> c_int = access(path, mode);
                fn [faccessat](folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int
                    = faccessat(folder, path, mode, flags);
                fn [stat stat64](path: *const c_char, status: *mut stat_t) -> c_int = stat(path, status);
                fn [__xstat __xstat64](_version: c_int, path: *const c_char, status: *mut stat_t) -> c_int
                    = stat(path, status);
                fn [lstat lstat64](path: *const c_char, status: *mut stat_t) -> c_int = lstat(path, status);
                fn [__lxstat __lxstat64](_version: c_int, path: *const c_char, status: *mut stat_t) -> c_int
                    = lstat(path, status);
                fn [fstat fstat64](fd: c_int, status: *mut stat_t) -> c_int = fstat(fd, status);
                fn [__fxstat __fxstat64](_version: c_int, fd: c_int, status: *mut stat_t) -> c_int = fstat(fd, status);
                fn [fstatat fstatat64](folder: c_int, path: *const c_char, status: *mut stat_t, flags: c_int) -> c_int
                    = fstatat(folder, path, status, flags);
                fn [__fxstatat __fxstatat64](_version: c_int, folder: c_int, path: *const c_char, status: *mut stat_t, flags: c_int) -> c_int
                    = fstatat(folder, path, status, flags);
                fn [statx](folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut statx_t) -> c_int
                    = statx(folder, path, flags, mask, status);
                fn [readlink](path: *const c_char, buffer: *mut c_char, length: size_t) -> ssize_t
                    = readlink(path, buffer, length);
                fn [readlinkat](folder: c_int, path: *const c_char, buffer: *mut c_char, length: size_t) -> ssize_t
                    = readlinkat(folder, path, buffer, length);
                fn [realpath](path: *const c_char, resolved: *mut c_char) -> *mut c_char = realpath(path, resolved);
                fn [__realpath_chk](path: *const c_char, resolved: *mut c_char, _length: size_t) -> *mut c_char
                    = realpath(path, resolved);
                fn [close](fd: c_int) -> c_int = close(fd);
                fn [dup](fd: c_int) -> c_int = dup(fd);
                fn [dup2](fd: c_int, target: c_int) -> c_int = dup2(fd, target);
                fn [dup3](fd: c_int, target: c_int, flags: c_int) -> c_int = dup3(fd, target, flags);
                fn [fcntl fcntl64](fd: c_int, command: c_int, argument: *mut c_void) -> c_int
                    = fcntl(fd, command, argument);
                fn [ioctl](fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int = ioctl(fd, request, argument);
                fn [mmap mmap64](address: *mut c_void, length: size_t, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void
                    = mmap(address, length, prot, flags, fd, offset);
                fn [munmap](address: *mut c_void, length: size_t) -> c_int = munmap(address, length);
                fn [abort]() -> ! = abort();
                fn [_exit _Exit](code: c_int) -> ! = _exit(code);
                fn [__assert_fail](text: *const c_char, file: *const c_char, line: c_uint, function: *const c_char) -> !
                    = assert_fail(text, file, line, function);
            }
        };
    };
}

/// Exports C functions; part of [`preload!`](crate::preload).
#[doc(hidden)]
#[macro_export]
macro_rules! export {
    ($(fn [$($name:ident)+] $arguments:tt -> $result:ty = $function:ident $given:tt;)*) => {
        $($($crate::export! { @ $name $arguments $result, $function $given })+)*
    };
    (@ $name:ident ($($argument:ident: $type:ty),*) $result:ty, $function:ident ($($given:expr),*)) => {
        /// Stands in front of the C library's function of this name.
        ///
        /// # Safety
        /// As in C.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's arguments, as in C.
            unsafe { $crate::interpose::$function($($given),*) }
        }
    };
}
