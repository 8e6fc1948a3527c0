//! Words that a core makes of numbers and sends into its stream: headers of packets and of control packets.

/// Bit 31 makes the number of ones odd.
fn with_parity(word: u32) -> u32 {
    let word = word & 0x7fff_ffff;
    word | u32::from(word.count_ones().is_multiple_of(2)) << 31
}

/// The header of a packet: its id in bits 4:0, the row and column of the core in 20:16 and 27:21, its type in 14:12.
///
/// `core`: the core's number, its column in the upper half.
pub fn packet(id: u32, packet_type: u32, core: u32) -> u32 {
    with_parity(id & 0x1f | (packet_type & 7) << 12 | (core & 0x1f) << 16 | (core >> 16 & 0x7f) << 21)
}

/// The first word of a control packet: a register's address in bits 19:0, the number of words less one in 21:20, the operation in
/// 23:22, the id of the answer in 30:24.
pub fn control([address, words, operation, id]: [u32; 4]) -> u32 {
    with_parity(address & 0xf_ffff | (words & 3) << 20 | (operation & 3) << 22 | (id & 0x7f) << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_an_odd_number_of_ones() {
        assert_eq!(packet(5, 2, 1 << 16 | 3), 1 << 31 | 1 << 21 | 3 << 16 | 2 << 12 | 5);
        assert_eq!(packet(4, 0, 0), 4);
        assert_eq!(control([0x1f000, 1, 2, 7]), 1 << 31 | 7 << 24 | 2 << 22 | 1 << 20 | 0x1f000);
        assert_eq!(control([0, 0, 0, 3]), 1 << 31 | 3 << 24);
    }
}
