//! Loops, conditions, choices.

use crate::rig::{OWN, expect};
use aie_jit_native::codegen::{Address, Class, CoreBuilder, CoreError, Count, LoopForm};

const OUT: u32 = 0x400;
const IN: u32 = 0x800;

/// Stores scalars one after the other.
fn out(b: &mut CoreBuilder) -> impl Fn(&mut CoreBuilder, aie_jit_native::codegen::Reg) + use<> {
    let region = b.region("out");
    let pointer = b.pointer_at(region, OWN + OUT);
    move |b, reg| b.store(reg, pointer, Address::Then(4))
}

#[test]
fn a_constant_is_stored() {
    expect(
        |b| {
            let out = out(b);
            for number in [0, 7, -1, 1000, 70_000, 0x8000_0000] {
                let reg = b.scalar(number);
                out(b, reg);
            }
        },
        &[],
        OUT,
        &[0, 7, u32::MAX, 1000, 70_000, 0x8000_0000],
    );
}

#[test]
fn arithmetic_depends_on_what_is_before() {
    expect(
        |b| {
            let out = out(b);
            let (a, c) = (b.scalar(21), b.scalar(-3));
            let sum = b.add(a, c);
            let product = b.binary("mul", sum, a);
            let less = b.binary("lt", c, a);
            let shifted = b.binary("lshl", product, 4);
            let chosen = b.select(less, shifted, product);
            for reg in [sum, product, less, shifted, chosen] {
                out(b, reg);
            }
        },
        &[],
        OUT,
        &[18, 378, 1, 6048, 6048],
    );
}

#[test]
fn loops_run_as_often_as_said() {
    // A constant count, counts in a register from 0 to 9, with and without a promise; a loop around loops.
    expect(
        |b| {
            let out = out(b);
            let sum = b.scalar(0);
            b.repeat(10, |b| b.binary_into(sum, "add", sum, 3));
            out(b, sum);
            for count in 0..10 {
                let (n, sum) = (b.scalar(count), b.scalar(100));
                b.repeat(n, |b| b.binary_into(sum, "add", sum, n));
                out(b, sum);
            }
            for count in [2, 9] {
                let (n, sum) = (b.scalar(count), b.scalar(0));
                b.repeat(Count::from(n).at_least(2), |b| b.binary_into(sum, "add", sum, n));
                out(b, sum);
            }
            let (total, rows) = (b.scalar(0), b.scalar(4));
            b.repeat(rows, |b| {
                b.repeat(3, |b| {
                    b.repeat(5, |b| b.binary_into(total, "add", total, 1));
                    b.binary_into(total, "add", total, 10);
                });
            });
            out(b, total);
        },
        &[],
        OUT,
        &[30, 100, 101, 104, 109, 116, 125, 136, 149, 164, 181, 4, 81, 180],
    );
}

#[test]
fn conditions_choose() {
    expect(
        |b| {
            let out = out(b);
            for number in [0, 1, -5] {
                let (condition, result) = (b.scalar(number), b.scalar(1));
                b.when(condition, |b| b.constant_into(result, 2));
                out(b, result);
                b.when_else(condition, |b| b.constant_into(result, 3), |b| b.constant_into(result, 4));
                out(b, result);
            }
            for number in 0..7 {
                let (selector, result) = (b.scalar(number), b.scalar(0));
                b.choose(selector, 5, |b, index| b.constant_into(result, 10 + i64::from(index)));
                out(b, result);
            }
        },
        &[],
        OUT,
        &[1, 4, 2, 3, 2, 3, 10, 11, 12, 13, 14, 14, 14],
    );
}

#[test]
fn a_loop_ends_when_its_condition_says_so() {
    // 27 goes to 1 in 111 steps of the Collatz sequence.
    expect(
        |b| {
            let out = out(b);
            let (n, steps) = (b.scalar(27), b.scalar(0));
            b.repeat_while(|b| {
                let odd = b.binary("and", n, 1);
                b.when_else(
                    odd,
                    |b| {
                        let triple = b.binary("mul", n, 3);
                        b.binary_into(n, "add", triple, 1);
                    },
                    |b| b.binary_into(n, "lshl", n, -1),
                );
                b.binary_into(steps, "add", steps, 1);
                b.binary("ne", n, 1)
            });
            out(b, steps);
        },
        &[],
        OUT,
        &[111],
    );
}

#[test]
fn a_loop_adds_what_it_loads() {
    let numbers: Vec<u32> = (0..40).map(|i| i * i + 3).collect();
    let sum = numbers.iter().sum();
    expect(
        |b| {
            let out = out(b);
            let region = b.region("in");
            let (from, sum, n) = (b.pointer_at(region, OWN + IN), b.scalar(0), b.scalar(40));
            b.repeat(Count::from(n).at_least(1), |b| {
                let number = b.reg(Class::Scalar);
                b.load(number, from, Address::Then(4));
                b.binary_into(sum, "add", sum, number);
            });
            out(b, sum);
        },
        &[(IN, numbers)],
        OUT,
        &[sum],
    );
}

#[test]
fn locks_are_acquired_and_released() {
    // The core's own lock 3 begins at 0.
    expect(
        |b| {
            let out = out(b);
            b.release(51, 2);
            b.acquire(51, -1);
            b.acquire(51, 1);
            b.release(51, 5);
            b.acquire(51, -5);
            let reg = b.scalar(9);
            out(b, reg);
        },
        &[],
        OUT,
        &[9],
    );
}

#[test]
fn what_is_read_before_it_is_written_is_named() {
    let mut b = CoreBuilder::new(aie_isa::Isa::aie2());
    let out = out(&mut b);
    let (condition, sum) = (b.scalar(1), b.named(Class::Scalar, "sum"));
    b.when(condition, |b| b.constant_into(sum, 3));
    out(&mut b, sum);
    let error = b.finish().unwrap_err();
    assert_eq!(error, CoreError::Unwritten { class: "r", variable: "sum".into() });
}

#[test]
fn too_many_variables_are_named() {
    let mut b = CoreBuilder::new(aie_isa::Isa::aie2());
    let region = b.region("memory");
    let pointers: Vec<_> = (0..9).map(|i| b.pointer_at(region, OWN + 64 * i)).collect();
    b.forever(|b| {
        for pointer in &pointers {
            let r = b.reg(Class::Scalar);
            b.load(r, *pointer, Address::Then(4));
            b.store(r, *pointer, Address::At(0));
        }
    });
    let error = b.finish().unwrap_err();
    assert!(matches!(error, CoreError::Registers { class: "p", available: 8, .. }), "{error}");
}

#[test]
fn constant_loop_counts_are_set_as_compiled_programs_set_them() {
    for isa in [aie_isa::Isa::aie2(), aie_isa::Isa::aie2p()] {
        for build in crate::rig::all().filter(|build| build.loops == LoopForm::Hardware) {
            let mut b = CoreBuilder::new(isa);
            let out = out(&mut b);
            let sum = b.scalar(0);
            b.repeat(10, |b| b.binary_into(sum, "add", sum, 3));
            out(&mut b, sum);
            let listing = b.finish_with(build).unwrap().listing();
            assert!(listing.contains("movxm lc, #"), "{listing}");
            assert!(!listing.contains("mova lc"), "{listing}");
        }
    }
}
