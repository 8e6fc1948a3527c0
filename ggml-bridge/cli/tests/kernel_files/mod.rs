//! Files of kernels as compilers write them, for the tests of the commands that read them.

/// An xclbin with so many copies of a PDI.
pub fn xclbin(pdi: &[u8], count: usize) -> Vec<u8> {
    let mut file = vec![0; 0x1C8 + 40 + 0x80 + 96 * count];
    let mut put = |at: usize, value: usize| file[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    let section = 0x1C8 + 40;
    for (at, value) in [(0x1C0, 1), (0x1C8, 32), (0x1E0, section), (section + 0x78, count), (section + 0x7C, 0x80)] {
        put(at, value);
    }
    put(0x1E8, 0x80 + 96 * count + pdi.len());
    for index in 0..count {
        put(section + 0x80 + 96 * index + 0x10, pdi.len());
        put(section + 0x80 + 96 * index + 0x14, 0x80 + 96 * count);
    }
    file[..8].copy_from_slice(b"xclbin2\0");
    file.extend(pdi);
    file
}

/// A stream as text, a hexadecimal word a line.
pub fn text(stream: &[u8]) -> String {
    stream.as_chunks::<4>().0.iter().map(|word| format!("{:08x}\n", u32::from_le_bytes(*word))).collect()
}
