//! Multiply-accumulate: integers by lanes and as matrices, bf16 by lanes.

use super::rig::{Check, Machine, pack_bytes, pack_halves};
use super::vector::{WAIT, results};

/// Stores accumulator 0: 128 bytes on AIE2, 256 on AIE2P.
fn store(machine: Machine) -> &'static str {
    match machine.isa.name() {
        "aie2" => "vst amll0, [p1], #32\nvst amlh0, [p1], #32\nvst amhl0, [p1], #32\nvst amhh0, [p1], #32\n",
        _ => "vst bmll0, [p1], #64\nvst bmlh0, [p1], #64\nvst bmhl0, [p1], #64\nvst bmhh0, [p1], #64\n",
    }
}

/// Accumulator 0 by its name in products.
fn accumulator(machine: Machine) -> &'static str {
    if machine.isa.name() == "aie2" { "cm0" } else { "dm0" }
}

/// Products of 16-bit lanes, accumulated twice and once subtracted.
pub fn lanes(machine: Machine) -> Check {
    let a: [i16; 32] = std::array::from_fn(|lane| 301 * lane as i16 - 4000);
    let b: [i16; 32] = std::array::from_fn(|lane| 5000 - 333 * lane as i16);
    // AIE2: 32 lanes of 32 bits; AIE2P: 32 lanes of 64.
    let configuration = if machine.isa.name() == "aie2" { 0x338 } else { 0x35a };
    let acc = accumulator(machine);
    let text = format!(
        "movxm r0, #{configuration:#x}\nvmul {acc}, x0, x1, r0\n{WAIT}vmac {acc}, {acc}, x0, x1, r0\n{WAIT}
        vmac {acc}, {acc}, x1, x1, r0\n{WAIT}vmsc {acc}, {acc}, x0, x0, r0\n{WAIT}{}",
        store(machine)
    );
    let product = |a: i16, b: i16| i64::from(a) * i64::from(b);
    let sums =
        (0..32).map(|lane| 2 * product(a[lane], b[lane]) + product(b[lane], b[lane]) - product(a[lane], a[lane]));
    let expected: Vec<u32> = match machine.isa.name() {
        "aie2" => sums.map(|sum| sum as u32).collect(),
        _ => sums.flat_map(|sum| [sum as u32, (sum >> 32) as u32]).collect(),
    };
    let input = [pack_halves(a.map(i16::cast_unsigned)), pack_halves(b.map(i16::cast_unsigned))];
    results(machine, &input.concat(), &text, &expected)
}

/// A matrix of 8-bit numbers with 8 columns (4 rows on AIE2, 8 on AIE2P) times one of 8 by 8.
pub fn matrices(machine: Machine) -> Check {
    let rows = if machine.isa.name() == "aie2" { 4 } else { 8 };
    let a: [i8; 64] = std::array::from_fn(|at| (at as i8).wrapping_mul(37));
    let b: [i8; 64] = std::array::from_fn(|at| (at as i8).wrapping_mul(91).wrapping_sub(50));
    let acc = accumulator(machine);
    let text = format!("movxm r0, #0x308\nvmul {acc}, x0, x1, r0\n{WAIT}{}", store(machine));
    let cell = |row: usize, column: usize| -> i32 {
        (0..8).map(|k| i32::from(a[8 * row + k]) * i32::from(b[8 * k + column])).sum()
    };
    let cells = (0..rows).flat_map(|row| (0..8).map(move |column| (row, column)));
    let expected: Vec<u32> = cells.map(|(row, column)| cell(row, column).cast_unsigned()).collect();
    let input = [pack_bytes(a.map(i8::cast_unsigned)), pack_bytes(b.map(i8::cast_unsigned))];
    results(machine, &input.concat(), &text, &expected)
}

/// bf16 products, exact in fp32: small whole numbers and halves.
pub fn floats(machine: Machine) -> Check {
    let a: [f32; 32] = std::array::from_fn(|lane| lane as f32 * 0.5 - 6.0);
    let b: [f32; 32] = std::array::from_fn(|lane| 9.0 - lane as f32);
    let aie2 = machine.isa.name() == "aie2";
    let (acc, out) = if aie2 {
        ("bml0", "vst amll0, [p1], #32\nvst amlh0, [p1], #32\n")
    } else {
        ("dm0", "vst bmll0, [p1], #64\nvst bmlh0, [p1], #64\n")
    };
    let text = format!("movx r0, #60\nvmul.f {acc}, x0, x1, r0\n{WAIT}vmac.f {acc}, {acc}, x0, x0, r0\n{WAIT}{out}");
    let value = |lane: usize| a[lane] * b[lane] + a[lane] * a[lane];
    // AIE2 adds two products to a lane; AIE2P has a lane for each.
    let expected: Vec<u32> = match aie2 {
        true => (0..16).map(|lane| (value(lane) + value(lane + 16)).to_bits()).collect(),
        false => (0..32).map(|lane| value(lane).to_bits()).collect(),
    };
    let bf16 = |values: [f32; 32]| pack_halves(values.map(|value| (value.to_bits() >> 16) as u16));
    results(machine, &[bf16(a), bf16(b)].concat(), &text, &expected)
}

/// fp32 accumulators stored as bf16, after bf16 was loaded into them.
pub fn float_conversion(machine: Machine) -> Check {
    let a: [f32; 16] = std::array::from_fn(|lane| (lane as f32 - 7.5) * 64.0);
    let (load, store) = match machine.isa.name() {
        "aie2" => ("vlda.conv.fp32.bf16 bml0, [p0, #-64]", "vst.conv.bf16.fp32 bml0, [p1], #32"),
        _ => ("vlda.conv.fp32.bf16 bmll0, [p0, #-64]", "vst.conv.bf16.fp32 bmll0, [p1], #32"),
    };
    let halves = a.map(|value| (value.to_bits() >> 16) as u16);
    // The pointer is behind the first vector.
    let input = pack_halves(halves.into_iter().chain([0; 16]));
    let text = format!("{load}\n{WAIT}{store}\n");
    results(machine, &input, &text, &pack_halves(halves))
}
