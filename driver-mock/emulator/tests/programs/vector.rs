//! Vectors: lanes added, compared and selected, permuted, moved to and from scalars, and converted.

use super::rig::{At, Check, Machine, Rig, pack_bytes, pack_halves};

const CORE: At = (1, 2);
const OUT: u32 = 0x400;
pub const WAIT: &str = "nop\nnop\nnop\nnop\nnop\nnop\n";

/// Loads a vector of 64 bytes from p0.
pub fn load(machine: Machine, number: u32) -> String {
    match machine.isa.name() {
        "aie2" => format!("vlda wl{number}, [p0], #32\nvlda wh{number}, [p0], #32\n"),
        _ => format!("vlda x{number}, [p0], #64\n"),
    }
}

/// Stores one to p1.
pub fn store(machine: Machine, number: u32) -> String {
    match machine.isa.name() {
        "aie2" => format!("vst wl{number}, [p1], #32\nvst wh{number}, [p1], #32\n"),
        _ => format!("vst x{number}, [p1], #64\n"),
    }
}

/// Runs `text` with the first vectors of `input` in x0, x1, ..., and compares what it stores.
pub fn results(machine: Machine, input: &[u32], text: &str, expected: &[u32]) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(CORE, 0, input);
    let loads: String = (0..input.len() as u32 / 16).map(|number| load(machine, number)).collect();
    rig.program(CORE, &format!("movxm p0, #0x70000\nmovxm p1, #0x70400\n{loads}{WAIT}{text}\n{WAIT}done"));
    rig.run_to_end()?;
    rig.expect(CORE, OUT, expected)
}

/// Two vectors of 16-bit numbers, with all signs and the ends of the range.
fn halves() -> ([i16; 32], [i16; 32]) {
    let a = std::array::from_fn(|lane| (lane as i16 - 16).wrapping_mul(2111));
    let b = std::array::from_fn(|lane| (lane as i16).wrapping_mul(-1237).wrapping_add(9000));
    (a, b)
}

fn words(lanes: impl IntoIterator<Item = i16>) -> Vec<u32> {
    pack_halves(lanes.into_iter().map(i16::cast_unsigned))
}

/// Sums and differences in lanes of 8, 16 and 32 bits wrap within their lane; and, or.
pub fn lanes(machine: Machine) -> Check {
    let (a, b) = halves();
    let (left, right) = (words(a), words(b));
    let mut text = String::new();
    for line in ["vadd.8", "vadd.16", "vadd.32", "vsub.8", "vsub.16", "vsub.32", "vband", "vbor"] {
        text += &format!("{line} x2, x0, x1\nnop\n{}", store(machine, 2));
    }
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let each = |by: fn(u8, u8) -> u8| pack_bytes(bytes(&left).into_iter().zip(bytes(&right)).map(|(a, b)| by(a, b)));
    let half = |by: fn(i16, i16) -> i16| words(a.into_iter().zip(b).map(|(a, b)| by(a, b)));
    let word = |by: fn(u32, u32) -> u32| left.iter().zip(&right).map(|(a, b)| by(*a, *b)).collect::<Vec<u32>>();
    let expected = [
        each(u8::wrapping_add),
        half(i16::wrapping_add),
        word(u32::wrapping_add),
        each(u8::wrapping_sub),
        half(i16::wrapping_sub),
        word(u32::wrapping_sub),
        word(|a, b| a & b),
        word(|a, b| a | b),
    ];
    results(machine, &[left.clone(), right.clone()].concat(), &text, &expected.concat())
}

