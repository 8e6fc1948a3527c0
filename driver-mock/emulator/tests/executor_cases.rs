//! Small AIE2P programs in bundle words, with the registers and memory that AMD's public executor expects after them.

use aie_emulator::core::{Core, Fault, Layout, Stop, Surroundings};
use aie_isa::Isa;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Deserialize)]
struct Case {
    name: String,
    words: Vec<String>,
    end: String,
    #[serde(default)]
    regs: BTreeMap<String, String>,
    #[serde(default)]
    mem: BTreeMap<String, String>,
}

/// A megabyte of memory and nothing else.
struct Memory(Vec<u8>);

impl Surroundings for Memory {
    fn load(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        bytes.copy_from_slice(&self.0[address as usize..address as usize + bytes.len()]);
        Ok(())
    }
    fn store(&mut self, address: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.0[address as usize..address as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap()).collect()
}

#[test]
fn programs_end_with_the_values_that_the_executor_gives() {
    let isa = Isa::aie2p();
    let layout = Arc::new(Layout::new(isa));
    let mut problems = Vec::new();
    for line in include_str!("data/aie2p-words.jsonl").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let mut core = Core::new(isa, Arc::clone(&layout), 16 << 10, 0);
        let code: Vec<u8> = case.words.iter().flat_map(|word| bytes(word)).collect();
        assert!(core.write_program(0, &code));
        let mut memory = Memory(vec![0; 1 << 20]);
        let stop = core.run(10_000, &mut memory);
        match case.end.as_str() {
            "done" if stop == Stop::Done => {}
            "done" => {
                problems.push(format!("{}: {stop:?}", case.name));
                continue;
            }
            other => {
                problems.push(format!("{}: expected {other}, {stop:?}", case.name));
                continue;
            }
        }
        for (name, value) in &case.regs {
            let register = isa.register_named(name).unwrap_or_else(|| panic!("{}: {name}", case.name));
            let mut digits = value.trim_start_matches("0x").to_owned();
            let found: String = core.register(register).iter().rev().map(|byte| format!("{byte:02x}")).collect();
            digits = format!("{digits:0>width$}", width = found.len());
            if digits != found {
                problems.push(format!("{}: {name} is {found}, expected {digits}", case.name));
            }
        }
        for (address, value) in &case.mem {
            let at = usize::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
            let expected = bytes(value);
            let found = &memory.0[at..at + expected.len()];
            if found != expected {
                problems.push(format!("{}: memory {address} is {found:02x?}, expected {expected:02x?}", case.name));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
