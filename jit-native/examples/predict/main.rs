//! Predicts what npu1 would reach with the native kernels: tokens per second of decoding, and the share of the array's
//! multiply-accumulates that the products of a prompt reach. `cargo xtask predict` runs it.
//!
//! Each kernel runs on the emulated array; its cycles, the bytes its shims read and the operations of its stream cost what the
//! generation's file says, which is what others measured. Where they differ, so does the prediction: it has a range.
//!
//! Not in the sums: what the host computes, as the row of the embedding (GET_ROWS).

mod costs;
mod count;
#[path = "../../tests/mul_mat/device.rs"]
mod device;
mod measure;
mod model;
mod published;
mod token;
mod zeros;

use aie_hal::Arch;
use aie_jit_native::{NativeCompiler, Products};
use clap::Parser;
use costs::{Costs, Counts, Given, SETTINGS, Terms};
use count::Counted;
use measure::{Measured, measure};
use model::{Kernel, Model};
use serde::Serialize;
use std::error::Error;
use std::process::ExitCode;
use token::{Pace, Token};

/// Joined dispatches that a chain held where that was counted: 123 in four chains, a token of SmolLM2-135M.
const JOINED_CHAIN: u64 = 31;

/// Predict tokens per second and the share of the peak from emulated cycles and published costs
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  cargo xtask predict
  cargo xtask predict --model SmolLM2-135M --prompt 0
  cargo xtask predict --products rings --prompt 0
  cargo xtask predict --bytes-per-second 15e9 --operation-ns 145 --hertz 1.0e9 --json

Nothing was measured on an NPU. Values that are given take the place of published ones, at both ends of their ranges.")]
struct Arguments {
    /// Generation; there are products for aie2 alone
    #[arg(long, default_value = "aie2")]
    arch: String,
    /// Tokens in front of the decoded one
    #[arg(long, value_name = "N", default_value_t = 1024)]
    keys: usize,
    /// Tokens of the prompt; 0 leaves prompts out
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt: usize,
    /// Only this model; can be given several times
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// What memory gives all shims together
    #[arg(long, value_name = "X", value_parser = number)]
    bytes_per_second: Option<u64>,
    /// What an operation of a stream takes
    #[arg(long, value_name = "N", value_parser = number)]
    operation_ns: Option<u64>,
    /// Clock of the array
    #[arg(long, value_name = "F", value_parser = number)]
    hertz: Option<u64>,
    /// Family of the products of a decoded token: `product`, or `rings` where it takes them
    #[arg(long, value_name = "FAMILY", default_value = "product", value_parser = family_of_products)]
    products: Products,
    /// Print JSON: a list with an entry for each model
    #[arg(long)]
    json: bool,
}

fn family_of_products(text: &str) -> Result<Products, String> {
    let all = [("product", Products::Product), ("rings", Products::Rings)];
    let found = all.into_iter().find(|(name, _)| *name == text).map(|(_, products)| products);
    found.ok_or_else(|| format!("`{text}` is not valid; possible: product, rings"))
}

/// A number above 0, perhaps with an exponent.
fn number(text: &str) -> Result<u64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 1.0 && *number < 1e18);
    number.map(|number| number as u64).ok_or_else(|| format!("`{text}` is not a number of at least 1"))
}

/// What is printed of a model.
#[derive(Serialize)]
struct Prediction {
    model: &'static str,
    layers: u64,
    weights: String,
    keys: usize,
    /// Operations, dispatches, configurations, contexts.
    #[serde(flatten)]
    counted: Counted,
    chains: u64,
    /// All kernels together.
    cycles: u64,
    bytes: u64,
    pieces: u64,
    tokens_per_second: f64,
    /// At the slow ends of all costs.
    slowest: f64,
    /// At the fast ends.
    fastest: f64,
    /// Milliseconds of a token by the expected costs.
    terms: Terms,
    costs: Costs,
    /// The same by other costs of operations and memory.
    settings: Vec<Setting>,
    prompt: Option<Prompt>,
    #[serde(skip)]
    rows: Vec<(Kernel, Measured)>,
}

