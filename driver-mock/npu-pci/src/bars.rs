//! The BARs: memory that the guest reads and writes in words.

use crate::model::{BarSizes, Register};

#[derive(Debug)]
pub struct Bars {
    bars: Vec<Vec<u8>>,
}

impl Bars {
    pub fn new(sizes: &BarSizes) -> Self {
        Self { bars: sizes.iter().map(|size| vec![0; *size as usize]).collect() }
    }

    /// Reads; what is beyond the end reads as ones.
    pub fn read(&self, bar: usize, offset: usize, target: &mut [u8]) {
        let memory = self.bars.get(bar).map_or(&[][..], Vec::as_slice);
        for (index, byte) in target.iter_mut().enumerate() {
            *byte = offset.checked_add(index).and_then(|at| memory.get(at)).copied().unwrap_or(0xff);
        }
    }

    /// Writes; what is beyond the end is lost.
    pub fn write(&mut self, bar: usize, offset: usize, source: &[u8]) {
        let end = offset.checked_add(source.len());
        let target = self.bars.get_mut(bar).zip(end).and_then(|(memory, end)| memory.get_mut(offset..end));
        if let Some(target) = target {
            target.copy_from_slice(source);
        }
    }

    pub fn word(&self, register: Register) -> u32 {
        let mut bytes = [0; 4];
        self.read(register.bar, register.offset as usize, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub fn set_word(&mut self, register: Register, word: u32) {
        self.write(register.bar, register.offset as usize, &word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_and_the_end_is_minded() {
        let mut bars = Bars::new(&[8, 0, 0, 0, 0, 0]);
        let register = Register { bar: 0, offset: 4 };
        bars.set_word(register, 0x1234_5678);
        assert_eq!(bars.word(register), 0x1234_5678);
        bars.write(0, 6, &[0; 4]);
        assert_eq!(bars.word(register), 0x1234_5678);
        let mut bytes = [0; 2];
        bars.read(0, 7, &mut bytes);
        assert_eq!(bytes, [0x12, 0xff]);
        bars.read(1, usize::MAX, &mut bytes);
        assert_eq!(bytes, [0xff, 0xff]);
        bars.write(9, 0, &[1]);
    }
}
