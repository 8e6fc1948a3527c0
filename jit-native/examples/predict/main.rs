//! Predicts tokens per second of npu1 when one token is decoded: the emulator's cycles of every native kernel, plus published costs
//! of dispatches. Each term is printed.
//!
//!     cargo run --release -p aie-jit-native --example predict [-- KEYS]
//!
//! KEYS is the length of the context (1,024 unless given). Of kernels that read more than 40 MB a part is emulated, and its
//! cycles scaled: those rows are marked `~`. What none of the sums has: bank conflicts, the latency of memory, what
//! the command processor needs for the operations of a stream, and what copies take (GET_ROWS, SET_ROWS) and the
//! host computes (sampling).

#[path = "../../tests/mul_mat/device.rs"]
mod device;
mod measure;
mod model;
mod published;
mod zeros;

use aie_hal::arch::CostModel;
use measure::Measured;
use model::Model;
use std::error::Error;

/// Dispatches of four arguments that a chain holds: it has 4 KiB, of which each takes 120 bytes (docs/native-copies.md).
const CHAIN: u64 = 34;
/// Joined dispatches that a chain held where that was counted: 123 in four chains, a token of SmolLM2-135M.
const JOINED_CHAIN: u64 = 31;

fn main() -> Result<(), Box<dyn Error>> {
    let keys = std::env::args().nth(1).map_or(Ok(1024), |keys| keys.parse())?;
    let cost = device::aie2().cost;
    println!(
        "npu1 at {} MHz; a chain {} us, each further command {} us (hal/arch/aie2.toml), a context of {keys} keys",
        cost.clock_mhz,
        cost.chain_ns / 1000,
        cost.command_ns / 1000
    );
    for model in model::ALL {
        predict(model, keys, &cost)?;
    }
    published::print();
    Ok(())
}

fn predict(model: &Model, keys: usize, cost: &CostModel) -> Result<(), Box<dyn Error>> {
    println!("\n{} ({} layers, weights of {})", model.name, model.layers, model.weights);
    println!("  {:<34} {:>6} {:>12} {:>10} {:>8}", "kernel", "times", "cycles", "ms", "B/cycle");
    let (mut cycles, mut dispatches, mut bytes) = (0, 0, 0);
    for kernel in model.kernels(keys) {
        let Measured { cycles: each, scaled } = measure::measure(&kernel)?;
        let all = each * kernel.times;
        let mark = if scaled { "~" } else { " " };
        println!(
            "  {:<34} {:>6} {each:>11}{mark} {:>10.3} {:>8.2}",
            kernel.name,
            kernel.times,
            milliseconds(all, cost),
            kernel.bytes as f64 / each as f64
        );
        cycles += all;
        dispatches += kernel.times;
        bytes += kernel.bytes * kernel.times;
    }
    let kernels = milliseconds(cycles, cost);
    let memory = bytes as f64 / cost.ddr_bytes_per_second as f64 * 1e3;
    // Nothing is faster than memory, whatever the shims could take.
    let busy = kernels.max(memory);
    let rate = cost.ddr_bytes_per_second / 1_000_000_000;
    println!("  kernels: {cycles} cycles, {kernels:.2} ms; {bytes} bytes at {rate} GB/s: {memory:.2} ms");
    // Two rows of the cache a layer, and three others a token. Neighbours with one PDI are joined, which leaves four dispatches a layer
    // (docs/native-copies.md).
    let apart = dispatches + 2 * model.layers + 3;
    let joined = 4 * model.layers + 3;
    for (what, chains, commands) in [
        ("each dispatch apart", apart.div_ceil(CHAIN), apart),
        ("neighbours with one PDI joined", joined.div_ceil(JOINED_CHAIN), joined),
        ("one dispatch for all", 1, 1),
    ] {
        let starts = chains * cost.chain_ns;
        let further = commands.saturating_sub(chains) * cost.command_ns;
        let (starts, further) = (starts as f64 / 1e6, further as f64 / 1e6);
        let total = busy + starts + further;
        println!(
            "  {what}: {busy:.2} + {chains} chains {starts:.2} + {commands} commands {further:.2} = {total:.2} ms, {:.1} tokens/s",
            1e3 / total
        );
    }
    println!("  no cost of dispatches: {:.1} tokens/s; memory alone: {:.1}", 1e3 / busy, 1e3 / memory);
    Ok(())
}

fn milliseconds(cycles: u64, cost: &CostModel) -> f64 {
    cycles as f64 / (cost.clock_mhz as f64 * 1e3)
}
