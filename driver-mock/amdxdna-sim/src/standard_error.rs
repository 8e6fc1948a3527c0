//! Messages to who runs the program.

/// Writes a line to standard error in one piece.
pub fn print(message: &str) {
    let line = format!("amdxdna-sim: {message}\n");
    // SAFETY: writes the bytes of a live string. A failure cannot be reported.
    unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}