/// A prediction by other costs.
#[derive(Debug, Serialize)]
struct Setting {
    operation_ns: u64,
    bytes_per_second: u64,
    tokens_per_second: f64,
    terms: Terms,
}

/// The products of a prompt's layers.
#[derive(Debug, Serialize)]
struct Prompt {
    tokens: usize,
    share_of_peak: f64,
    /// The least and the most of the shares at the ends of all costs and by the expected ones. The peak is that of the same clock.
    lowest: f64,
    highest: f64,
    operations: u64,
    terms: Terms,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("error: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let arch = device::aie2();
    if arguments.arch != arch.name {
        return Err(format!("there are no products for `{}`; --arch can be: {}", arguments.arch, arch.name).into());
    }
    let names: Vec<&str> = model::ALL.iter().map(|model| model.name).collect();
    if let Some(other) = arguments.model.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("there is no model `{other}`; --model can be: {}", names.join(", ")).into());
    }
    let Arguments { hertz, bytes_per_second, operation_ns, .. } = *arguments;
    let costs = costs::of(&arch.cost, Given { hertz, bytes_per_second, operation_ns });
    let mut all = Vec::new();
    let wanted = |model: &&Model| arguments.model.is_empty() || arguments.model.iter().any(|name| name == model.name);
    for model in model::ALL.iter().filter(wanted) {
        eprintln!("{}: running its kernels on the emulated array", model.name);
        let prediction = predict(model, arguments, &arch, &costs)?;
        if !arguments.json {
            print(&prediction);
        }
        all.push(prediction);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        published::print();
    }
    Ok(())
}

fn predict(
    model: &Model,
    arguments: &Arguments,
    arch: &Arch,
    costs: &[Costs; 3],
) -> Result<Prediction, Box<dyn Error>> {
    let compiler = NativeCompiler::default().with_products(arguments.products);
    let counted = Counted::of(model, arguments.keys, &compiler, arch)?;
    let (mut counts, mut rows) = (Counts::default(), Vec::new());
    for kernel in model.kernels(arguments.keys) {
        let measured = measure(&kernel, 1, &compiler, arch)?;
        counts.add(&kernel, &measured);
        rows.push((kernel, measured));
    }
    counts.commands = counted.dispatches;
    counts.chains = counts.commands.div_ceil(JOINED_CHAIN);
    let token = Token::of(model, &model.kernels(arguments.keys), &compiler, arch)?;
    let terms = |costs: &Costs| -> Result<Terms, Box<dyn Error>> {
        let cycles = token.cycles(Pace::of(costs))?;
        let without_operations = token.cycles(Pace::of(&Costs { operation_ns: 0, ..*costs }))?;
        Ok(Terms::of_token(&counts, costs, cycles, without_operations))
    };
    let (slowest, expected, fastest) = (terms(&costs[0])?, terms(&costs[1])?, terms(&costs[2])?);
    let settings = SETTINGS.into_iter().map(|(operation_ns, bytes_per_second)| {
        let terms = terms(&Costs { operation_ns, bytes_per_second, ..costs[1] })?;
        Ok(Setting { operation_ns, bytes_per_second, tokens_per_second: 1e3 / terms.total(), terms })
    });
    let settings = settings.collect::<Result<_, Box<dyn Error>>>()?;
    let prompt =
        (arguments.prompt > 0).then(|| prompt(model, arguments.prompt, &compiler, (arch, costs))).transpose()?;
    Ok(Prediction {
        model: model.name,
        layers: model.layers,
        weights: model.weights.to_string(),
        keys: arguments.keys,
        counted,
        chains: counts.chains,
        cycles: counts.sum(|work| work.cycles),
        bytes: counts.sum(|work| work.bytes),
        pieces: counts.sum(|work| work.pieces),
        tokens_per_second: 1e3 / expected.total(),
        slowest: 1e3 / slowest.total(),
        fastest: 1e3 / fastest.total(),
        terms: expected,
        costs: costs[1],
        settings,
        prompt,
        rows,
    })
}

