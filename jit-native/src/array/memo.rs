//! Arrays that have been configured: making one takes longer than everything else for a node.
//!
//! An array is one of a whole [`Arch`]: generations whose files share a name can differ in columns or loops, and a dispatch that is planned
//! for one would do something else on another.

use aie_hal::Arch;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Arrays by what they were made for, and failures. Thread-safe.
#[derive(Debug)]
pub struct Memo<P, T>(Mutex<Vec<Made<P, T>>>);

#[derive(Debug)]
struct Made<P, T> {
    arch: Arch,
    purpose: P,
    /// Set once it is made. Apart from the list, so that arrays for other purposes are found and made meanwhile.
    result: Arc<OnceLock<Result<Arc<T>, String>>>,
}

impl<P, T> Default for Memo<P, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P, T> Memo<P, T> {
    /// Without any.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<P: PartialEq, T> Memo<P, T> {
    /// The array of a generation for a purpose; `make` makes it the first time, and others that want the same wait for that.
    ///
    /// # Errors
    /// The text of what went wrong, every time.
    pub fn get<E: ToString>(
        &self,
        arch: &Arch,
        purpose: P,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, String> {
        let result = self.place(arch, purpose);
        result.get_or_init(|| make().map(Arc::new).map_err(|error| error.to_string())).clone()
    }

    /// Where the array is, or will be.
    fn place(&self, arch: &Arch, purpose: P) -> Arc<OnceLock<Result<Arc<T>, String>>> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = made.iter().find(|found| found.purpose == purpose && found.arch == *arch) {
            return Arc::clone(&found.result);
        }
        let result = Arc::default();
        made.push(Made { arch: arch.clone(), purpose, result: Arc::clone(&result) });
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;

    #[test]
    fn arrays_are_made_once_for_each_generation_and_purpose() {
        static MEMO: Memo<char, usize> = Memo::new();
        let wide = ArchRegistry::builtin().get("aie2").unwrap();
        let mut narrow = (*wide).clone();
        narrow.array.columns = 2;
        let get = |arch: &Arch, purpose, value| *MEMO.get(arch, purpose, || Ok::<_, String>(value)).unwrap();
        assert_eq!([get(&wide, 'a', 1), get(&wide, 'b', 2), get(&narrow, 'a', 3)], [1, 2, 3]);
        assert_eq!([get(&wide, 'a', 4), get(&wide, 'b', 5), get(&narrow, 'a', 6)], [1, 2, 3]);
        for reason in ["full", "later"] {
            assert_eq!(MEMO.get(&wide, 'c', || Err(reason)), Err("full".to_owned()));
        }
        // While one is made, others can be.
        let both = MEMO.get(&wide, 'd', || Ok::<_, String>(get(&wide, 'e', 4) + 1));
        assert_eq!((*both.unwrap(), get(&wide, 'e', 6)), (5, 4));
    }
}
