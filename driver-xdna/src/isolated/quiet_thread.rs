//! Threads that take no signals: they live in llama.cpp's process, whose handlers and whose decisions about Ctrl-C belong to
//! its own threads, and writing to a closed standard error must not end it.

use std::io;
use std::mem::MaybeUninit;

/// Starts a thread that nobody joins, with every signal blocked.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        block_signals();
        run();
    })?;
    Ok(())
}

fn block_signals() {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigfillset writes a whole signal set to the given place, and pthread_sigmask reads it and changes nothing but
    // the calling thread. A null pointer says that the former mask is not wanted.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}
