//! Descriptors against the words that AMD's register library (aie-rt) computes for the same numbers, without the fields that
//! parts do not have: packets, compression, padding, and other values of locks than one.

use super::super::tile::Tile;
use super::*;

const RING: Ring =
    Ring { tile: Tile::new(0, 2), address: 0x1000, stride: 0x100, depth: 5, capacity: 0x500, empty: 2, full: 3 };

fn dimensions(numbers: &[(u64, u64)]) -> Vec<Dimension> {
    numbers.iter().map(|(step, size)| Dimension::new(*size, *step)).collect()
}

/// aie-rt's row for core BD 5, with 32 words less in its third dimension so that a buffer holds it.
#[test]
fn a_core_descriptor() {
    let ring = Ring { stride: 0x100 * 8, capacity: 0x100 * 40, ..RING };
    let part = Part::strided(ring, 0, &dimensions(&[(1, 8), (16, 4), (128, 4)]));
    let link = Link { channel: Channel::receive(ring.tile, 0), next: Some(7), slot: 2, packet: None };
    let (register, words) = encode(TileKind::Core, 3, 5, &part, &link).unwrap();
    // Iterations step by 512 words instead of 64, and no packet id in the second word.
    let expected = [0x0100_0080, 0, 0x0001_E000, 0x0081_007F, 0x0010_8000 | 511, 0x3E04_7FE2];
    assert_eq!((register, &words[..]), (0x1_D0A0, &expected[..]));
}

/// aie-rt's row for mem tile BD 30, without padding and compression, and with one for the values of locks.
#[test]
fn a_mem_tile_descriptor() {
    let tile = Tile::new(0, 1);
    let ring = Ring { tile, address: 0x2000, stride: 0x3000, depth: 9, capacity: 0x1B000, empty: 10, full: 11 };
    let part = Part::strided(ring, 0, &dimensions(&[(1, 8), (16, 4), (128, 3), (1000, 2)]));
    let link = Link { channel: Channel::receive(tile, 0), next: Some(31), slot: 0, packet: None };
    let (register, words) = encode(TileKind::Mem, 4, 30, &part, &link).unwrap();
    let length = 8 * 4 * 3 * 2;
    // The row's word 1 is its address in words behind the western neighbour's memory, with the next descriptor.
    let expected = [
        length,
        0x05FA_0800 & 0x03FF_FFFF,
        0x0010_0000,
        0x1808_000F & 0x07FF_FFFF,
        0xA806_007F & 0x07FF_FFFF,
        0x6204_03E7 & 0x0001_FFFF,
        0x0010_0000 | (0x3000 / 4 - 1),
        0x814B_FF4A,
    ];
    assert_eq!((register, &words[..]), (0xA_03C0, &expected[..]));
}

#[test]
fn senders_wait_for_full_buffers() {
    let part = Part::linear(RING, 64);
    let link = Link { channel: Channel::send(RING.tile, 1), next: None, slot: 0, packet: None };
    let (_, words) = encode(TileKind::Core, 3, 0, &part, &link).unwrap();
    let bd = CoreBd::decode(&words.try_into().unwrap());
    assert_eq!((bd.acquire, bd.acquire_lock, bd.acquire_value), (true, 3, -1));
    assert_eq!((bd.release_lock, bd.release_value, bd.use_next), (2, 1, false));
    assert_eq!((bd.d0_wrap, bd.d1_wrap, bd.length, bd.iteration_wrap), (0, 0, 64, 5));
}

#[test]
fn parts_without_locks_stay_at_their_buffer() {
    let part =
        Part { acquire: false, release: false, advance: false, ..Part::strided(RING, 16, &dimensions(&[(1, 4)])) };
    let link = Link { channel: Channel::send(RING.tile, 1), next: None, slot: 3, packet: None };
    let (_, words) = encode(TileKind::Core, 3, 0, &part, &link).unwrap();
    let bd = CoreBd::decode(&words.try_into().unwrap());
    assert!(!bd.acquire && bd.release_value == 0 && bd.iteration_wrap == 1);
    assert_eq!(bd.address, (0x1000 + 3 * 0x100 + 16) / 4);
}

