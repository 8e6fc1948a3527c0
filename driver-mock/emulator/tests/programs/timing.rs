//! Programs that depend on single cycles: results arrive exactly when the tables say, not earlier and not later.

use super::rig::{At, Check, Machine, Rig};

const CORE: At = (1, 2);
const OUT: u32 = 0x400;

fn results(machine: Machine, text: &str, expected: &[u32]) -> Check {
    let mut rig = Rig::new(machine);
    rig.words(CORE, 0, &[111, 222, 333, 444]);
    rig.program(CORE, text);
    rig.run_to_end()?;
    rig.expect(CORE, OUT, expected)
}

/// A load arrives seven cycles after its issue: the sixth bundle behind it reads the old value, the seventh the new one.
pub fn load(machine: Machine) -> Check {
    let text = "
        movxm p0, #0x70000
        movxm p1, #0x70400
        movx r1, #5
        lda r1, [p0], #4
        nop
        nop
        nop
        nop
        nop
        add r2, r1, #0
        add r3, r1, #0
        st r2, [p1], #4
        st r3, [p1], #4
        done";
    results(machine, text, &[5, 111])
}

/// One register under three loads in flight at once, each value used in the one cycle in which it is there.
pub fn pipelined_loads(machine: Machine) -> Check {
    let text = "
        movxm p0, #0x70000
        movxm p1, #0x70400
        lda r1, [p0], #4
        lda r1, [p0], #4
        lda r1, [p0], #4
        nop
        nop
        nop
        nop
        add r2, r1, #0
        add r3, r1, #0
        add r4, r1, #0
        st r2, [p1], #4
        st r3, [p1], #4
        st r4, [p1], #4
        done";
    results(machine, text, &[111, 222, 333])
}

/// A product takes two cycles; the bundle right behind it still reads the old value.
pub fn product(machine: Machine) -> Check {
    let text = "
        movxm p1, #0x70400
        movx r1, #9
        movx r2, #1
        mul r2, r1, r1
        add r3, r2, #0
        add r4, r2, #0
        st r3, [p1], #4
        st r4, [p1], #4
        done";
    results(machine, text, &[1, 81])
}

/// Moves from vector to vector forward their result one cycle earlier than the register file has it.
pub fn bypass(machine: Machine) -> Check {
    let wait = "nop\nnop\nnop\nnop\n";
    let store = if machine.isa.name() == "aie2" { "vst wl2, [p1], #32" } else { "vst x2, [p1], #64" };
    let text = format!(
        "movxm p1, #0x70400\nmovx r0, #17\nmovx r1, #42\nvbcst.32 x0, r0\n{wait}vbcst.32 x1, r1\n{wait}
        vmov x0, x1\nvmov x2, x0\n{wait}{store}\n{wait}done"
    );
    results(machine, &text, &[42; 8])
}

/// `mov.d3` delivers its value three cycles later.
pub fn delayed_move(machine: Machine) -> Check {
    let text = "
        movxm p1, #0x70400
        movx r1, #9
        movx r2, #1
        mov.d3 r2, r1
        nop
        add r3, r2, #0
        nop
        add r4, r2, #0
        st r3, [p1], #4
        st r4, [p1], #4
        done";
    results(machine, text, &[1, 9])
}

/// Integer accumulators are forwarded: a product that another one adds to is used two cycles after its issue. Any later reader
/// of the registers finds it after five.
pub fn accumulation(machine: Machine) -> Check {
    let (acc, configuration, part) = match machine.isa.name() {
        "aie2" => ("cm0", 0x338, "amll0"),
        _ => ("dm0", 0x35a, "bmll0"),
    };
    let wait = "nop\nnop\nnop\nnop\nnop\n";
    let text = format!(
        "movxm p1, #0x70400\nmovxm r0, #{configuration:#x}\nmovx r1, #3\nmovx r2, #7\nvbcst.16 x0, r1\nvbcst.16 x1, r2\n{wait}
        vmul {acc}, x0, x1, r0\nnop\nvmac {acc}, {acc}, x0, x1, r0\nnop\nvmac {acc}, {acc}, x1, x1, r0\n{wait}
        vst {part}, [p1], #64\n{wait}done"
    );
    let sum = 3 * 7 + 3 * 7 + 7 * 7;
    let expected = if machine.isa.name() == "aie2" { [sum; 8] } else { [sum, 0, sum, 0, sum, 0, sum, 0] };
    results(machine, &text, &expected)
}

/// A product arrives in its accumulator five cycles after its issue, six on AIE2P: a store one cycle before writes the old
/// value.
pub fn accumulator(machine: Machine) -> Check {
    let (acc, configuration, part, between) = match machine.isa.name() {
        "aie2" => ("cm0", 0x338, "amll0", "nop\nnop\nnop"),
        _ => ("dm0", 0x35a, "bmll0", "nop\nnop\nnop\nnop"),
    };
    let wait = "nop\nnop\nnop\nnop\nnop\n";
    let text = format!(
        "movxm p1, #0x70400\nmovxm r0, #{configuration:#x}\nmovx r1, #3\nmovx r2, #7\nvbcst.16 x0, r1\nvbcst.16 x1, r2\n{wait}
        vmul {acc}, x0, x1, r0\n{wait}{wait}
        vmul {acc}, x1, x1, r0\n{between}\nvst {part}, [p1], #64\nvst {part}, [p1], #64\n{wait}done"
    );
    let mut rig = Rig::new(machine);
    rig.program(CORE, &text);
    rig.run_to_end()?;
    let lane = |value| if machine.isa.name() == "aie2" { [value; 2] } else { [value, 0] };
    rig.expect(CORE, OUT, &lane(21))?;
    rig.expect(CORE, OUT + 64, &lane(49))
}
