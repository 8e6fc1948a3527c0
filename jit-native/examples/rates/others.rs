//! Elements, rows, and attention.

use crate::device::aie2;
use crate::zeros::run;
use aie_hal::format::instructions::InstructionStream;
use aie_jit_native::codegen::LoopForm;
use aie_jit_native::{NativeCompiler, Products};
use aie_ops::{DataType, Node, OpParams, Tensor};
use std::error::Error;

fn node(op: &str, parameter: f32, output: Tensor, sources: Vec<Tensor>) -> Node {
    let mut params = OpParams::default();
    params.0[0] = parameter.to_bits().cast_signed();
    Node::new(op, params, output, sources.into_iter().map(Some).collect())
}

fn f32s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::F32, ne)
}

/// Functions of elements and of rows.
pub fn elements(form: LoopForm) -> Result<(), Box<dyn Error>> {
    println!("\nElements and rows");
    let two = ["ADD", "MUL", "DIV", "SWIGLU"];
    let one = ["SCALE", "RELU", "EXP", "SIGMOID", "SILU", "GELU", "GELU_ERF", "TANH", "SQRT", "LOG"];
    for (count, dtype) in [(4096, DataType::F32), (32_768, DataType::F32), (32_768, DataType::BF16)] {
        let tensor = Tensor::contiguous(dtype, [count, 1, 1, 1]);
        for (op, sources) in two.map(|op| (op, 2)).into_iter().chain(one.map(|op| (op, 1))) {
            print(form, &node(op, 0.5, tensor, vec![tensor; sources]))?;
        }
        if dtype != DataType::F32 {
            continue;
        }
        let rows = f32s([1024, count / 1024, 1, 1]);
        let weights = f32s([1024, 1, 1, 1]);
        print(form, &node("RMS_NORM", 1e-5, rows, vec![rows]))?;
        print(form, &node("RMS_NORM_MUL", 1e-5, rows, vec![rows, weights]))?;
        print(form, &node("NORM", 1e-5, rows, vec![rows]))?;
        print(form, &node("SOFT_MAX", 0.5, rows, vec![rows]))?;
    }
    Ok(())
}

fn print(form: LoopForm, node: &Node) -> Result<(), Box<dyn Error>> {
    let (cycles, count) = (run(node, &NativeCompiler::with_loops(form))?.cycles, node.output.elements());
    let dtype = node.output.dtype;
    println!(
        "  {:<12} {count:>6} {dtype:<4} {cycles:>8} cycles, {:.2} an element",
        node.op,
        cycles as f64 / count as f64
    );
    Ok(())
}

/// One layer, one token, f16 in a cache as llama.cpp has it, and a mask: on all cores and, where products are on rings, on one core of
/// each column.
pub fn attention(form: LoopForm, longest: usize) -> Result<(), Box<dyn Error>> {
    for (name, products) in [("on all cores", Products::Product), ("on one core of each column", Products::Rings)] {
        println!("\nAttention, one token, {name}");
        for (model, elements, heads, kv_heads) in
            [("SmolLM2-135M", 64, 9, 3), ("Llama-3.2-1B", 64, 32, 8), ("Llama-3.1-8B", 128, 32, 8)]
        {
            for keys in [256, 1024, 4096, 32_768].into_iter().filter(|keys| *keys <= longest) {
                let cache = Tensor::contiguous(DataType::F16, [elements, keys, kv_heads, 1]);
                let [nb0, nb1, _, nb3] = cache.nb;
                let cache = Tensor { nb: [nb0, nb1 * kv_heads, nb1, nb3], ..cache };
                let mask = Tensor::contiguous(DataType::F16, [keys, 1, 1, 1]);
                let sources = vec![f32s([elements, 1, heads, 1]), cache, cache, mask];
                let scale = 1.0 / (elements as f32).sqrt();
                let node = node("FLASH_ATTN_EXT", scale, f32s([elements, heads, 1, 1]), sources);
                let compiler = NativeCompiler::with_loops(form).with_products(products);
                let stream = compiler.build(&node, &aie2())?;
                let operations = InstructionStream::parse(stream.instructions())?.charged_operations();
                let timing = run(&node, &compiler)?;
                let bytes = 2 * cache.span_bytes();
                println!(
                    "  {model} {keys:>5} keys {:>8} cycles, {:.1} bytes of keys and values a cycle, {operations} operations; bound: {}",
                    timing.cycles,
                    bytes as f64 / timing.cycles as f64,
                    timing.bound().map(ToString::to_string).unwrap_or_default()
                );
            }
        }
    }
    Ok(())
}
