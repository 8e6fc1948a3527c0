//! Bundles to make programs of, and what a core alone is surrounded by.

use super::random::Random;
use aie_emulator::core::{Core, Fault, Layout, Stop, Surroundings};
use aie_isa::{Decoded, Isa, Kind, Value};
use std::sync::Arc;

/// Bundles of every row of the tables, some with two or three instructions.
pub fn bundles(isa: &'static Isa, random: &mut Random) -> Vec<Vec<u8>> {
    let mut decoded: Vec<Decoded<'static>> = Vec::new();
    for instruction in isa.instructions() {
        for _ in 0..3 {
            let value = |kind, random: &mut Random| match kind {
                Kind::Class(class) => {
                    let members: Vec<_> = isa.class(class).members().collect();
                    Value::Register(random.pick(&members))
                }
                Kind::Immediate(immediate) => {
                    let (low, high) = immediate.range();
                    let steps = (high - low) / immediate.step.max(1) + 1;
                    Value::Immediate(low + immediate.step * (random.next() as i64).rem_euclid(steps.max(1)))
                }
                Kind::Fixed(register) => Value::Register(register),
                Kind::Tied { .. } => Value::Immediate(0),
            };
            let values = instruction.operands.iter().map(|operand| value(operand.kind, random)).collect();
            let word = isa.encode_slot(&Decoded { instruction, values });
            decoded.extend(word.ok().and_then(|word| isa.decode_slot(instruction.slot, word).ok()));
        }
    }
    let mut bundles = Vec::new();
    for first in &decoded {
        let mut parts = vec![first.clone()];
        for _ in 0..random.below(3) {
            let other = &decoded[random.below(decoded.len())];
            if parts.iter().all(|part| part.instruction.slot != other.instruction.slot) {
                parts.push(other.clone());
            }
        }
        let bundle = isa.bundle(&parts).or_else(|_| isa.bundle(&parts[..1]));
        bundles.extend(bundle.and_then(|bundle| isa.encode(&bundle)).ok().map(|bytes| bytes.to_vec()));
    }
    bundles
}

/// Those of the bundles that a core executes.
pub fn executable(isa: &'static Isa, layout: &Arc<Layout>, bundles: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut core = Core::new(isa, Arc::clone(layout), 16 << 10, 0);
    let nops = isa.assemble(&"nop\n".repeat(16)).expect("every generation has nops");
    let executed = bundles.iter().filter(|bundle| {
        core.reset();
        core.write_program(0, bundle);
        core.write_program(bundle.len(), &nops);
        let mut around = Around { memory: vec![0; 1 << 12], random: Random(1) };
        !matches!(core.run(12, &mut around), Stop::Fault { fault: Fault::Unmodelled { .. }, .. })
    });
    executed.cloned().collect()
}

/// A core's surroundings in which everything is there.
pub struct Around {
    pub memory: Vec<u8>,
    pub random: Random,
}

impl Surroundings for Around {
    fn load(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = address as usize % (self.memory.len() - bytes.len());
        bytes.copy_from_slice(&self.memory[at..at + bytes.len()]);
        Ok(())
    }
    fn store(&mut self, address: u32, bytes: &[u8]) -> Result<(), Fault> {
        let at = address as usize % (self.memory.len() - bytes.len());
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn lock(&mut self, _id: u32) -> Result<i32, Fault> {
        Ok(self.random.below(4) as i32)
    }
    fn change_lock(&mut self, _id: u32, _by: i32) -> Result<(), Fault> {
        Ok(())
    }
    fn read_stream(&mut self) -> Option<(u32, bool)> {
        Some((self.random.word(), self.random.one_in(4)))
    }
    fn stream_readable(&mut self) -> bool {
        true
    }
    fn stream_writable(&mut self) -> bool {
        true
    }
    fn cascade_readable(&mut self) -> bool {
        true
    }
    fn read_cascade(&mut self) -> Option<[u8; 64]> {
        Some([self.random.next() as u8; 64])
    }
    fn cascade_writable(&mut self) -> bool {
        true
    }
}
