//! How fast native kernels are: cycles of whole dispatches on the emulated array, and of loops from the schedule. The tables of
//! docs/native-elements.md, native-attention.md and native-products.md are from it.
//!
//!     cargo run --release -p aie-jit-native --example rates -- [jnz] [loops] [few] [rings] [many|prompts [COLUMNS] [ROWSxELEMENTS]] [elements] [attention [KEYS]] [published]
//!
//! - `jnz`: kernels whose loops branch back ([`LoopForm::Jnz`]) instead of those with hardware loops.
//! - `loops`: the loops of products.
//! - `few`: products with one column, which memory bounds: bytes of weights a cycle.
//! - `rings`: the same products on chains that never end, and their loops.
//! - `many`: products of models' shapes, or those of the one given, with COLUMNS columns (512 unless given): the share of the
//!   array's multiply-accumulates.
//! - `prompts`: the same shapes by broadcast, with the operations of their streams.
//! - `elements`: elements and rows, `attention`: one token with up to KEYS keys (4,096 unless given).
//! - `published`: what others measured.
//!
//! Without arguments everything, which takes minutes. The emulator counts neither bank conflicts nor the latency of memory, nor what
//! the firmware needs for the operations of a stream.

#[path = "../../tests/mul_mat/device.rs"]
mod device;
mod others;
mod products;
mod published;
#[path = "../predict/zeros.rs"]
mod zeros;

use aie_jit_native::codegen::LoopForm;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let columns = given.iter().position(|word| word.parse::<usize>().is_ok()).map(|index| given.remove(index));
    let number = columns.map(|number| number.parse()).transpose()?;
    let columns = number.unwrap_or(512);
    let shape = given.iter().position(|word| products::SHAPES.iter().any(|(name, _)| name == word));
    let shape = shape.map(|index| given.remove(index));
    let jnz = given.iter().position(|word| word == "jnz").map(|index| given.remove(index));
    let form = if jnz.is_some() { LoopForm::Jnz } else { LoopForm::Hardware };
    const SECTIONS: [&str; 8] = ["loops", "few", "rings", "many", "prompts", "elements", "attention", "published"];
    if let Some(other) = given.iter().find(|word| !SECTIONS.contains(&word.as_str())) {
        let shapes = products::SHAPES.map(|(name, _)| name).join(", ");
        return Err(format!(
            "`{other}` is no part; possible: jnz, {}, a number of columns, {shapes}",
            SECTIONS.join(", ")
        )
        .into());
    }
    for section in SECTIONS.into_iter().filter(|section| given.is_empty() || given.iter().any(|word| word == section)) {
        match section {
            "loops" => products::loops(form)?,
            "few" => products::few(form)?,
            "rings" => products::rings(form)?,
            "many" => products::many(form, columns, shape.as_deref())?,
            "prompts" => products::prompts(form, columns, shape.as_deref())?,
            "elements" => others::elements(form)?,
            "attention" => others::attention(form, number.unwrap_or(4096))?,
            _ => published::print(),
        }
    }
    Ok(())
}
