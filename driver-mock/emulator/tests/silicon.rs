//! bf16 conversions, floor and matrix products beside values that an NPU1 gave: the instructions run as machine code.

use aie_emulator::core::{Core, Layout, Stop, Surroundings};
use aie_isa::Isa;
use std::sync::Arc;

/// Nothing around the core.
struct Nothing;

impl Surroundings for Nothing {}

/// Executes one instruction with these registers; gives the bytes of another.
fn execute(instruction: &str, registers: &[(&str, &[u8])], result: &str) -> Vec<u8> {
    let isa = Isa::aie2();
    let register = |name: &str| isa.register_named(name).unwrap_or_else(|| panic!("{name}"));
    let mut core = Core::new(isa, Arc::new(Layout::new(isa)), 16 << 10, 0);
    let code = isa.assemble(&format!("{instruction}\n{}done", "nop\n".repeat(16))).unwrap();
    assert!(core.write_program(0, &code));
    for (name, bytes) in registers {
        core.set_register(register(name), bytes);
    }
    assert_eq!(core.run(100, &mut Nothing), Stop::Done, "{instruction}");
    core.register(register(result))
}

/// Numbers of `N` bytes, written in hexadecimal.
fn numbers(text: &str) -> Vec<u32> {
    text.split(' ').map(|number| u32::from_str_radix(number, 16).unwrap()).collect()
}

fn bytes(numbers: &[u32], size: usize) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()[..size].to_vec()).collect()
}

fn words(bytes: &[u8], size: usize) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(size).map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

/// Rows of one kind: what stands behind the kind, and the columns.
fn rows(kind: &str) -> impl Iterator<Item = (&'static str, Vec<Vec<u32>>)> {
    let lines = include_str!("data/silicon.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(move |line| {
        let mut cells = line.split('\t');
        let rest = cells.next()?.strip_prefix(kind)?;
        Some((rest.trim(), cells.map(numbers).collect()))
    })
}

/// Runs an instruction on 16 lanes at a time; gives how many results there are, and those that differ: input, silicon, ours.
fn compare(
    columns: &[Vec<u32>],
    sizes: [usize; 2],
    execute: impl Fn(&[u8]) -> Vec<u8>,
) -> (usize, Vec<(u32, u32, u32)>) {
    let (mut count, mut different) = (0, Vec::new());
    for (inputs, silicon) in columns[0].chunks(16).zip(columns[1].chunks(16)) {
        let found = execute(&bytes(inputs, sizes[0]));
        for ((input, silicon), found) in inputs.iter().zip(silicon).zip(words(&found, sizes[1])) {
            count += 1;
            if *silicon != found {
                different.push((*input, *silicon, found));
            }
        }
    }
    (count, different)
}

#[test]
fn fp32_becomes_the_bf16_of_silicon() {
    let mut values = 0;
    for (mode, columns) in rows("narrow") {
        let mode: u32 = mode.parse().unwrap();
        let (count, different) = compare(&columns, [4, 2], |source| {
            let registers = [("bml0", source), ("crRnd", &mode.to_le_bytes()[..])];
            execute("vconv.bf16.fp32 wl0, bml0", &registers, "wl0")
        });
        assert_eq!(different, vec![], "mode {mode}");
        values += count;
    }
    assert_eq!(values, 480);
}

#[test]
fn bf16_becomes_the_fp32_of_silicon() {
    assert_eq!(rows("widen").count(), 1);
    for (_, columns) in rows("widen") {
        let convert = |source: &[u8]| execute("vconv.fp32.bf16 bml0, wl0", &[("wl0", source)], "bml0");
        assert_eq!(compare(&columns, [2, 4], convert), (256, vec![]));
    }
}

#[test]
fn bf16_is_floored_as_on_silicon() {
    assert_eq!(rows("floor").count(), 1);
    for (_, columns) in rows("floor") {
        let floor = |source: &[u8]| execute("vfloor.s32.bf16 x0, wl2, s0", &[("wl2", source)], "x0");
        assert_eq!(compare(&columns, [2, 4], floor), (256, vec![]));
    }
}

/// Products that overflow, with infinities and NaN among the factors. All finite results and all signs are those of silicon;
/// of 640 NaN two have another payload, which nothing public explains.
#[test]
fn matrix_products_are_those_of_silicon() {
    let (mut count, mut nan, mut different) = (0, 0, Vec::new());
    for (block, (_, columns)) in rows("product").enumerate() {
        let registers =
            [("x0", &bytes(&columns[0], 2)[..]), ("x2", &bytes(&columns[1], 2)[..]), ("r0", &28u32.to_le_bytes()[..])];
        let found = execute("vmul.f bml0, x0, x2, r0", &registers, "bml0");
        for (lane, (silicon, found)) in columns[2].iter().zip(words(&found, 4)).enumerate() {
            count += 1;
            nan += usize::from(f32::from_bits(*silicon).is_nan());
            if *silicon != found {
                different.push((block, lane, *silicon, found));
            }
        }
    }
    assert_eq!((count, nan), (864, 640));
    // The block of the file, the lane, silicon's NaN and ours.
    assert_eq!(different, [(3, 1, 0xff90_5901, 0xff80_0001), (3, 5, 0xffed_ee1d, 0xff80_0001)]);
}