#[test]
fn parts_end_within_their_buffer() {
    let link = Link { channel: Channel::receive(RING.tile, 0), next: None, slot: 0, packet: None };
    let message = |part: &Part| encode(TileKind::Core, 3, 0, part, &link).unwrap_err().to_string();
    let end = "the end of what a channel moves in a buffer is";
    assert_eq!(message(&Part::linear(RING, 65)), format!("{end} 260: it has to be 4 to 256"));
    assert_eq!(message(&Part::linear(RING, 0)), format!("{end} 4: it has to be 4 to 256"));
    assert_eq!(message(&Part::strided(RING, 8, &dimensions(&[(1, 63)]))), format!("{end} 260: it has to be 4 to 256"));
    assert_eq!(
        message(&Part::strided(RING, 0, &dimensions(&[(1, 8), (9, 8)]))),
        format!("{end} 284: it has to be 4 to 256")
    );
    assert_eq!(
        message(&Part::strided(RING, 2, &dimensions(&[(1, 8)]))),
        "the offset in a buffer is 2, no multiple of 4"
    );
    let four = [(1, 2), (4, 2), (8, 2), (16, 2)];
    assert_eq!(
        message(&Part::strided(RING, 0, &dimensions(&four))),
        "S2MM 0 of tile (0,2) needs 4 dimensions: its descriptors have 3"
    );
    assert_eq!(
        message(&Part::strided(RING, 0, &dimensions(&[(1, 2), (0, 2)]))),
        "a step within a buffer is 0: it has to be 1 to 64"
    );
    let elsewhere = Ring { tile: Tile::new(0, 3), ..RING };
    assert!(message(&Part::linear(elsewhere, 1)).contains("tile (0,3)"));
}

/// 3 words and 5 zeros, 4 times: the fields of zeros and sizes, and a length with the zeros.
#[test]
fn mem_tiles_send_zeros_behind_the_innermost_dimension() {
    let ring = Ring { tile: Tile::new(0, 1), ..RING };
    let link = Link { channel: Channel::send(ring.tile, 4), next: None, slot: 0, packet: None };
    let bd = |part: &Part| {
        encode(TileKind::Mem, 4, 0, part, &link).map(|(_, words)| MemTileBd::decode(&words.try_into().unwrap()))
    };
    let rows = Part::strided(ring, 0, &dimensions(&[(1, 3), (3, 4)])).padded(5);
    let rows = bd(&rows).unwrap();
    assert_eq!((rows.length, rows.d0_wrap, rows.d0_zero_after, rows.d1_step), (32, 3, 5, 3));
    // A row of one word is still a row.
    let words = bd(&Part::strided(ring, 0, &dimensions(&[(1, 1), (1, 4)])).padded(31)).unwrap();
    assert_eq!((words.length, words.d0_wrap, words.d0_zero_after, words.d1_step), (128, 1, 31, 1));
    let one = bd(&Part::linear(ring, 6).padded(2)).unwrap();
    assert_eq!((one.length, one.d0_wrap, one.d0_zero_after), (8, 6, 2));
    assert!(bd(&Part::linear(ring, 6).padded(64)).is_err());
    let arriving = Link { channel: Channel::receive(ring.tile, 0), next: None, slot: 0, packet: None };
    assert!(encode(TileKind::Mem, 4, 0, &Part::linear(ring, 6).padded(2), &arriving).is_err());
    let of_core = Link { channel: Channel::send(RING.tile, 0), next: None, slot: 0, packet: None };
    assert!(encode(TileKind::Core, 3, 0, &Part::linear(RING, 6).padded(2), &of_core).is_err());
}
