//! Streams and cascades between cores.

use super::rig::{At, Check, Machine, Rig, pack_halves};
use aie_hal::format::core_control::{CascadeInput, CascadeOutput, cascade};
use aie_hal::format::stream_switch::Port;

const OUT: u32 = 0x400;
const WAIT: &str = "nop\nnop\nnop\nnop\nnop\nnop\n";

/// One core writes twenty numbers into its stream, another reads them and keeps a running sum. The reader waits for words, and
/// the writer for space while the reader is slower.
pub fn words_between_cores(machine: Machine) -> Check {
    let (from, to): (At, At) = ((0, 2), (1, 2));
    let mut rig = Rig::new(machine);
    let write = "
        movx r1, #3
        movxm r5, #20
        .align 16
again:  mov ms, r1
        add r1, r1, #5
        add r5, r5, #-1
        jnz r5, #again
        nop
        nop
        nop
        nop
        nop
        done";
    let read = "
        movxm p0, #0x70400
        movx r2, #0
        movxm r5, #20
        .align 16
again:  mov r1, ss
        nop
        nop
        nop
        nop
        nop
        nop
        add r2, r2, r1
        st r2, [p0], #4
        add r5, r5, #-1
        jnz r5, #again
        nop
        nop
        nop
        nop
        nop
        done";
    rig.program(from, write);
    rig.program(to, read);
    rig.circuit(from, Port::Core, Port::East(2));
    rig.circuit(to, Port::West(2), Port::Core);
    rig.run_to_end()?;
    let values = (0..20u32).map(|index| 3 + 5 * index);
    let expected: Vec<u32> = values
        .scan(0, |sum, value| {
            *sum += value;
            Some(*sum)
        })
        .collect();
    rig.expect(to, OUT, &expected)
}

/// One stream that goes to two cores at once: both get every word.
pub fn one_to_two(machine: Machine) -> Check {
    let (from, near, far): (At, At, At) = ((0, 2), (1, 2), (0, 3));
    let mut rig = Rig::new(machine);
    rig.program(from, "movxm r1, #12345\nmov ms, r1\nadd r1, r1, #1\nmov ms, r1\ndone");
    for at in [near, far] {
        let read = format!("movxm p0, #0x70400\nmov r1, ss\nmov r2, ss\n{WAIT}st r1, [p0], #4\nst r2, [p0], #4\ndone");
        rig.program(at, &read);
    }
    rig.circuit(from, Port::Core, Port::East(0));
    rig.circuit(from, Port::Core, Port::North(1));
    rig.circuit(near, Port::West(0), Port::Core);
    rig.circuit(far, Port::South(1), Port::Core);
    rig.run_to_end()?;
    rig.expect(near, OUT, &[12345, 12346])?;
    rig.expect(far, OUT, &[12345, 12346])
}

fn pass_on(machine: Machine, from: At, to: At, connect: [(At, CascadeInput, CascadeOutput); 2]) -> Check {
    let aie2 = machine.isa.name() == "aie2";
    let input = pack_halves((0..64).map(|lane| 1000 + lane));
    let mut rig = Rig::new(machine);
    rig.words(from, 0, &input);
    let (load, send, store) = if aie2 {
        (
            "vlda wl0, [p0], #32\nvlda wh0, [p0], #32\nvlda wl1, [p0], #32\nvlda wh1, [p0], #32",
            "vmov MCD, x0\nvmov MCD, x1",
            "vst wl4, [p0], #32\nvst wh4, [p0], #32\nvst wl5, [p0], #32\nvst wh5, [p0], #32",
        )
    } else {
        ("vlda x0, [p0], #64\nvlda x1, [p0], #64", "vmov mcd, x0\nvmov mcd, x1", "vst x4, [p0], #64\nvst x5, [p0], #64")
    };
    rig.program(from, &format!("movxm p0, #0x70000\n{load}\n{WAIT}{send}\ndone"));
    let scd = if aie2 { "SCD" } else { "scd" };
    let read = format!("movxm p0, #0x70400\nvmov x4, {scd}\nvmov x5, {scd}\n{WAIT}{WAIT}{store}\n{WAIT}done");
    rig.program(to, &read);
    for (at, input, output) in connect {
        rig.write(at, cascade(input, output));
    }
    rig.run_to_end()?;
    rig.expect(to, OUT, &input)
}

/// Two values of 512 bits to the core below.
pub fn cascade_south(machine: Machine) -> Check {
    let (from, to) = ((1, 3), (1, 2));
    let connect = [(from, CascadeInput::North, CascadeOutput::South), (to, CascadeInput::North, CascadeOutput::South)];
    pass_on(machine, from, to, connect)
}

/// And to the core on the right.
pub fn cascade_east(machine: Machine) -> Check {
    let (from, to) = ((0, 3), (1, 3));
    let connect = [(from, CascadeInput::North, CascadeOutput::East), (to, CascadeInput::West, CascadeOutput::South)];
    pass_on(machine, from, to, connect)
}