fn prompt(
    model: &Model,
    tokens: usize,
    compiler: &NativeCompiler,
    (arch, costs): (&Arch, &[Costs; 3]),
) -> Result<Prompt, Box<dyn Error>> {
    let (mut counts, mut macs) = (Counts::default(), 0);
    for (kernel, each) in model.products() {
        let measured = measure(&kernel, tokens, compiler, arch)?;
        counts.add(&kernel, &measured);
        macs += each * tokens as u64 * kernel.times;
    }
    let rates = arch.mmul.iter().filter(|shape| shape.types == "bf16 x bf16").map(|shape| shape.macs_per_cycle);
    let cores = arch.array.columns * arch.array.core_rows;
    let rate = (rates.max().unwrap_or(1) * cores) as f64;
    let shares = costs.map(|costs| {
        let terms = Terms::of(&counts, &costs);
        (terms, macs as f64 * 1e3 / (rate * costs.hertz as f64) / terms.total())
    });
    let [_, (terms, share_of_peak), _] = shares;
    let lowest = shares.iter().map(|(_, share)| *share).fold(f64::INFINITY, f64::min);
    let highest = shares.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    Ok(Prompt { tokens, share_of_peak, lowest, highest, operations: counts.operations, terms })
}

fn print(prediction: &Prediction) {
    let Prediction { model, layers, weights, keys, costs, terms, .. } = prediction;
    println!("\n{model} ({layers} layers, weights of {weights}), {keys} keys");
    println!("  {:<34} {:>6} {:>12} {:>10} {:>8} {:>10}", "kernel", "times", "cycles", "ms", "B/cycle", "operations");
    for (kernel, measured) in &prediction.rows {
        let Measured { cycles, bytes, operations, scaled, .. } = measured;
        let mark = if *scaled { "~" } else { " " };
        let all = (cycles * kernel.times) as f64 * 1e3 / costs.hertz as f64;
        let rate = *bytes as f64 / *cycles as f64;
        let (name, times) = (&kernel.name, kernel.times);
        println!("  {name:<34} {times:>6} {cycles:>11}{mark} {all:>10.3} {rate:>8.2} {operations:>10}");
    }
    let Counted { operations, charged_operations, dispatches, pdis, contexts, .. } = prediction.counted;
    println!(
        "  a token: {charged_operations} operations ({operations} with block writes once), {dispatches} dispatches in {} chains, {pdis} \
         PDIs, contexts: {contexts}; {}",
        prediction.chains,
        in_words(terms)
    );
    println!(
        "  {:.1} tokens/s; {:.1} to {:.1} by the ranges of the costs",
        prediction.tokens_per_second, prediction.slowest, prediction.fastest
    );
    for Setting { operation_ns, bytes_per_second, tokens_per_second, terms } in &prediction.settings {
        let gigabytes = *bytes_per_second as f64 / 1e9;
        println!("  {operation_ns} ns, {gigabytes:.1} GB/s: {tokens_per_second:.1} tokens/s; {}", in_words(terms));
    }
    if let Some(Prompt { tokens, share_of_peak, lowest, highest, operations, terms }) = &prediction.prompt {
        println!(
            "  products of a prompt of {tokens}: {:.1} % of the array's multiply-accumulates, {:.1} to {:.1} by the ranges; {operations} \
             operations; {}",
            100.0 * share_of_peak,
            100.0 * lowest,
            100.0 * highest,
            in_words(terms)
        );
    }
}

fn in_words(terms: &Terms) -> String {
    let Terms { memory, cores, small_streams, attention, operations, hidden_operations, boundaries } = terms;
    format!(
        "ms: memory {memory:.2}, cores {cores:.2}, small streams {small_streams:.2}, attention {attention:.2}, operations \
         {operations:.2} (and {hidden_operations:.2} hidden), boundaries {boundaries:.2}"
    )
}
