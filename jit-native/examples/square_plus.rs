//! A kernel from nothing, y = x * x + c, as another crate would write it (docs/native-write.md):
//!
//!     cargo run -p aie-jit-native --example square_plus [-- aie2p]
//!
//! It prints what the compiler makes of the program, what the kernel configures, and what a dispatch took.

use aie_emulator::{Harness, design_of};
use aie_hal::{Arch, ArchRegistry, KernelArtifact};
use aie_isa::InstructionSet;
use aie_jit_native::NativeCompiler;
use aie_jit_native::array::{Elements, ElementsColumn, Flow, Memo, Region};
use aie_jit_native::codegen::{Address, Class, CoreBuilder, Count, LoopForm};
use aie_jit_native::kit::{ConfigureError, Family, NativeError, isa_for};
use aie_jit_native::numerics::{Lanes, Unit, UnitProgram, Vectors, product::square, written_for};
use aie_ops::{DataType, Node, OpParams, Tensor};

/// Words of a tile: half a ring, so that a tile arrives while another is computed.
const TILE: usize = 2048;

/// The family. Parameter 0 of a node is c.
pub static SQUARE_PLUS: Family = Family {
    name: "square-plus",
    operations: &["SQUARE_PLUS"],
    instruction_sets: &InstructionSet::ALL,
    cases: |_| Vec::new(),
    build,
};

/// The program of a core. Parameters, in words: tiles, vectors of a tile, c.
pub struct SquarePlus;

impl UnitProgram for SquarePlus {
    fn write<U: Unit>(&self, b: &mut CoreBuilder, unit: U) {
        let [parameters, input, output] = ["parameters", "x", "y"].map(|name| b.region(name));
        let minus_one = b.scalar(-1);
        b.forever(|b| {
            b.acquire(Elements::GO, minus_one);
            let block = b.pointer_at(parameters, Elements::PARAMETERS);
            let [tiles, vectors, c] = [0, 4, 8].map(|offset| {
                let word = b.reg(Class::Scalar);
                b.load(word, block, Address::At(offset));
                word
            });
            // Both buffers of a ring take turns: the next one is their sum less this one.
            let places = [Elements::A.address, Elements::RESULT.address];
            let [x_at, y_at] = places.map(|at| b.scalar(at.into()));
            let [x_sum, y_sum] = places.map(|at| b.scalar(i64::from(2 * at) + 4 * TILE as i64));
            b.repeat(Count::from(tiles).at_least(1), |b| {
                b.acquire(Elements::A.full, minus_one);
                b.acquire(Elements::RESULT.empty, minus_one);
                let (from, to) = (b.pointer(input), b.pointer(output));
                b.mov(from, x_at);
                b.mov(to, y_at);
                let addend = {
                    let mut lanes = unit.one(b);
                    let bits = lanes.splat(c);
                    lanes.float(bits)
                };
                b.name_loop("square plus");
                b.repeat(Count::from(vectors).at_least(1), |b| {
                    let mut lanes = unit.one(b);
                    let x = lanes.load(from, Address::Then(64));
                    let squared = square(&mut lanes, x);
                    let y = lanes.add(squared, addend);
                    lanes.store(y, to, Address::Then(64));
                });
                b.release(Elements::A.empty, 1);
                b.release(Elements::RESULT.full, 1);
                b.binary_into(x_at, "sub", x_sum, x_at);
                b.binary_into(y_at, "sub", y_sum, y_at);
            });
        });
    }
}

/// Arrays that are configured with the program: made once for each generation.
static ARRAYS: Memo<(), Elements> = Memo::new();

fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    let family = SQUARE_PLUS.name;
    let isa = isa_for(family, SQUARE_PLUS.instruction_sets, arch)?;
    let (words, columns) = (node.output.elements(), arch.array.columns);
    if node.output.dtype != DataType::F32 || words == 0 || !words.is_multiple_of(TILE) {
        return Err(NativeError::unsupported(family, node, format!("possible: f32, whole tiles of {TILE} elements")));
    }
    let configure = || -> Result<Elements, ConfigureError> {
        let program = written_for(isa, &SquarePlus).finish_with(LoopForm::of(arch))?;
        Ok(Elements::new(arch, columns as u8, &program.code, &[])?)
    };
    let array = ARRAYS.get(arch, (), configure).map_err(|reason| NativeError::failed(family, reason))?;
    // Tiles are dealt over the columns; what a column has of them is one run of memory.
    let (tiles, mut first) = (words / TILE, 0);
    let dealt = (0..columns.min(tiles)).map(|column| {
        let count = tiles / columns.min(tiles) + usize::from(column < tiles % columns.min(tiles));
        let (offset, bytes) = (4 * (first * TILE) as u64, 4 * (count * TILE) as u64);
        first += count;
        let flow = |argument| Flow {
            cut: (4 * TILE as u32, 2),
            tiles: vec![(TILE as u64, count as u32)],
            regions: vec![Region::linear(argument, offset, bytes)],
        };
        let parameters = vec![count as u32, TILE as u32 / 16, node.params.0[0].cast_unsigned()];
        ElementsColumn { parameters, a: Some(flow(0)), result: flow(1), ..ElementsColumn::default() }
    });
    let stream = array.dispatch(&dealt.collect::<Vec<_>>()).map_err(|error| NativeError::failed(family, error))?;
    Ok(array.configured().artifact("square-plus", stream)?)
}

/// A node of a number of elements.
pub fn node(words: usize, c: f32) -> Node {
    let x = Tensor::contiguous(DataType::F32, [words, 1, 1, 1]);
    let mut params = OpParams::default();
    params.0[0] = c.to_bits().cast_signed();
    Node::new("SQUARE_PLUS", params, x, vec![Some(x)])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let generation = std::env::args().nth(1).unwrap_or_else(|| "aie2".into());
    let (arches, problems) = ArchRegistry::from_environment();
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    let arch = arches.get(&generation).ok_or("no such generation")?;
    let isa = isa_for(SQUARE_PLUS.name, SQUARE_PLUS.instruction_sets, &arch)?;
    let (_, stages) = written_for(isa, &SquarePlus).finish_with_stages(LoopForm::of(&arch))?;
    println!("{stages}");

    // As a store asks a compiler: the family of this file before those of the crate.
    let compiler = NativeCompiler::default().with_families([&SQUARE_PLUS], "1");
    let kernel = compiler.build(&node(9 * TILE, 0.5), &arch)?;
    println!("{}", design_of(&arch, &kernel)?);

    let x: Vec<f32> = (0..9 * TILE).map(|index| index as f32 / 1000.0 - 9.0).collect();
    let mut arguments = [x.iter().flat_map(|x| x.to_le_bytes()).collect(), vec![0u8; 4 * x.len()]];
    let run = Harness::load(&arch, kernel.pdi())?.run(&kernel, &mut arguments)?;
    let found = arguments[1].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let worst = x.iter().zip(found).map(|(x, y)| ((x * x + 0.5) - y).abs() / (x * x + 0.5)).fold(0.0, f32::max);
    println!(
        "largest relative error {worst:.1e}; {} cycles, {} bundles, {} operations of the stream",
        run.timing.cycles, run.bundles, run.operations
    );
    Ok(())
}
