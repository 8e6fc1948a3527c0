//! Locks between neighbouring tiles: a core hands values to another through memory that both see.

use super::rig::{At, Check, Machine, Rig};

/// Where the producer's memory and locks are.
const PRODUCER: At = (1, 2);
const OUT: u32 = 0x400;

/// Gives eight values one at a time through one word of its own memory: lock 0 counts empty places, lock 1 full ones.
const PRODUCE: &str = "
        movxm p0, #0x70000
        movx r0, #-1
        movx r1, #1
        movxm r2, #100
        movx r5, #8
        .align 16
again:  acq #48, r0
        st r2, [p0, #0]
        rel #49, r1
        add r2, r2, #7
        add r5, r5, #-1
        jnz r5, #again
        nop
        nop
        nop
        nop
        nop
        done";

/// Takes eight values and stores them one behind the other in its own memory.
fn consume(memory: u32, locks: u32) -> String {
    format!(
        "
        movxm p0, #{memory:#x}
        movxm p1, #0x70400
        movx r0, #-1
        movx r1, #1
        movx r5, #8
        .align 16
again:  acq #{full}, r0
        lda r2, [p0, #0]
        nop
        nop
        nop
        nop
        nop
        nop
        rel #{empty}, r1
        st r2, [p1], #4
        add r5, r5, #-1
        jnz r5, #again
        nop
        nop
        nop
        nop
        nop
        done",
        full = locks + 1,
        empty = locks
    )
}

fn hand_over(machine: Machine, consumer: At, memory: u32, locks: u32) -> Check {
    let mut rig = Rig::new(machine);
    rig.lock(PRODUCER, 0, 1);
    rig.lock(PRODUCER, 1, 0);
    rig.program(PRODUCER, PRODUCE);
    rig.program(consumer, &consume(memory, locks));
    rig.run_to_end()?;
    rig.expect(consumer, OUT, &[100, 107, 114, 121, 128, 135, 142, 149])
}

/// The consumer is above: the producer is its south.
pub fn to_the_north(machine: Machine) -> Check {
    hand_over(machine, (1, 3), 0x4_0000, 0)
}

/// The consumer is to the right: the producer is its west.
pub fn to_the_east(machine: Machine) -> Check {
    hand_over(machine, (2, 2), 0x5_0000, 16)
}

/// The producer writes into the memory of the tile above, which it sees as its north.
pub fn from_the_south(machine: Machine) -> Check {
    let consumer = (1, 3);
    let mut rig = Rig::new(machine);
    rig.lock(consumer, 0, 1);
    rig.lock(consumer, 1, 0);
    let produce = PRODUCE.replace("#0x70000", "#0x60000").replace("#48", "#32").replace("#49", "#33");
    rig.program(PRODUCER, &produce);
    rig.program(consumer, &consume(0x7_0000, 48));
    rig.run_to_end()?;
    rig.expect(consumer, OUT, &[100, 107, 114, 121, 128, 135, 142, 149])
}

/// A positive value waits for exactly that value; locks are also requested by reading their addresses.
pub fn exact_values_and_requests(machine: Machine) -> Check {
    let mut rig = Rig::new(machine);
    rig.lock(PRODUCER, 3, 0);
    rig.program(PRODUCER, "movxm p0, #0x70400\nmovx r0, #2\nacq #51, r0\nmovx r1, #9\nst r1, [p0, #0]\nnop\nnop\ndone");
    rig.run()?;
    let request = |rig: &mut Rig, request| {
        let lock = aie_hal::format::lock::Lock::new(aie_hal::format::register::TileKind::Core, 3).unwrap();
        rig.array.access(1, 2, lock.request(request).unwrap()).map_err(|error| error.to_string())
    };
    use aie_hal::format::lock::LockRequest::{Acquire, Release};
    // It is 0: an acquisition fails and changes nothing, a release adds.
    let results = [request(&mut rig, Acquire(-1))?, request(&mut rig, Release(3))?, request(&mut rig, Acquire(-1))?];
    super::rig::same("requests", &results, &[0, 1, 1])?;
    rig.run_to_end()?;
    rig.expect(PRODUCER, OUT, &[9])?;
    // An acquisition of exactly 2 leaves 0.
    let left = rig.read(PRODUCER, 0x1_f030, 1);
    super::rig::same("lock 3", &left, &[0])
}
