//! Loads and stores: sizes, extensions, and pointers that move in one, two and three dimensions.

use super::rig::{At, Check, Machine, Rig, pack_halves};

const CORE: At = (1, 2);
const OUT: u32 = 0x400;

/// Runs a program over words at 0 and compares what it stores from [`OUT`] on.
fn results(machine: Machine, input: &[u32], text: &str, expected: &[u32]) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(CORE, 0, input);
    rig.program(CORE, text);
    rig.run_to_end()?;
    rig.expect(CORE, OUT, expected)
}

const WAIT: &str = "nop\nnop\nnop\nnop\nnop\nnop\n";

/// Bytes and halves with sign and without, at an immediate and at an index register.
pub fn sizes(machine: Machine) -> Check {
    let input = [0x8081_7ffe, 0x1234_9abc];
    let mut text = String::from("movxm p0, #0x70000\nmovxm p1, #0x70400\nmova dj0, #6\n");
    for load in [
        "lda.s8 r1, [p0, #0]",
        "lda.u8 r1, [p0, #0]",
        "lda.s16 r1, [p0, #2]",
        "lda.u16 r1, [p0, #2]",
        "lda.s16 r1, [p0, dj0]",
        "lda r1, [p0, #4]",
    ] {
        text += &format!("{load}\n{WAIT}st r1, [p1], #4\n");
    }
    let expected = [0xffff_fffe, 0xfe, 0xffff_8081, 0x8081, 0x1234, 0x1234_9abc];
    results(machine, &input, &(text + "done"), &expected)
}

/// Stores of parts of words leave the rest as it is.
pub fn part_words(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(CORE, OUT, &[0x1111_1111, 0x2222_2222]);
    let text = format!(
        "movxm p0, #0x70400\nmovxm r1, #0xabcdef\nst.s8 r1, [p0, #1]\n{WAIT}{WAIT}mova dj0, #6\nst.s16 r1, [p0, dj0]\n{WAIT}{WAIT}done"
    );
    rig.program(CORE, &text);
    rig.run_to_end()?;
    rig.expect(CORE, OUT, &[0x1111_ef11, 0xcdef_2222])
}

/// Every second word backwards: the pointer moves by an immediate, then by a modifier register.
pub fn post_modify(machine: Machine) -> Check {
    let input: Vec<u32> = (100..116).collect();
    let mut text = String::from("movxm p0, #0x7001c\nmovxm p1, #0x70400\nmova m0, #12\n");
    for load in ["lda r1, [p0], #-8", "lda r2, [p0], #-8", "lda r3, [p0], m0", "lda r4, [p0], m0"] {
        text += &format!("{load}\n");
    }
    text += &format!("{WAIT}st r1, [p1], #4\nst r2, [p1], #4\nst r3, [p1], #4\nst r4, [p1], #4\ndone");
    results(machine, &input, &text, &[107, 105, 103, 106])
}

/// A 4 by 3 block of a matrix with 8 columns, row by row.
pub fn two_dimensions(machine: Machine) -> Check {
    let input: Vec<u32> = (0..64).map(|index| index * index).collect();
    // dn steps minus one; m goes from the end of a row to the beginning of the next.
    let mut text = String::from(
        "movxm p0, #0x70000\nmovxm p1, #0x70400\nmova dn0, #3\nmova dj0, #4\nmova dc0, #0\nmova m0, #20\n",
    );
    for _ in 0..12 {
        text += &format!("lda.2d r1, [p0], d0\n{WAIT}st r1, [p1], #4\n");
    }
    let expected: Vec<u32> =
        (0..3).flat_map(|row| (0..4).map(move |column| row * 8 + column)).map(|at| at * at).collect();
    results(machine, &input, &(text + "done"), &expected)
}

/// Two blocks of 2 by 3 of a cube with 4 by 4 planes.
pub fn three_dimensions(machine: Machine) -> Check {
    let input: Vec<u32> = (0..64).map(|index| 1000 + index).collect();
    // Low dimension: 2 words. High dimension: 3 rows of 4. Then the next plane of 16.
    let mut text = String::from("movxm p0, #0x70000\nmovxm p1, #0x70400\nmova dn0, #1\nmova dj0, #4\nmova dc0, #0\n");
    text += "mova dn4, #2\nmova dj4, #12\nmova dc4, #0\nmova m0, #28\n";
    for _ in 0..12 {
        text += &format!("lda.3d r1, [p0], d0_3d\n{WAIT}st r1, [p1], #4\n");
    }
    let place = |(plane, row, column): (u32, u32, u32)| 1000 + 16 * plane + 4 * row + column;
    let places = (0..2).flat_map(|plane| (0..3).flat_map(move |row| (0..2).map(move |column| (plane, row, column))));
    let expected: Vec<u32> = places.map(place).collect();
    results(machine, &input, &(text + "done"), &expected)
}

/// The stack pointer as a base, and pointer arithmetic without an access.
pub fn stack_and_pointers(machine: Machine) -> Check {
    let text = format!(
        "movxm sp, #0x70440\nmovxm p0, #0x70000\nmovxm r1, #1234567\nst r1, [sp, #-64]\npadda [p0], #64\nmova m1, #-60
        paddb [p0], m1\nlda r2, [p0, #0]\n{WAIT}st r2, [sp, #-60]\nnop\ndone"
    );
    results(machine, &[7, 8, 9], &text, &[1_234_567, 8])
}

/// A vector is two loads of 32 bytes; what is stored is what was there.
pub fn vectors(machine: Machine) -> Check {
    let input = pack_halves((0..32).map(|lane| 3 * lane + 1));
    let (load, store) = if machine.isa.name() == "aie2" {
        ("vlda wl0, [p0], #32\nvlda wh0, [p0], #32", "vst wl0, [p1], #32\nvst wh0, [p1], #32")
    } else {
        ("vlda x0, [p0], #64\nnop", "vst x0, [p1], #64\nnop")
    };
    let text = format!("movxm p0, #0x70000\nmovxm p1, #0x70400\n{load}\n{WAIT}{store}\ndone");
    results(machine, &input, &text, &input)
}
