use super::*;
use rstest::rstest;

#[rstest]
#[case::aie2(2, 0x8000_0000)]
#[case::aie2p(3, 0xC000_0000)]
fn a_linear_shim_transfer_is_as_mlir_aie_writes_it(#[case] burst: u32, #[case] word4: u32) {
    let words = ShimBd::linear(128, burst).encode().unwrap();
    assert_eq!(words, [0x80, 0, 0, 0, word4, 0x0200_0000, 0, 0x0200_0000]);
}

#[test]
fn every_field_of_a_shim_descriptor_is_in_place() {
    let bd = ShimBd {
        d0_wrap: 5,
        d0_step: 3,
        d1_wrap: 7,
        d1_step: 0x100,
        d2_step: 2,
        iteration: 1,
        iteration_wrap: 64,
        iteration_step: 9,
        next: 4,
        use_next: true,
        acquire: true,
        acquire_value: -1,
        acquire_lock: 2,
        release_value: 1,
        release_lock: 3,
        enable_packet: true,
        packet_id: 6,
        ..ShimBd::linear(10, 1)
    };
    let lock = (1 << 18) | (3 << 13) | (1 << 12) | (0x7F << 5) | 2;
    let expected = [
        10,
        0,
        (1 << 30) | (6 << 19),
        (5 << 20) | 2,
        (1 << 30) | (7 << 20) | 0xFF,
        (2 << 24) | 1,
        (1 << 26) | (63 << 20) | 8,
        (4 << 27) | (1 << 26) | (1 << 25) | lock,
    ];
    assert_eq!(bd.encode().unwrap(), expected);
    assert_eq!(ShimBd::decode(&expected), bd);
}

#[test]
fn shim_addresses_have_48_bits_and_4_byte_steps() {
    let mut bd = ShimBd::default();
    bd.set_address(0xFFFF_8765_4321_0FEF);
    assert_eq!(bd.address(), 0x8765_4321_0FEC);
    let words = bd.encode().unwrap();
    assert_eq!((words[1], words[2]), (0x4321_0FEC, 0x8765));
}

#[test]
fn mem_tile_and_core_words() {
    let bd = MemTileBd {
        length: 256,
        address: MemTileBd::OWN_MEMORY + 64,
        use_next: true,
        next: 3,
        d0_step: 1,
        d0_wrap: 16,
        d1_step: 32,
        d3_step: 2,
        d2_zero_after: 1,
        acquire: true,
        acquire_value: -1,
        acquire_lock: 65,
        release_value: 1,
        release_lock: 66,
        valid: true,
        ..MemTileBd::default()
    };
    let lock = (1 << 31) | (1 << 24) | (66 << 16) | (1 << 15) | (0x7F << 8) | 65;
    let expected = [256, (3 << 20) | (1 << 19) | 0x2_0040, 16 << 17, 31, 0, (1 << 28) | 1, 0, lock];
    assert_eq!(bd.encode().unwrap(), expected);

    let bd = CoreBd { length: 100, address: 0x100, d1_step: 5, d0_wrap: 9, valid: true, ..CoreBd::default() };
    let expected = [(0x100 << 14) | 100, 0, 4 << 13, 9 << 13, 0, 1 << 25];
    assert_eq!(bd.encode().unwrap(), expected);
}

#[test]
fn layouts_leave_only_the_reserved_bits_and_never_overlap() {
    let reserved = |masks: &[u32]| masks.iter().map(|mask| !mask).collect::<Vec<u32>>();
    let lock = (1 << 17) | (1 << 4);
    let (masks, overlaps) = ShimBd::layout();
    assert_eq!((reserved(&masks), overlaps), (vec![0, 3, 1 << 31, 1 << 31, 0, 0, 0, lock], 0));
    let (masks, overlaps) = MemTileBd::layout();
    assert_eq!((reserved(&masks), overlaps), (vec![0, 0, 0xF << 27, 0, 0, 0, 7 << 29, 0], 0));
    let (masks, overlaps) = CoreBd::layout();
    let expected = vec![0xF << 28, 0xFFFF, 0x3F << 26, 7 << 29, 0x7F << 25, lock];
    assert_eq!((reserved(&masks), overlaps), (expected, 0));
}

#[test]
fn any_words_come_back_without_their_reserved_bits() {
    fn masked<const N: usize>(words: &[u32], masks: [u32; N]) -> [u32; N] {
        std::array::from_fn(|index| masks[index] & words[index])
    }
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..2000 {
        let words: [u32; 8] = std::array::from_fn(|_| random.u32(..));
        assert_eq!(ShimBd::decode(&words).encode(), Ok(masked(&words, ShimBd::layout().0)));
        assert_eq!(MemTileBd::decode(&words).encode(), Ok(masked(&words, MemTileBd::layout().0)));
        let core = CoreBd::decode(words.first_chunk().unwrap());
        assert_eq!(core.encode(), Ok(masked(&words, CoreBd::layout().0)));
    }
}

#[rstest]
#[case::too_great(ShimBd { d0_wrap: 1024, ..ShimBd::default() }, "d0_wrap: expected 0 to 1023, found 1024")]
#[case::no_step(ShimBd { d1_step: 0, ..ShimBd::default() }, "d1_step: expected 1 to 1048576, found 0")]
#[case::iterations(ShimBd { iteration_wrap: 65, ..ShimBd::default() }, "iteration_wrap: expected 1 to 64, found 65")]
#[case::lock_value(ShimBd { acquire_value: -65, ..ShimBd::default() }, "acquire_value: expected -64 to 63, found -65")]
fn fields_that_do_not_fit_are_named(#[case] bd: ShimBd, #[case] expected: &str) {
    assert_eq!(bd.encode().unwrap_err().to_string(), format!("shim BD field {expected}"));
}

#[test]
fn registers() {
    assert_eq!((ShimBd::register(15), MemTileBd::register(47), CoreBd::register(1)), (0x1D1E0, 0xA05E0, 0x1D020));
}
