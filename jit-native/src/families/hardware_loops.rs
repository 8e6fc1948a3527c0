//! A small program with hardware loops, to see whether they repeat on a machine.
//!
//! On one machine self-made ones ran their body once. Nothing that the tables say forbids them, so what native kernels do instead, a
//! branch back by JNZ ([`LoopForm`]), is chosen where this program is wrong: it copies vectors, one in each iteration, from aligned
//! code, 1, 2 and 64 of them. Counts come from a register and from constants, which set `lc` by different instructions.

use crate::array::{Elements, ElementsColumn, Flow, Region};
use crate::codegen::{Address, Class, CoreBuilder, CoreError, CoreProgram, Count, LoopForm};
use crate::kit::{Case, Exactness, Family, Input, NativeError, isa_for};
use aie_hal::{Arch, KernelArtifact};
use aie_isa::{InstructionSet, Isa};
use aie_ops::{DataType, Node, Tensor};

/// Not among [`crate::families::FAMILIES`]: no graph gets its kernels.
pub static HARDWARE_LOOPS: Family = Family {
    name: "hardware-loops",
    operations: &[BY_REGISTER, BY_CONSTANT],
    instruction_sets: INSTRUCTION_SETS,
    cases,
    build,
};

/// Loads, stores and locks, which all have in common.
const INSTRUCTION_SETS: &[InstructionSet] = &InstructionSet::ALL;
/// Copies with a count in a register.
const BY_REGISTER: &str = "CONT";
/// Copies with constant counts.
const BY_CONSTANT: &str = "DUP";
/// The counts of the latter; with one iteration there would be no loop.
const CONSTANTS: [u32; 2] = [2, 64];
/// Words that an iteration moves.
const WORDS: u32 = 8;

/// Other numbers for each kind, so that no result is there from before.
fn cases(_: &Arch) -> Vec<Case> {
    let case = |op, vectors: u32, input| {
        let tensor = Tensor::contiguous(DataType::F32, [(WORDS * vectors) as usize, 1, 1, 1]);
        Case::new(op, tensor, &[tensor]).input(0, input).exactly(Exactness::Bytes)
    };
    let by_register = [1, 2, 64].map(|count| case(BY_REGISTER, count, Input::Between(-1.0, 1.0)));
    by_register.into_iter().chain(CONSTANTS.map(|count| case(BY_CONSTANT, count, Input::Between(1.0, 2.0)))).collect()
}

/// Parameters: which loop, 0 for that with its count in a register; the count.
fn program(isa: &'static Isa) -> Result<CoreProgram, CoreError> {
    let mut b = CoreBuilder::new(isa);
    let [parameters, from, to] = ["parameters", "from", "to"].map(|name| b.region(name));
    let minus_one = b.scalar(-1);
    b.forever(|b| {
        b.acquire(Elements::GO, minus_one);
        let block = b.pointer_at(parameters, Elements::PARAMETERS);
        let [which, count] = [0, 4].map(|offset| {
            let word = b.reg(Class::Scalar);
            b.load(word, block, Address::At(offset));
            word
        });
        b.acquire(Elements::A.full, minus_one);
        b.acquire(Elements::RESULT.empty, minus_one);
        let (from, to) = (b.pointer_at(from, Elements::A.address), b.pointer_at(to, Elements::RESULT.address));
        b.choose(which, 1 + CONSTANTS.len() as u32, |b, which| {
            let constant = (which as usize).checked_sub(1).and_then(|index| CONSTANTS.get(index));
            b.repeat(constant.map_or(Count::from(count).at_least(1), |count| Count::from(*count)).in_turn(), |b| {
                let vector = b.reg(Class::W);
                b.load(vector, from, Address::Then(4 * i64::from(WORDS)));
                b.store(vector, to, Address::Then(4 * i64::from(WORDS)));
            });
        });
        b.release(Elements::A.empty, 1);
        b.release(Elements::RESULT.full, 1);
    });
    b.finish_with(LoopForm::Hardware)
}

/// One tile of one column, whose dispatch begins with the first buffer of each ring.
fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let family = HARDWARE_LOOPS.name;
    let failed = |reason: String| NativeError::Failed { family, reason };
    let isa = isa_for(family, INSTRUCTION_SETS, arch)?;
    let count = (node.output.elements() / WORDS as usize) as u32;
    let constant = CONSTANTS.iter().position(|constant| node.op == BY_CONSTANT && *constant == count);
    let program = program(isa).map_err(|error| failed(error.to_string()))?;
    let columns = u8::try_from(arch.array.columns).unwrap_or(u8::MAX);
    let design = Elements::new(arch, columns, &program.code, &[]).map_err(|error| failed(error.to_string()))?;
    let flow = |argument| {
        let words = u64::from(WORDS * count);
        let regions = vec![Region::linear(argument, 0, 4 * words)];
        Flow { cut: (4 * WORDS * count, 2), tiles: vec![(words, 1)], regions }
    };
    let which = constant.map_or(0, |index| 1 + index as u32);
    let column = ElementsColumn {
        parameters: vec![which, count],
        a: Some(flow(0)),
        result: flow(1),
        ..ElementsColumn::default()
    };
    let stream = design.dispatch(&[column]).map_err(|error| failed(error.to_string()))?;
    Ok(design.configured().artifact(format!("native-{}", node.op), stream)?)
}
