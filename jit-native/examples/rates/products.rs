//! Matrix products.

use crate::device::aie2;
use crate::zeros::run;
use aie_hal::format::instructions::InstructionStream;
use aie_jit_native::codegen::LoopForm;
use aie_jit_native::families;
use aie_jit_native::{NativeCompiler, Products};
use aie_ops::DataType::{self, BF16, F32, I8, I32, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
use aie_ops::{Node, OpParams, Tensor};
use std::error::Error;

/// Multiply-accumulates of the array a cycle: 16 cores, by the type of the weights.
fn peak(weights: DataType) -> f64 {
    16.0 * if weights == I8 { 256.0 } else { 128.0 }
}

/// A product of `m` rows of weights with `n` columns, and `k` elements of each.
fn node(types: [DataType; 2], [m, n, k]: [usize; 3]) -> Node {
    let [weights, columns] = types.map(|dtype| move |rows| Some(Tensor::contiguous(dtype, [k, rows, 1, 1])));
    let result = if types[0] == I8 { I32 } else { F32 };
    let output = Tensor::contiguous(result, [m, n, 1, 1]);
    Node::new("MUL_MAT", OpParams::default(), output, vec![weights(m), columns(n)])
}

/// The loops of the cores' programs.
pub fn loops(form: LoopForm) -> Result<(), Box<dyn Error>> {
    println!("Loops of products, from the schedule");
    for report in families::products::loops(&form.on(&aie2()))? {
        let macs = match report.macs {
            0 => String::new(),
            _ => {
                format!("{:.1} multiply-accumulates a cycle, {:.0} %", report.macs_per_cycle(), 100.0 * report.share())
            }
        };
        let name = match report.unrolled {
            1 => report.name.clone(),
            copies => format!("{}, {copies} at once", report.name),
        };
        println!("  {name:<40} {:>4} cycles (bound {:>3})  {macs}", report.interval, report.resource_bound);
    }
    Ok(())
}

/// One column, by products on chains that never end.
pub fn rings(form: LoopForm) -> Result<(), Box<dyn Error>> {
    println!("\nProducts with one column of f32, GGML_HSA_NATIVE_PRODUCTS=rings");
    let compiler = NativeCompiler::with_loops(form).with_products(Products::Rings);
    for report in families::rings::loops(&form.on(&aie2()))? {
        println!("  {:<24} {:>4} cycles (bound {:>3})", report.name, report.interval, report.resource_bound);
    }
    let small = [Q8_0, Q4_0, Q4_1].as_slice();
    for (m, k, types) in [(1536, 576, small), (576, 1536, small), (192, 576, small), (2048, 2048, &[Q8_0, Q4_0, Q4_K])]
    {
        for weights in types {
            let cycles = run(&node([*weights, F32], [m, 1, k]), &compiler)?.cycles;
            let (bytes, name) = ((m * weights.row_bytes(k)) as f64, weights.name());
            println!(
                "  {m:>5} x {k:<5} {name:<5} {cycles:>9} cycles, {:>5.2} bytes of weights a cycle",
                bytes / cycles as f64
            );
        }
    }
    Ok(())
}

/// Many columns, by broadcast, with columns of f32 and of bf16, in all shapes or in one.
pub fn prompts(form: LoopForm, columns: usize, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    println!("\nProducts with {columns} columns, GGML_HSA_NATIVE_PRODUCTS=rings");
    let compiler = NativeCompiler::with_loops(form).with_products(Products::Rings);
    for (_, [m, k]) in SHAPES.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        for types in [[Q4_0, F32], [Q4_0, BF16], [BF16, BF16]] {
            let node = node(types, [m, columns, k]);
            let kernel = compiler.build(&node, &aie2())?;
            let operations = InstructionStream::parse(kernel.instructions())?.charged_operations();
            let cycles = run(&node, &compiler)?.cycles;
            let share = 100.0 * (m * columns * k) as f64 / cycles as f64 / peak(types[0]);
            println!(
                "  {m:>5} x {k:<5} {:>4} x {:<4} {cycles:>10} cycles, {share:>4.1} % of the array, {operations} operations ({})",
                types[0].name(),
                types[1].name(),
                kernel.name()
            );
        }
    }
    Ok(())
}

/// One column.
pub fn few(form: LoopForm) -> Result<(), Box<dyn Error>> {
    println!("\nProducts with one column of f32 (of i8 for i8)");
    let small = [BF16, Q8_0, Q4_0, Q4_1, I8].as_slice();
    let large = [BF16, Q8_0, Q6_K, Q4_0, Q4_K, I8].as_slice();
    for (m, k, types) in [(1536, 576, small), (576, 1536, small), (6144, 576, &[Q4_1]), (2048, 2048, large)] {
        for weights in types {
            let cycles = run(
                &node([*weights, if *weights == I8 { I8 } else { F32 }], [m, 1, k]),
                &NativeCompiler::with_loops(form),
            )?
            .cycles;
            let bytes = (m * weights.row_bytes(k)) as f64;
            println!(
                "  {m:>5} x {k:<5} {:<5} {cycles:>9} cycles, {:>5.2} bytes of weights a cycle",
                weights.name(),
                bytes / cycles as f64
            );
        }
    }
    Ok(())
}

/// Shapes of SmolLM2-135M and of a model of 1B parameters.
pub const SHAPES: [(&str, [usize; 2]); 8] = [
    ("576x576", [576, 576]),
    ("192x576", [192, 576]),
    ("1536x576", [1536, 576]),
    ("576x1536", [576, 1536]),
    ("2048x2048", [2048, 2048]),
    ("512x2048", [512, 2048]),
    ("8192x2048", [8192, 2048]),
    ("2048x8192", [2048, 8192]),
];

/// Many columns, in all shapes or in one.
pub fn many(form: LoopForm, columns: usize, only: Option<&str>) -> Result<(), Box<dyn Error>> {
    println!("\nProducts with {columns} columns");
    for (_, [m, k]) in SHAPES.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        // Rows of q4_K are blocks of 256.
        let blocks = if k.is_multiple_of(2048) { Q4_K } else { Q4_1 };
        for types in [[blocks, F32], [BF16, BF16], [I8, I8]] {
            let timing = run(&node(types, [m, columns, k]), &NativeCompiler::with_loops(form))?;
            let rate = (m * columns * k) as f64 / timing.cycles as f64;
            println!(
                "  {m:>5} x {k:<5} {:>4} x {:<4} {:>10} cycles, {rate:>6.0} multiply-accumulates a cycle, {:>4.1} % of the array; bound: {}",
                types[0].name(),
                types[1].name(),
                timing.cycles,
                100.0 * rate / peak(types[0]),
                timing.bound().map(ToString::to_string).unwrap_or_default()
            );
        }
    }
    Ok(())
}
