//! Which threads are inside of the simulator.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as inside of the simulator until dropped: what it calls of the C library then is for itself.
pub struct ReentryGuard;

impl ReentryGuard {
    /// None for a thread that is inside already.
    pub fn enter() -> Option<Self> {
        // At the end of a thread its marks are gone; then it is only cleaning up.
        let was = INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true);
        (!was).then(|| Self)
    }
}

impl Drop for ReentryGuard {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(false));
    }
}

/// Starts a thread of the simulator: what it calls of the C library is for itself, and it takes no signals of the program.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let _inside = ReentryGuard::enter();
    // The thread inherits the mask, the caller gets its own back.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let work = || {
        let _inside = ReentryGuard::enter();
        work();
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    before.thread_set_mask()?;
    thread.map(drop)
}
