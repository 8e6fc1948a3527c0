//! An emulated device for the tests of array programs.

use super::{Configured, CoreMemory, Elements, GO_LOCK, Tile};
use crate::kit::spread;
use aie_emulator::array::{Waiter, What};
use aie_emulator::{Harness, Rules, Run};
use aie_hal::{Arch, ArchRegistry};
use aie_isa::Isa;

/// A generation on which small nodes take all columns, too: those of products, vectors and elements that a kernel for one column has not
/// would be in no test. Cases of families take as many as they take on an NPU.
pub fn arch(name: &str) -> Arch {
    spread(&ArchRegistry::builtin().get(name).unwrap())
}

pub fn aie2() -> Arch {
    arch("aie2")
}

/// An array with a configuration, whose arguments are words, and whose cores wait for their go locks between dispatches.
pub struct Device {
    pub harness: Harness,
    /// What waits when nothing is under way, if chains of the configuration do.
    rest: Vec<Waiter>,
}

impl Device {
    /// Loads a PDI into a new array of aie2.
    pub fn load(pdi: &[u8]) -> Result<Self, String> {
        Self::load_on(&aie2(), pdi)
    }

    pub fn load_on(arch: &Arch, pdi: &[u8]) -> Result<Self, String> {
        Ok(Self::at_rest(Harness::load(arch, pdi).map_err(|error| error.to_string())?))
    }

    pub fn load_under(arch: &Arch, pdi: &[u8], rules: Rules) -> Result<Self, String> {
        Ok(Self::at_rest(Harness::load_under(arch, pdi, rules).map_err(|error| error.to_string())?))
    }

    fn at_rest(harness: Harness) -> Self {
        let rest = if harness.rest().is_empty() { Vec::new() } else { harness.array.report().waiters };
        Self { harness, rest }
    }

    /// The device of a finished program.
    pub fn of(configured: &Configured) -> Self {
        Self::load_on(configured.grid().arch(), configured.pdi()).unwrap()
    }

    /// The values of a tile's first locks.
    pub fn locks(&self, tile: Tile, count: u32) -> Vec<u32> {
        let first = if tile.row == 1 { 0xC_0000 } else { 0x1_F000 };
        let array = &self.harness.array;
        (0..count).map(|lock| array.read(tile.column, tile.row, first + 0x10 * lock).unwrap()).collect()
    }

    /// Runs a dispatch over buffers of words. An error when it does not end, or something is still under way at its end.
    pub fn dispatch(&mut self, stream: &[u8], buffers: &mut [Vec<u32>]) -> Result<Run, String> {
        let each: Vec<usize> = (0..buffers.len()).collect();
        self.dispatch_on(stream, buffers, &each)
    }

    /// The same with the buffer of each argument by its number: arguments can share one.
    pub fn dispatch_on(&mut self, stream: &[u8], buffers: &mut [Vec<u32>], each: &[usize]) -> Result<Run, String> {
        let mut bytes: Vec<Vec<u8>> = buffers.iter().map(|words| bytes_of(words)).collect();
        let run = self.harness.dispatch(stream, &mut bytes, each).map_err(|error| error.to_string())?;
        for (words, bytes) in buffers.iter_mut().zip(&bytes) {
            *words = words_of(bytes);
        }
        // Nothing else waits: the harness has looked.
        let report = self.harness.array.report();
        let goes = |what: &What| matches!(what, What::Lock { lock, .. } if *lock == usize::from(GO_LOCK));
        let rests = |waiter: &&Waiter| goes(&waiter.what) || self.rest.contains(waiter);
        let others: Vec<String> =
            report.waiters.iter().filter(|waiter| !rests(waiter)).map(|waiter| format!("{waiter:?}")).collect();
        if others.is_empty() { Ok(run) } else { Err(format!("still waiting: {}", others.join(", "))) }
    }
}

pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// A program's bytes from its text.
pub fn assemble(text: &str) -> Vec<u8> {
    assemble_for("aie2", text)
}

fn assemble_for(arch: &str, text: &str) -> Vec<u8> {
    Isa::for_arch(arch).unwrap().assemble(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Memory of cores that the adder works with in the product design: the same as in the design of elements.
pub const ADDER_MEMORY: CoreMemory = CoreMemory {
    weights: (0, 0x2000, 2),
    operand: (0x4000, 0x2000, 2),
    result: (0x8000, 0x2000, 2),
    parameters: (0xC000, 256),
};

/// A program that adds tiles of words. Parameters: tiles, words of a tile, bytes between the buffers of a ring.
pub fn adder() -> Vec<u8> {
    adder_for("aie2")
}

/// [`adder`] for a generation.
pub fn adder_for(arch: &str) -> Vec<u8> {
    let wait = "nop\n".repeat(7);
    let delay = "nop\n".repeat(5);
    let text = format!(
        "
        movx r0, #-1
        movx r1, #1
        movxm r20, #{a}
        movxm r21, #{b}
        movxm r22, #{result}
        .align 16
begin:  acq #{go}, r0
        movxm p0, #{parameters}
        lda r5, [p0, #0]
        lda r6, [p0, #4]
        lda r7, [p0, #8]
        {wait}
        movx r8, #0
        jz r5, #begin
        {delay}
        .align 16
tile:   acq #{a_full}, r0
        acq #{b_full}, r0
        acq #{result_empty}, r0
        add r9, r20, r8
        add r10, r21, r8
        add r11, r22, r8
        mov p1, r9
        mov p2, r10
        mov p3, r11
        add r12, r6, #0
        nop
        .align 16
word:   lda r2, [p1], #4
        lda r3, [p2], #4
        {wait}
        add r4, r2, r3
        st r4, [p3], #4
        add r12, r12, #-1
        jnz r12, #word
        {delay}
        rel #{a_empty}, r1
        rel #{b_empty}, r1
        rel #{result_full}, r1
        sub r8, r7, r8
        add r5, r5, #-1
        jnz r5, #tile
        {delay}
        j #begin
        {delay}",
        a = Elements::A.address,
        b = Elements::B.address,
        result = Elements::RESULT.address,
        go = Elements::GO,
        parameters = Elements::PARAMETERS,
        a_full = Elements::A.full,
        b_full = Elements::B.full,
        result_empty = Elements::RESULT.empty,
        a_empty = Elements::A.empty,
        b_empty = Elements::B.empty,
        result_full = Elements::RESULT.full,
    );
    assemble_for(arch, &text)
}

/// A program that hands on blocks of a core of elements with chains as they come.
pub fn passer() -> Vec<u8> {
    let wait = "nop\n".repeat(7);
    let delay = "nop\n".repeat(5);
    let blocks: Vec<String> = (0..2u32)
        .map(|block| {
            let words = (0..Elements::BLOCK_BYTES / 4).map(|word| {
                let at = Elements::BLOCK_BYTES * block + 4 * word;
                format!("lda r2, [p0, #{at}]\n{wait}st r2, [p1, #{at}]\n")
            });
            format!(
                "acq #{}, r0\nacq #{}, r0\n{}rel #{}, r1\nrel #{}, r1\n",
                Elements::ARRIVING.full,
                Elements::LEAVING.empty,
                words.collect::<String>(),
                Elements::ARRIVING.empty,
                Elements::LEAVING.full
            )
        })
        .collect();
    let (from, to) = (Elements::ARRIVING.address, Elements::LEAVING.address);
    assemble(&format!(
        "movx r0, #-1\nmovx r1, #1\nmovxm p0, #{from}\nmovxm p1, #{to}\n.align 16\nturn: {}j #turn\n{delay}",
        blocks.concat()
    ))
}
