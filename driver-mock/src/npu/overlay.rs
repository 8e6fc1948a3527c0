//! Writes kept apart from the memory that they are meant for: so a dispatch can run several times on the same inputs, and what each run
//! has written can be compared.

use aie_emulator::HostMemory;
use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// A page of which some bytes are written.
#[derive(Clone, PartialEq, Eq)]
struct Page {
    bytes: [u8; PAGE],
    is_written: [bool; PAGE],
}

/// Memory with writes over it, which do not reach it.
pub struct Overlay<M> {
    memory: M,
    pages: BTreeMap<u64, Box<Page>>,
}

/// Memory that says whether a write would be possible.
pub trait Writable: HostMemory {
    /// Whether these bytes may be written; if not, it remembers why.
    fn may_write(&mut self, address: u64, bytes: usize) -> bool;
}

/// The pages of some bytes: number of the page, where in it they begin, and which of them they are.
fn pages(address: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let place = address + at as u64;
        let start = (place % PAGE as u64) as usize;
        let count = (PAGE - start).min(length - at);
        let part = (place / PAGE as u64, start, at..at + count);
        at += count;
        (count > 0).then_some(part)
    })
}

impl<M> Overlay<M> {
    /// Nothing is written over `memory`.
    pub fn over(memory: M) -> Self {
        Self { memory, pages: BTreeMap::new() }
    }

    /// The memory below.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The first address that was written here and not there, or with another byte.
    pub fn difference<N>(&self, other: &Overlay<N>) -> Option<u64> {
        let numbers = self.pages.keys().chain(other.pages.keys());
        let differs = |number: &&u64| self.pages.get(*number) != other.pages.get(*number);
        let number = *numbers.filter(differs).min()?;
        let byte = |pages: &BTreeMap<u64, Box<Page>>, at: usize| {
            pages.get(&number).filter(|page| page.is_written[at]).map(|page| page.bytes[at])
        };
        let at = (0..PAGE).find(|at| byte(&self.pages, *at) != byte(&other.pages, *at))?;
        Some(number * PAGE as u64 + at as u64)
    }
}

impl<M: Writable> Overlay<M> {
    /// Lets the writes reach the memory.
    pub fn commit(mut self) -> M {
        for (number, page) in &self.pages {
            let mut at = 0;
            for run in page.is_written.chunk_by(|one, next| one == next) {
                if run[0] {
                    // It was possible when it was written here.
                    self.memory.write(number * PAGE as u64 + at as u64, &page.bytes[at..at + run.len()]);
                }
                at += run.len();
            }
        }
        self.memory
    }
}

impl<M: Writable> HostMemory for Overlay<M> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        if !self.memory.read(address, bytes) {
            return false;
        }
        for (number, start, part) in pages(address, bytes.len()) {
            let Some(page) = self.pages.get(&number) else { continue };
            for (at, byte) in (start..).zip(&mut bytes[part]) {
                if page.is_written[at] {
                    *byte = page.bytes[at];
                }
            }
        }
        true
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        if !self.memory.may_write(address, bytes.len()) {
            return false;
        }
        for (number, start, part) in pages(address, bytes.len()) {
            let new = || Box::new(Page { bytes: [0; PAGE], is_written: [false; PAGE] });
            let page = self.pages.entry(number).or_insert_with(new);
            page.bytes[start..start + part.len()].copy_from_slice(&bytes[part.clone()]);
            page.is_written[start..start + part.len()].fill(true);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve thousand bytes from address 100 on.
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn place(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
            let start = usize::try_from(address.checked_sub(100)?).ok()?;
            self.0.get_mut(start..start + length)
        }
    }

    impl HostMemory for Bytes {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            self.place(address, bytes.len()).map(|place| bytes.copy_from_slice(place)).is_some()
        }

        fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
            self.place(address, bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
        }
    }

    impl Writable for Bytes {
        fn may_write(&mut self, address: u64, bytes: usize) -> bool {
            self.place(address, bytes).is_some()
        }
    }

    fn overlay() -> Overlay<Bytes> {
        Overlay::over(Bytes(vec![1; 12_000]))
    }

    #[test]
    fn what_is_written_is_read_and_reaches_the_memory_at_the_end() {
        let mut over = overlay();
        assert!(over.write(4000, &[9; 200]) && !over.write(12_050, &[9; 200]));
        let mut bytes = [0; 204];
        assert!(over.read(3998, &mut bytes));
        assert_eq!((bytes[..2].to_vec(), bytes[202..].to_vec()), (vec![1; 2], vec![1; 2]));
        assert!(bytes[2..202].iter().all(|byte| *byte == 9));
        assert!(over.memory().0.iter().all(|byte| *byte == 1));
        let memory = over.commit();
        assert_eq!(memory.0.iter().filter(|byte| **byte == 9).count(), 200);
        assert_eq!(memory.0[3900..4100], [9; 200]);
    }

    #[test]
    fn differences_are_in_bytes_and_in_what_is_written() {
        let (mut one, mut other) = (overlay(), overlay());
        assert_eq!(one.difference(&other), None);
        one.write(5000, &[1; 8]);
        assert_eq!(
            (one.difference(&other), other.difference(&one)),
            (Some(5000), Some(5000)),
            "also what it was before"
        );
        other.write(5000, &[1, 1, 1, 2, 1, 1, 1, 1]);
        assert_eq!(one.difference(&other), Some(5003));
    }
}