/// A comparison gives a bit for each lane, and the bits choose lanes; maximum and minimum give both at once.
pub fn comparison(machine: Machine) -> Check {
    let (a, b) = halves();
    let [compare, max, min] = match machine.isa.name() {
        "aie2" => ["vlt.s16 r16, x0, x1", "vmax_lt.s16 x2, r16, x0, x1", "vmin_ge.s16 x2, r16, x0, x1"],
        _ => [
            "vlt.16 r16, x0, x1, vaddsign1",
            "vmax_lt.16 x2, r16, x0, x1, vaddsign1",
            "vmin_ge.16 x2, r16, x0, x1, vaddsign1",
        ],
    };
    let out = store(machine, 2);
    let text = format!(
        "{compare}\nnop\nvsel.16 x2, x0, x1, r16\nnop\n{out}{max}\nnop\n{out}{min}\nnop\n{out}nop\n{compare}\nnop\nst r16, [p1], #4"
    );
    let less = |lane: usize| a[lane] < b[lane];
    let lanes = || 0..32usize;
    let bits = lanes().filter(|lane| less(*lane)).fold(0, |bits, lane| bits | 1 << lane);
    let expected = [
        // A bit takes the second.
        words(lanes().map(|lane| if less(lane) { b[lane] } else { a[lane] })),
        words(lanes().map(|lane| a[lane].max(b[lane]))),
        words(lanes().map(|lane| a[lane].min(b[lane]))),
        vec![bits],
    ];
    results(machine, &[words(a), words(b)].concat(), &text, &expected.concat())
}

/// Even and odd elements of two vectors; bytes shifted out of two; a scalar pushed in at either end.
pub fn permutations(machine: Machine) -> Check {
    let (a, b) = halves();
    let out = store(machine, 2);
    let text = format!(
        "movx r0, #2\nmovx r1, #3\nmovx r2, #10\nmovxm r3, #0x12345678
        vshuffle x2, x0, x1, r0\nnop\n{out}vshuffle x2, x0, x1, r1\nnop\n{out}vshift x2, x0, x1, r2\nnop\n{out}
        vpush.lo.32 x2, r3, x0\nnop\n{out}vpush.hi.32 x2, x0, r3\nnop\n{out}"
    );
    let both: Vec<i16> = a.into_iter().chain(b).collect();
    let left = words(a);
    let expected = [
        words((0..32).map(|lane| both[2 * lane])),
        words((0..32).map(|lane| both[2 * lane + 1])),
        words((0..32).map(|lane| both[lane + 5])),
        [&[0x1234_5678], &left[..15]].concat(),
        [&left[1..], &[0x1234_5678]].concat(),
    ];
    results(machine, &[left.clone(), words(b)].concat(), &text, &expected.concat())
}

/// A scalar to all lanes, a lane to a scalar with its sign, a scalar into a lane.
pub fn scalars(machine: Machine) -> Check {
    let (a, _) = halves();
    let extract = match machine.isa.name() {
        "aie2" => "vextract.s16 r1, x0, r16",
        _ => "vextract.16 r1, x0, r16, vaddsign1",
    };
    let out = store(machine, 2);
    let text = format!(
        "movx r16, #7\nmovx r29, #5\nmovxm r3, #0x7654321\nvbcst.16 x2, r3\nnop\n{out}{extract}\nnop\nnop\nvinsert.32 x2, x0, r29, r3\nnop\n{out}
        st r1, [p1], #4"
    );
    let mut inserted = words(a);
    inserted[5] = 0x765_4321;
    let expected = [words([0x4321; 32]), inserted, vec![i32::from(a[7]).cast_unsigned()]];
    results(machine, &words(a), &text, &expected.concat())
}

/// 16 bits to 32, shifted left by 4, and back by a shift right of 6 that rounds to minus infinity, then to nearest even.
pub fn widen_and_narrow(machine: Machine) -> Check {
    let (a, _) = halves();
    let (up, down) = match machine.isa.name() {
        "aie2" => (
            "vups.s32.s16 bml0, wl0, s0\nvups.s32.s16 bmh0, wh0, s0",
            "vst.srs.s16.s32 bml0, s1, [p1], #32\nvst.srs.s16.s32 bmh0, s1, [p1], #32",
        ),
        _ => ("vups.2x cml0, x0, s0, upssign1", "vst.srs.2x cml0, s1, srssign1, [p1], #64"),
    };
    let text = format!(
        "movx r0, #4\nmovx r1, #6\nmovx r2, #12\nmov s0, r0\nmov s1, r1\nnop\n{up}\n{WAIT}{down}\n{WAIT}mov crRnd, r2\n{WAIT}{down}"
    );
    let even = |value: i16| {
        let (whole, rest) = (value >> 2, value & 3);
        whole + i16::from(rest > 2 || rest == 2 && whole & 1 == 1)
    };
    let expected = [words(a.map(|value| value >> 2)), words(a.map(even))];
    results(machine, &words(a), &text, &expected.concat())
}
