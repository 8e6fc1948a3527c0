//! Scalar arithmetic, branches with their delay slots, hardware loops, events and the counter.

use super::rig::{At, Check, Machine, Rig};

const CORE: At = (1, 2);
/// Where results go, in the tile's memory and as the core sees it.
const OUT: u32 = 0x400;

/// Runs a program on one core and compares the words that it stores from [`OUT`] on.
fn results(machine: Machine, text: &str, expected: &[u32]) -> Check {
    let mut rig = Rig::new(machine);
    rig.program(CORE, text);
    rig.run_to_end()?;
    rig.expect(CORE, OUT, expected)
}

/// Every two-operand instruction of the alu slot, on numbers with signs and carries.
pub fn arithmetic(machine: Machine) -> Check {
    let (a, b) = (0x8765_4321_u32, 0xffff_fc18_u32);
    let names = ["add", "sub", "mul", "and", "or", "xor", "eq", "ne", "lt", "ltu", "ge", "geu"];
    let mut text = format!("movxm p0, #0x70400\nmovxm r1, #{a:#x}\nmovxm r2, #{b:#x}\n");
    for name in names {
        text += &format!("{name} r3, r1, r2\nnop\nst r3, [p0], #4\n");
    }
    let flag = u32::from;
    let expected = [
        a.wrapping_add(b),
        a.wrapping_sub(b),
        a.wrapping_mul(b),
        a & b,
        a | b,
        a ^ b,
        flag(a == b),
        flag(a != b),
        flag(a.cast_signed() < b.cast_signed()),
        flag(a < b),
        flag(a.cast_signed() >= b.cast_signed()),
        flag(a >= b),
    ];
    results(machine, &(text + "done"), &expected)
}

/// Shifts both ways, counts of bits, extensions, absolute value, zero tests.
pub fn bits(machine: Machine) -> Check {
    let a = 0x8000_9234_u32;
    let mut text = format!("movxm p0, #0x70400\nmovxm r1, #{a:#x}\nmovx r4, #5\nmovx r5, #-5\nmovx r6, #0\n");
    for line in [
        "lshl r3, r1, r4",
        "lshl r3, r1, r5",
        "ashl r3, r1, r5",
        "clz r3, r4",
        "clb r3, r5",
        "extend.s8 r3, r1",
        "extend.s16 r3, r1",
        "extend.u8 r3, r1",
        "extend.u16 r3, r1",
        "abs r3, r5",
        "eqz r3, r6",
        "nez r3, r6",
        "add r3, r1, #-7",
        "add.nc r3, r4, #9",
    ] {
        text += &format!("{line}\nst r3, [p0], #4\n");
    }
    let expected = [
        a << 5,
        a >> 5,
        (a.cast_signed() >> 5).cast_unsigned(),
        29,
        // -5 has 29 bits of its sign, of which AIE2 counts all, and AIE2P's executor all but the sign itself.
        if machine.isa.name() == "aie2" { 29 } else { 28 },
        0x34,
        0xffff_9234,
        0x34,
        0x9234,
        5,
        1,
        0,
        a.wrapping_sub(7),
        14,
    ];
    results(machine, &(text + "done"), &expected)
}

/// A choice between two registers by r27.
pub fn selection(machine: Machine) -> Check {
    let text =
        "movxm p0, #0x70400\nmovx r1, #11\nmovx r2, #22\nmovx r27, #0\nsel.eqz r3, r1, r2, r27\nsel.nez r4, r1, r2, r27
        movx r27, #1\nsel.eqz r5, r1, r2, r27\nsel.nez r6, r1, r2, r27
        st r3, [p0], #4\nst r4, [p0], #4\nst r5, [p0], #4\nst r6, [p0], #4\ndone";
    results(machine, text, &[11, 22, 22, 11])
}

/// Five bundles after every branch are executed whether it is taken or not; a call returns behind them.
pub fn branches(machine: Machine) -> Check {
    let text = "
        movxm p0, #0x70400
        movx r1, #0
        movxm r2, #3
        jnz r2, #taken
        add r1, r1, #1
        add r1, r1, #1
        add r1, r1, #1
        add r1, r1, #1
        add r1, r1, #1
        add r1, r1, #40
        .align 16
taken:  jz r2, #never
        st r1, [p0], #4
        nop
        nop
        nop
        nop
        nop
        nop
        nop
        nop
        nop
        jl #function
        movx r3, #1
        nop
        nop
        nop
        add r3, r3, #1
        st r3, [p0], #4
        j #end
        nop
        nop
        nop
        nop
        nop
never:  movxm r9, #99
        st r9, [p0], #4
        .align 16
function:
        ret lr
        add r3, r3, #10
        nop
        nop
        nop
        add r3, r3, #10
        add r3, r3, #50
        .align 16
end:    nop
        done";
    results(machine, text, &[5, 22])
}

/// A loop that counts down with a conditional branch.
pub fn counted_branch(machine: Machine) -> Check {
    let text = "
        movxm p0, #0x70400
        movx r1, #0
        movxm r2, #10
        .align 16
again:  add r2, r2, #-1
        jnz r2, #again
        add r1, r1, r2
        nop
        nop
        nop
        nop
        st r1, [p0], #4
        done";
    // 9 + 8 + ... + 0.
    results(machine, text, &[45])
}

/// A hardware loop of three bundles, and one that a loop with a branch goes through several times.
pub fn hardware_loops(machine: Machine) -> Check {
    let text = "
        movxm p0, #0x70400
        movxm ls, #first
        movxm le, #last
        movxm r0, #20
        movx r1, #0
        movx r5, #4
        .align 16
outer:  add.nc lc, r0, #0
        nop
        nop
        nop
        nop
        nop
        nop
        .align 16
first:  .128 add r1, r1, #1
        .128 add r1, r1, #2
last:   .128 add r1, r1, #4
        st r1, [p0], #4
        add r5, r5, #-1
        jnz r5, #outer
        nop
        nop
        nop
        nop
        nop
        done";
    results(machine, text, &[140, 280, 420, 560])
}

/// An instruction event sets its bit in the core's event status, which a write of one clears.
pub fn events(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.program(CORE, "event #1\nnop\nnop\ndone");
    rig.run_to_end()?;
    // Instruction events 0 and 1 are core events 33 and 34.
    let status = |rig: &mut Rig| rig.read(CORE, 0x3_4204, 1)[0] & 0b110;
    super::rig::same("event status", &[status(&mut rig)], &[0b100])?;
    rig.array.write(CORE.0, CORE.1, 0x3_4204, 0b100, u32::MAX).map_err(|error| error.to_string())?;
    super::rig::same("event status after it is cleared", &[status(&mut rig)], &[0])
}

/// `done` stops the core: bit 20 of its status, until it is reset.
pub fn done(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.program(CORE, "movxm p0, #0x70400\nmovx r1, #7\nst r1, [p0, #0]\nnop\nnop\ndone\nnop\nnop\nnop\nnop\nnop");
    rig.run_to_end()?;
    rig.expect(CORE, OUT, &[7])?;
    let status = rig.read(CORE, 0x3_2004, 1)[0];
    super::rig::same("core status", &[status >> 20 & 1], &[1])
}
