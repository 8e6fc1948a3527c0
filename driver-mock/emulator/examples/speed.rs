//! Measures how fast the emulator is, with programs of its own: `speed [THREADS]`.
//!
//! For each program: bundles (and words of streams) that a second of the host executes, best of five runs. Run it with
//! `--release`.

#[path = "../tests/relay/mod.rs"]
mod relay;

use aie_emulator::Array;
use aie_hal::format::core_control;
use aie_isa::Isa;
use relay::{Host, relay, words, write};
use std::time::Instant;

/// Words that the relay moves.
const RELAYED: u32 = 1 << 20;
/// Words of a buffer of the relay.
const BUFFER: u32 = 1024;

/// Two numbers added, exclusive or'ed, stored and loaded: ten bundles an iteration.
const SCALAR: &str = "
        movxm r0, #400000
        movxm p0, #0x70000
        mova r1, #0
        mova r2, #0
loop:   add r0, r0, #-1
        add r1, r1, r0; st r2, [p0, #0]
        lda r3, [p0, #4]
        jnz r0, #loop
        xor r2, r1, r0
        add r4, r1, r2
        lshl r5, r4, r1
        sub r6, r4, r5
        st r6, [p0, #4]
        done
";

/// Two loads and a multiply-accumulate of 4x4x4 16-bit numbers in each bundle of a hardware loop, as compiled GEMMs have.
const MULTIPLY: &str = "
        movxm p0, #0x70000
        movxm p1, #0x71000
        movxm r1, #0x33a
        movxm ls, #loop
        movxm le, #last
        movxm lc, #250000
        nop
        nop
        nop
        nop
        nop
        nop
        .align 16
loop:   vlda wl1, [p0, #0]; vldb wl3, [p1, #0]; vmac cm0, cm0, x1, x3, r1
        vlda wl5, [p0, #32]; vldb wl7, [p1, #32]; vmac cm1, cm1, x5, x7, r1
        vlda wl1, [p0, #64]; vldb wl3, [p1, #64]; vmac cm2, cm2, x1, x3, r1
last:   vlda wl5, [p0, #96]; vldb wl7, [p1, #96]; vmac cm3, cm3, x5, x7, r1
        done
";

/// A program on the first cores of so many columns.
fn cores(text: &str, columns: u8) -> Array {
    let isa = Isa::aie2();
    let mut code = isa.assemble(text).expect("the program is one");
    code.resize(code.len().next_multiple_of(4), 0);
    let mut array = Array::new(isa, columns, 3);
    for column in 0..columns {
        let (chunks, _) = code.as_chunks();
        words(&mut array, (column, 2), 0x2_0000, chunks.iter().map(|word| u32::from_le_bytes(*word)));
        write(&mut array, (column, 2), core_control::enable(true));
    }
    array
}

/// Seconds of the fastest of five runs, and the array after it.
fn best(build: impl Fn() -> Array, threads: Option<usize>, host: &mut Host) -> (f64, Array) {
    let run = |host: &mut Host| {
        let mut array = build();
        if let Some(threads) = threads {
            array.set_threads(threads);
        }
        let start = Instant::now();
        array.settle(host).expect("the program has a model");
        (start.elapsed().as_secs_f64(), array)
    };
    let mut best = run(host);
    for _ in 1..5 {
        let next = run(host);
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

fn main() {
    let threads = std::env::args().nth(1).map(|threads| threads.parse().expect("a number of threads"));
    let mut host = Host::with_words(RELAYED as usize);
    for (name, text) in [("scalar loop", SCALAR), ("multiply-accumulate loop", MULTIPLY)] {
        for columns in [1, 4] {
            let (seconds, array) = best(|| cores(text, columns), threads, &mut host);
            let bundles = array.bundles();
            let rate = bundles as f64 / seconds / 1e6;
            println!("{name}, {columns} cores: {bundles} bundles, {rate:.2} million a second");
        }
    }
    let (seconds, _) = best(|| relay(RELAYED, BUFFER, 2), threads, &mut host);
    assert!(host.0[0] == host.0[1], "the relay has changed what it relays");
    println!("relay: {RELAYED} words, {:.2} million a second", f64::from(RELAYED) / seconds / 1e6);
}
