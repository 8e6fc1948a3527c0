//! Ends of a process that no exit handler sees.

use crate::libc_functions;
use crate::process::finish;
use libc::{c_char, c_int, c_uint};

/// Ends the process when the C library's function has not.
fn over() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, 134) };
    loop {
        std::hint::spin_loop();
    }
}

pub unsafe fn abort() -> ! {
    finish();
    // SAFETY: as in C.
    unsafe { libc_functions::abort() };
    over()
}

pub unsafe fn _exit(code: c_int) -> ! {
    let code = finish().unwrap_or(code);
    // SAFETY: as in C.
    unsafe { libc_functions::_exit(code) };
    over()
}

/// `__assert_fail`, which C's `assert` calls.
pub unsafe fn assert_fail(text: *const c_char, file: *const c_char, line: c_uint, function: *const c_char) -> ! {
    finish();
    // SAFETY: the caller's arguments.
    unsafe { libc_functions::__assert_fail(text, file, line, function) };
    over()
}
