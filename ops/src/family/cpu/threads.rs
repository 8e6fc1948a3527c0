//! The threads that kernels run on.
//!
//! Kernels are called by a queue's thread, one after the other, hundreds of times for each token. A thread outside rayon's pool
//! hands its work over and sleeps until it is done, which costs more than many of the kernels. So such a thread becomes a
//! member of a pool of its own with the first kernel it runs: it takes part in the work, and only the others are woken.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::OnceCell;

thread_local! {
    /// `None` when the pool could not be made: the global one serves then.
    static POOL: OnceCell<Option<ThreadPool>> = const { OnceCell::new() };
}

/// Makes the calling thread a member of a pool, unless it is one. The pool has a thread for each core, or as many as
/// `RAYON_NUM_THREADS` says, with the caller.
pub fn join_pool() {
    if rayon::current_thread_index().is_some() {
        return;
    }
    POOL.with(|pool| {
        pool.get_or_init(|| {
            let builder = ThreadPoolBuilder::new().use_current_thread();
            builder.thread_name(|index| format!("aie-kernel-{index}")).build().ok()
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_outside_becomes_the_first_of_its_pool() {
        let thread = std::thread::spawn(|| {
            assert_eq!(rayon::current_thread_index(), None);
            join_pool();
            assert_eq!(rayon::current_thread_index(), Some(0));
            join_pool();
            rayon::current_num_threads()
        });
        assert_eq!(thread.join().unwrap(), rayon::current_num_threads());
    }

    #[test]
    fn a_member_stays_where_it_is() {
        let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let threads = pool.install(|| {
            join_pool();
            rayon::current_num_threads()
        });
        assert_eq!(threads, 3);
    }
}
