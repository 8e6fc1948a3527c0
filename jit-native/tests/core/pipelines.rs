//! Loops whose iterations overlap: what is reached, and that results stay the same.

use crate::rig::{OWN, expect, expect_on, run};
use aie_isa::Isa;
use aie_jit_native::codegen::{Address, Class, CoreBuilder, CoreProgram, Count, LoopReport, Reg, Scheduling};

const OUT: u32 = 0x400;
const A: u32 = 0x1000;
const B: u32 = 0x4000;

fn report(program: &CoreProgram, name: &str) -> LoopReport {
    program.loops.iter().find(|report| report.name == name).cloned().unwrap()
}

fn bf16(value: i32) -> u32 {
    (value as f32).to_bits() >> 16
}

/// An entry of the matrices.
fn value(i: usize, j: usize) -> i32 {
    ((i * 7 + j * 5 + i * j) % 13) as i32 - 6
}

/// 8 x 8 results of 8 x 8k times 8k x 8: two blocks of rows and of columns, `k` blocks between them.
fn bf16_product(b: &mut CoreBuilder, k: Count) {
    let [a0, a1, b0, b1, out] = ["a0", "a1", "b0", "b1", "out"].map(|name| b.region(name));
    let rows = [b.pointer_at(a0, OWN + A), b.pointer_at(a1, OWN + A + 0x1000)];
    let columns = [b.pointer_at(b0, OWN + B), b.pointer_at(b1, OWN + B + 0x1000)];
    let to = b.pointer_at(out, OWN + OUT);
    let c = b.scalar(CoreBuilder::MATRIX_BF16.into());
    let accumulators: [Reg; 4] = std::array::from_fn(|_| b.reg(Class::Acc512));
    accumulators.iter().for_each(|acc| b.emit("vclr", [*acc]));
    b.name_loop("k");
    b.repeat(k, |b| {
        let mut load = |pointer| {
            let x = b.reg(Class::X);
            b.load(x, pointer, Address::Then(64));
            x
        };
        let (x, y) = (rows.map(&mut load), columns.map(&mut load));
        for (index, acc) in accumulators.iter().enumerate() {
            b.mac_f(*acc, *acc, x[index / 2], y[index % 2], c);
        }
    });
    accumulators.iter().for_each(|acc| b.store(*acc, to, Address::Then(64)));
}

fn bf16_memory(k: usize) -> Vec<(u32, Vec<u32>)> {
    let pack = |entries: Vec<i32>| -> Vec<u32> {
        entries.as_chunks().0.iter().map(|[low, high]| bf16(*low) | bf16(*high) << 16).collect()
    };
    let rows = |block: usize| pack((0..32 * k).map(|e| value(4 * block + e % 32 / 8, e / 32 * 8 + e % 8)).collect());
    let columns = |block: usize| pack((0..32 * k).map(|e| value(e / 4, 4 * block + e % 4)).collect());
    vec![(A, rows(0)), (A + 0x1000, rows(1)), (B, columns(0)), (B + 0x1000, columns(1))]
}

fn bf16_expected(k: usize) -> Vec<u32> {
    (0..64)
        .map(|e| {
            let (block, within) = (e / 16, e % 16);
            let (row, column) = (block / 2 * 4 + within / 4, block % 2 * 4 + within % 4);
            let sum: i32 = (0..8 * k).map(|k| value(row, k) * value(k, column)).sum();
            (sum as f32).to_bits()
        })
        .collect()
}

#[test]
fn a_bf16_product_reaches_its_bound() {
    for k in [1, 2, 3, 4, 5, 16] {
        expect_on(Isa::aie2(), |b| bf16_product(b, (k as u32).into()), &bf16_memory(k), OUT, &bf16_expected(k));
        expect_on(
            Isa::aie2(),
            |b| {
                let k = b.scalar(k as i64);
                bf16_product(b, k.into());
            },
            &bf16_memory(k),
            OUT,
            &bf16_expected(k),
        );
    }
    let mut b = CoreBuilder::new(Isa::aie2());
    bf16_product(&mut b, 16.into());
    let program = b.finish().unwrap();
    let report = report(&program, "k");
    assert!(report.share() >= 0.8, "{report:?}");
}

/// The same in i8: 8 x 16 results, accumulators of 32 bits.
fn i8_product(b: &mut CoreBuilder, k: Count) {
    let [a0, a1, b0, b1, out] = ["a0", "a1", "b0", "b1", "out"].map(|name| b.region(name));
    let rows = [b.pointer_at(a0, OWN + A), b.pointer_at(a1, OWN + A + 0x1000)];
    let columns = [b.pointer_at(b0, OWN + B), b.pointer_at(b1, OWN + B + 0x1000)];
    let to = b.pointer_at(out, OWN + OUT);
    // bmode 1 is 8 x 8 bits, variant 0 4x8_8x8; both signed.
    let c = b.scalar(1 << 3 | 3 << 8);
    let accumulators: [Reg; 4] = std::array::from_fn(|_| b.reg(Class::Acc1024));
    accumulators.iter().for_each(|acc| b.emit("vclr", [*acc]));
    b.name_loop("k");
    b.repeat(k, |b| {
        let x = rows.map(|pointer| {
            let x = b.reg(Class::X);
            b.undefined(x);
            b.load(x.lo(), pointer, Address::Then(32));
            x
        });
        let y = columns.map(|pointer| {
            let y = b.reg(Class::X);
            b.load(y, pointer, Address::Then(64));
            y
        });
        for (index, acc) in accumulators.iter().enumerate() {
            b.mac(*acc, *acc, x[index / 2], y[index % 2], c);
        }
    });
    accumulators.iter().for_each(|acc| b.store(*acc, to, Address::Then(128)));
}

