//! The C functions that this library stands in front of.
//!
//! They are looked up behind this library, once each. Calls that the C library makes itself never come here.

use libc::{c_char, c_int, c_uint, c_void, mode_t, size_t, ssize_t};
use nix::errno::Errno;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a function returns when it cannot be found.
trait Missing {
    fn missing() -> Self;
}

impl Missing for c_int {
    fn missing() -> Self {
        -1
    }
}

impl Missing for ssize_t {
    fn missing() -> Self {
        -1
    }
}

impl<T> Missing for *mut T {
    fn missing() -> Self {
        std::ptr::null_mut()
    }
}

fn next(cell: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cell.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cell.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("The C library's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As in C.
        pub unsafe fn $name($($argument: $type),*) -> $result {
            static CELL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let name = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => return <$result as Missing>::missing(),
            };
            let function = next(&CELL, name);
            if function.is_null() {
                Errno::ENOSYS.set();
                return <$result as Missing>::missing();
            }
            // SAFETY: the function of that name has this signature on systems whose C library is glibc; one more integer
            // argument for the functions that are variadic in C is where these look for it.
            let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(function) };
            // SAFETY: the caller's arguments, as in C.
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    opendir(path: *const c_char) -> *mut libc::DIR;
    access(path: *const c_char, mode: c_int) -> c_int;
    faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    stat64(path: *const c_char, status: *mut libc::stat64) -> c_int;
    lstat64(path: *const c_char, status: *mut libc::stat64) -> c_int;
    fstat64(fd: c_int, status: *mut libc::stat64) -> c_int;
    fstatat64(folder: c_int, path: *const c_char, status: *mut libc::stat64, flags: c_int) -> c_int;
    statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx) -> c_int;
    readlink(path: *const c_char, buffer: *mut c_char, length: size_t) -> ssize_t;
    readlinkat(folder: c_int, path: *const c_char, buffer: *mut c_char, length: size_t) -> ssize_t;
    realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char;
    close(fd: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, target: c_int) -> c_int;
    dup3(fd: c_int, target: c_int, flags: c_int) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int;
    abort() -> c_int;
    _exit(code: c_int) -> c_int;
    __assert_fail(text: *const c_char, file: *const c_char, line: c_uint, function: *const c_char) -> c_int;
}

/// `mmap` of the kernel.
///
/// # Safety
/// As in C.
pub unsafe fn mmap(
    address: *mut c_void,
    length: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's arguments, as in C. Directly, because the C library may ask for memory while a name is looked up.
    let found = unsafe { libc::syscall(libc::SYS_mmap, address, length, prot, flags, fd, offset) };
    std::ptr::with_exposed_provenance_mut(found as usize)
}

/// `munmap` of the kernel.
///
/// # Safety
/// As in C.
pub unsafe fn munmap(address: *mut c_void, length: size_t) -> c_int {
    // SAFETY: the caller's arguments, as in C.
    unsafe { libc::syscall(libc::SYS_munmap, address, length) as c_int }
}
