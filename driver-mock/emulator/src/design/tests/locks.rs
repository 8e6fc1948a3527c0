//! Rings whose locks can come to more than they hold, and ones that cannot.

use super::*;
use aie_hal::format::bd::MemTileBd;
use rstest::rstest;

/// A ring of a mem tile: filled from lock 0 to lock 1, sent from lock 1 to lock 0, by so much at a time.
fn ring(values: [i8; 2], filled: [i8; 2], sent: [i8; 2]) -> Design {
    let mem = (0, 1);
    let mut maker = Maker::default();
    maker.circuit(mem, Port::South(0), Port::Dma(0)).circuit(mem, Port::Dma(0), Port::South(0));
    maker.lock(mem, 0, values[0]).lock(mem, 1, values[1]);
    for (id, from, [taken, given]) in [(0, 0, filled), (1, 1, sent)] {
        let bd = MemTileBd {
            address: MemTileBd::OWN_MEMORY,
            length: 64,
            acquire: true,
            acquire_lock: 64 + from,
            acquire_value: -taken,
            release_lock: 64 + 1 - from,
            release_value: given,
            use_next: true,
            next: u32::from(id),
            valid: true,
            ..MemTileBd::default()
        };
        maker.block(mem, MemTileBd::register(id), &bd.encode().unwrap());
    }
    let task = |descriptor| DmaTask { descriptor, repeat: 0, token: false };
    maker.start(mem, Direction::StreamToMemory, 0, task(0)).start(mem, Direction::MemoryToStream, 0, task(1));
    maker.read(None)
}

#[rstest]
#[case::all_in_one([63, 0], [1, 1], [1, 1], None)]
#[case::one_more([63, 1], [1, 1], [1, 1], Some(64))]
#[case::many_at_a_time([40, 40], [4, 4], [4, 4], Some(80))]
#[case::no_bound([40, 40], [2, 1], [1, 2], None)]
fn rings_hold_what_they_begin_with(
    #[case] values: [i8; 2],
    #[case] filled: [i8; 2],
    #[case] sent: [i8; 2],
    #[case] expected: Option<u32>,
) {
    let design = ring(values, filled, sent);
    let found: Vec<String> = design.doubts.iter().map(|doubt| doubt.what.clone()).collect();
    let text = |total| {
        format!(
            "locks 0 of (0,1), 1 of (0,1) hold {total} in all, which can gather in one of them: a lock holds 0 to 63"
        )
    };
    assert_eq!(found, expected.map(text).into_iter().collect::<Vec<_>>());
}