#[test]
fn an_i8_product_reaches_its_bound() {
    let k = 12;
    let pack = |entries: Vec<i32>| -> Vec<u32> {
        let bytes: Vec<u8> = entries.into_iter().map(|entry| entry as i8 as u8).collect();
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    let rows = |block: usize| pack((0..32 * k).map(|e| value(4 * block + e % 32 / 8, e / 32 * 8 + e % 8)).collect());
    let columns = |block: usize| pack((0..64 * k).map(|e| value(e / 8, 8 * block + e % 8)).collect());
    let memory = vec![(A, rows(0)), (A + 0x1000, rows(1)), (B, columns(0)), (B + 0x1000, columns(1))];
    let expected = (0..128).map(|e| {
        let (block, within) = (e / 32, e % 32);
        let (row, column) = (block / 2 * 4 + within / 8, block % 2 * 8 + within % 8);
        (0..8 * k).map(|k| value(row, k) * value(k, column)).sum::<i32>().cast_unsigned()
    });
    expect_on(Isa::aie2(), |b| i8_product(b, (k as u32).into()), &memory, OUT, &expected.collect::<Vec<_>>());
    let mut b = CoreBuilder::new(Isa::aie2());
    i8_product(&mut b, 12.into());
    let program = b.finish().unwrap();
    let report = report(&program, "k");
    assert!(report.share() >= 0.8, "{report:?}");
}

#[test]
fn a_short_body_is_unrolled_where_the_count_allows_it() {
    // One load and one sum an iteration: the sum's own latency of one cycle allows an interval of one.
    let numbers: Vec<u32> = (0..64).map(|i| i * 3 + 1).collect();
    let write = |count: u32, promise: bool| {
        move |b: &mut CoreBuilder| {
            let (from, to) = (b.region("from"), b.region("to"));
            let (p, q) = (b.pointer_at(from, OWN + A), b.pointer_at(to, OWN + OUT));
            let (sum, n) = (b.scalar(5), b.scalar(count.into()));
            let count = Count::from(n).at_least(8);
            b.name_loop("sum");
            b.repeat(if promise { count.multiple_of(4) } else { count }, |b| {
                let r = b.reg(Class::Scalar);
                b.load(r, p, Address::Then(4));
                b.binary_into(sum, "add", sum, r);
            });
            b.store(sum, q, Address::At(0));
        }
    };
    for count in [8, 12, 64] {
        let sum = 5 + numbers[..count as usize].iter().sum::<u32>();
        expect(write(count, false), &[(A, numbers.clone())], OUT, &[sum]);
        expect(write(count, true), &[(A, numbers.clone())], OUT, &[sum]);
    }
    for (isa, promise, rate) in
        [Isa::aie2(), Isa::aie2p()].into_iter().flat_map(|isa| [(isa, false, 2.0), (isa, true, 1.0)])
    {
        let mut b = CoreBuilder::new(isa);
        write(64, promise)(&mut b);
        let program = b.finish().unwrap();
        let report = report(&program, "sum");
        assert!(f64::from(report.interval) / f64::from(report.unrolled) <= rate, "{report:?}\n{}", program.listing());
        run(isa, &program, &[(A, numbers.clone())]);
    }
}

#[test]
fn the_naive_form_has_each_instruction_alone() {
    let mut b = CoreBuilder::new(Isa::aie2());
    bf16_product(&mut b, 4.into());
    let program = b.finish_with(Scheduling::Naive).unwrap();
    for line in Isa::aie2().listing(&program.code) {
        assert!(line.bundle.unwrap().instructions().count() <= 1, "{}", program.listing());
    }
}

#[test]
fn a_program_has_the_same_bytes_each_time() {
    let made = |_| {
        let mut b = CoreBuilder::new(Isa::aie2());
        bf16_product(&mut b, 16.into());
        let region = b.region("more");
        let (p, n) = (b.pointer_at(region, OWN + A), b.scalar(8));
        b.repeat(Count::from(n).at_least(8).multiple_of(4), |b| {
            let (r, s) = (b.reg(Class::Scalar), b.reg(Class::Scalar));
            b.load(r, p, Address::At(4));
            b.binary_into(s, "add", r, 3);
            b.store(s, p, Address::Then(4));
        });
        b.finish().unwrap().code
    };
    let first = made(0);
    assert!((1..6).map(made).all(|code| code == first));
}
