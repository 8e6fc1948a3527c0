//! Every row of every table: its words, made from all registers and the ends of all numbers, belong to it alone.

use aie_isa::{Decoded, Instruction, Isa, Kind, Value, Values};
use rstest::rstest;

/// What an operand can be: all registers of its class, or the ends of its range and what is around zero.
fn choices(isa: &Isa, instruction: &Instruction, operand: usize) -> Vec<Value> {
    match instruction.operands[operand].kind {
        Kind::Class(class) => isa.class(class).members().map(Value::Register).collect(),
        Kind::Immediate(immediate) => {
            let ((low, high), step) = (immediate.range(), immediate.step);
            let values = [low, low + step, -step, 0, step, high];
            values.into_iter().filter(|value| immediate.field(*value).is_some()).map(Value::Immediate).collect()
        }
        Kind::Fixed(register) => vec![Value::Register(register)],
        Kind::Tied { .. } => vec![Value::Immediate(0)],
    }
}

/// Operands that each take all their values while the others take one, which changes from operand to operand.
fn words(isa: &Isa, instruction: &Instruction) -> Vec<u64> {
    let all: Vec<Vec<Value>> = (0..instruction.operands.len()).map(|index| choices(isa, instruction, index)).collect();
    let most = all.iter().map(Vec::len).max().unwrap_or(1);
    let mut words = Vec::new();
    for turn in 0..most * 2 {
        // In the second half the operands run against each other.
        let pick = |(index, choices): (usize, &Vec<Value>)| {
            let at = if turn >= most && index % 2 == 1 { most * 2 - turn - 1 + index } else { turn + 3 * index };
            choices[at % choices.len()]
        };
        let values: Values = all.iter().enumerate().map(pick).collect();
        let word = isa.encode_slot(&Decoded { instruction, values: values.clone() });
        words.push(word.unwrap_or_else(|error| panic!("{values:?}: {error}")));
    }
    words
}

#[rstest]
fn words_are_decoded_as_they_were_encoded(#[values("aie2", "aie2p")] arch: &str) {
    let isa = Isa::for_arch(arch).unwrap();
    let mut count = 0;
    for instruction in isa.instructions() {
        for word in words(isa, instruction) {
            let decoded = isa.decode_slot(instruction.slot, word).unwrap();
            assert_eq!(decoded.instruction.key, instruction.key, "{word:#x}");
            assert_eq!(isa.encode_slot(&decoded), Ok(word), "{}", instruction.key);
            count += 1;
        }
    }
    assert!(count > 20_000, "only {count} words");
}

#[rstest]
fn no_word_fits_two_rows(#[values("aie2", "aie2p")] arch: &str) {
    let isa = Isa::for_arch(arch).unwrap();
    let fits = |row: &Instruction, word: u64| {
        let register = |operand: &aie_isa::Operand| match operand.kind {
            Kind::Class(class) => isa.class(class).register(operand.field(word) as u32).is_some(),
            _ => true,
        };
        word & row.mask == row.value && word & (row.zero | row.ignored) == 0 && row.operands.iter().all(register)
    };
    for instruction in isa.instructions() {
        for word in words(isa, instruction) {
            let rows = isa.instructions_of(instruction.slot).filter(|row| fits(row, word)).map(|row| row.key);
            assert_eq!(rows.collect::<Vec<_>>(), [instruction.key], "{word:#x}");
        }
    }
}

#[rstest]
fn text_is_assembled_to_the_same_bytes(#[values("aie2", "aie2p")] arch: &str) {
    let isa = Isa::for_arch(arch).unwrap();
    let mut different = Vec::new();
    for instruction in isa.instructions().iter().filter(|instruction| !instruction.is_nop()) {
        for word in words(isa, instruction) {
            let decoded = isa.decode_slot(instruction.slot, word).unwrap();
            let bytes = isa.encode(&isa.bundle(std::slice::from_ref(&decoded)).unwrap()).unwrap();
            let text = isa.slot_text(&decoded);
            let again = isa
                .assemble(&format!("{}: {text}", instruction.slot))
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            if again != bytes.as_slice() {
                let other = isa.decode(&again).unwrap();
                let other = other.instructions().next().map_or("", |decoded| decoded.instruction.key);
                different.push(format!("{} as {other}: {text}", instruction.key));
                break;
            }
        }
    }
    assert!(different.is_empty(), "{} rows: {different:#?}", different.len());
}

#[rstest]
fn every_instruction_has_the_timing_of_its_registers(#[values("aie2", "aie2p")] arch: &str) {
    let isa = Isa::for_arch(arch).unwrap();
    for instruction in isa.instructions() {
        for word in words(isa, instruction) {
            let decoded = isa.decode_slot(instruction.slot, word).unwrap();
            let timed = isa.timing(&decoded);
            let numbers = decoded.values.iter().filter(|value| value.register().is_none()).count();
            assert_eq!(timed.registers().count() + numbers, timed.timing().ports.len(), "{}", instruction.key);
            assert!(timed.registers().all(|port| (1..=11).contains(&port.cycle)), "{}", instruction.key);
        }
    }
}
