//! A borrowed view of bytes as little-endian 32-bit words.

use std::fmt;

/// Bytes in a word.
pub(super) const WORD: usize = 4;

/// Part of a file, seen as little-endian 32-bit words.
///
/// The bytes need no alignment. The view remembers where in the file it starts, so that errors can name
/// offsets; two views are equal when their words are, wherever they lie.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    words: &'a [[u8; WORD]],
    start: usize,
}

impl<'a> Words<'a> {
    /// Views `bytes`, leaving out up to three bytes at the end that do not fill a word.
    ///
    /// `start` is the file offset of the first byte.
    pub(super) fn new(bytes: &'a [u8], start: usize) -> Self {
        Self { words: bytes.as_chunks().0, start }
    }

    /// Number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there is no word.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Byte offset in the file of word `index`, which may lie past the end.
    #[must_use]
    pub fn offset(&self, index: usize) -> usize {
        self.start.saturating_add(index.saturating_mul(WORD))
    }

    /// The word at `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u32> {
        self.words.get(index).map(|word| u32::from_le_bytes(*word))
    }

    /// The words in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + DoubleEndedIterator + Clone + use<'a> {
        self.words.iter().map(|word| u32::from_le_bytes(*word))
    }

    /// The words as the bytes of the file.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.words.as_flattened()
    }

    /// The words copied to a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u32> {
        self.iter().collect()
    }

    /// `count` words from word `index` on, or nothing when there are fewer.
    pub(super) fn slice(&self, index: usize, count: usize) -> Option<Self> {
        let words = self.words.get(index..index.checked_add(count)?)?;
        Some(Self { words, start: self.offset(index) })
    }

    /// The words from word `index` on; none when that lies past the end.
    pub(super) fn from(&self, index: usize) -> Self {
        Self { words: self.words.get(index..).unwrap_or_default(), start: self.offset(index) }
    }

    /// The first `N` words, when there are exactly `N`.
    pub(super) fn exactly<const N: usize>(&self) -> Option<[u32; N]> {
        let words: &[[u8; WORD]; N] = self.words.try_into().ok()?;
        Some(words.map(u32::from_le_bytes))
    }
}

impl PartialEq for Words<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Eq for Words<'_> {}

impl fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        write!(f, "Words({} at {:#x}: [", self.len(), self.start)?;
        for word in self.iter().take(SHOWN) {
            write!(f, " {word:08x}")?;
        }
        f.write_str(if self.len() > SHOWN { " ...])" } else { " ])" })
    }
}

/// The checksum of a PDI or CDO header: the complement of the wrapping sum of its words.
pub(super) fn checksum(words: impl IntoIterator<Item = u32>) -> u32 {
    !words.into_iter().fold(0, u32::wrapping_add)
}

/// Appends `words` to `bytes` in file order.
pub(super) fn extend(bytes: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 11] = [1, 0, 0, 0, 2, 0, 0, 0x80, 9, 9, 9];

    #[test]
    fn views_whole_words_only() {
        let words = Words::new(&BYTES, 0x10);
        assert_eq!(words.to_vec(), [1, 0x8000_0002]);
        assert_eq!(words.get(2), None);
        assert_eq!(words.as_bytes(), &BYTES[..8]);
        assert_eq!(words.offset(1), 0x14);
    }

    #[test]
    fn slices_keep_their_file_offset_and_never_overrun() {
        let words = Words::new(&BYTES, 0x10);
        let second = words.slice(1, 1).unwrap();
        assert_eq!((second.get(0), second.offset(0)), (Some(0x8000_0002), 0x14));
        assert!(words.slice(1, 2).is_none());
        assert!(words.slice(usize::MAX, 2).is_none());
        assert!(words.from(7).is_empty());
        assert_eq!(words.exactly::<2>(), Some([1, 0x8000_0002]));
        assert_eq!(words.exactly::<1>(), None);
    }

    #[test]
    fn equality_is_of_content_and_debug_is_short() {
        let words = Words::new(&BYTES, 0);
        assert_eq!(words, Words::new(&BYTES[..8], 100));
        assert_eq!(format!("{words:?}"), "Words(2 at 0x0: [ 00000001 80000002 ])");
        assert!(format!("{:?}", Words::new(&[0; 4000], 0)).ends_with("...])"));
    }

    #[test]
    fn checksum_complements_the_wrapping_sum() {
        assert_eq!(checksum([]), u32::MAX);
        assert_eq!(checksum([u32::MAX, 2]), !1);
    }
}
