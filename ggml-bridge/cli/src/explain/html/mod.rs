//! An explanation as a page: one file that needs no network and no script, with pictures as inline SVG, light or dark as the reader's system.

mod charts;
mod occupancy;
mod strip;
mod tables;
#[cfg(test)]
mod tests;

use super::report::{Explanation, Pass};
use crate::output::{counted, megabytes};
use aie_emulator::markup::Markup;
use charts::{Bar, bars};
use std::fmt::Display;

/// What the page looks like.
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b2026; --faint: #5d6873; --paper: #fff; --line: #d4dae0; --panel: #f5f7f9;
  --c0: #2f6fb3; --c1: #c7622b; --c2: #3c8a4e; --c3: #8a55a8; --c4: #a88a1d; --c5: #b34a6b; --c6: #2b8c93; --c7: #8a5a34; --host: #9aa4ae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ed; --faint: #98a4b0; --paper: #14181c; --line: #39424b; --panel: #1d2329;
  --c0: #6aa5e6; --c1: #ec9560; --c2: #72c386; --c3: #bf92dc; --c4: #d9bd5a; --c5: #e5839f; --c6: #63c2c9; --c7: #cfa27c; --host: #59636d; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.25em; border-top: 1px solid var(--line); padding-top: 1em; margin-top: 2em; }
h3 { font-size: 1.02em; margin: 1.6em 0 .4em; } p { margin: .4em 0; } .faint { color: var(--faint); } .note { background: var(--panel);
  border-left: 4px solid var(--c1); padding: .4em .8em; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; } th { text-align: left; } td, th { padding: .2em .6em;
  border-bottom: 1px solid var(--line); vertical-align: top; } td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { font-family: ui-monospace, monospace; font-size: 12px; overflow-wrap: anywhere; max-width: 30em; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg text.faint { fill: var(--faint); }
.track { fill: var(--panel); } .c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); } .c7 { fill: var(--c7); } .host { fill: var(--host); }
.free { fill: var(--panel); stroke: var(--line); } .moves { opacity: .45; } .grids { display: flex; flex-wrap: wrap; gap: 1.2em; }
.grid { width: 15em; font-size: 12px; overflow-wrap: anywhere; } .key { width: .8em; height: .8em; margin-right: .4em; }
ul.plain { list-style: none; padding: 0; }
";

/// Operations shown in a picture; the others are one bar.
const SHOWN: usize = 12;

/// The page.
pub fn page(explanation: &Explanation) -> String {
    let mut page = Markup::default();
    let name = explanation.model.name.as_deref().unwrap_or("a model without a name");
    page.own("<!DOCTYPE html>\n");
    page.element("html", &[("lang", &"en"), ("xmlns", &"http://www.w3.org/1999/xhtml")], |page| {
        page.element("head", &[], |page| {
            page.own("<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n");
            page.leaf("title", &[], &format!("{name} on {}", explanation.device));
            page.element("style", &[], |page| page.own(STYLE));
        });
        page.element("body", &[], |page| {
            heading(page, explanation, name);
            memory(page, explanation);
            explanation.passes.iter().for_each(|pass| of_pass(page, pass, explanation));
            page.leaf("h2", &[], &"A run in one process: the prompt, then tokens");
            tables::steps(page, &explanation.run);
        });
    });
    page.finish()
}

/// The colour of a configuration, before its name.
fn key(page: &mut Markup, configuration: usize) {
    swatch(page, &format!("c{}", configuration % 8));
}

/// A square in the colour of a class.
fn swatch(page: &mut Markup, class: &str) {
    page.element("svg", &[("class", &"key"), ("viewBox", &"0 0 10 10"), ("role", &"presentation")], |svg| {
        svg.void("rect", &[("width", &10), ("height", &10), ("class", &class)]);
    });
}

fn paragraph(page: &mut Markup, text: &dyn Display) {
    page.leaf("p", &[], text);
}

fn heading(page: &mut Markup, explanation: &Explanation, name: &str) {
    let Explanation { model, device, generation, context, .. } = explanation;
    page.leaf("h1", &[], &name);
    let flash = if explanation.flash_attention { "on" } else { "off" };
    let said = format!(
        "{}, {} layers, {}, on {device} ({generation}); a context of {context} tokens, flash attention {flash}",
        model.architecture,
        model.layers,
        megabytes(model.bytes as u64)
    );
    page.leaf("p", &[("class", &"faint")], &said);
    for reservation in &explanation.reservations {
        page.leaf("p", &[("class", &"note")], reservation);
    }
}

fn memory(page: &mut Markup, explanation: &Explanation) {
    let memory = &explanation.memory;
    page.leaf("h2", &[], &"Memory");
    let parts = [
        ("weights", memory.weights as u64),
        ("converted weights", memory.converted_weights),
        ("keys and values", memory.cache as u64),
        ("scratch", memory.scratch as u64),
    ];
    let bar = |(index, (name, bytes)): (usize, (&str, u64))| Bar::new(name, bytes as f64, megabytes(bytes), index);
    bars(page, "Bytes in memory, by what they hold", &parts.into_iter().enumerate().map(bar).collect::<Vec<_>>());
}

fn of_pass(page: &mut Markup, pass: &Pass, explanation: &Explanation) {
    page.leaf("h2", &[], &format!("{}: {}, {} keys", pass.name, counted(pass.tokens, "token"), pass.keys));
    paragraph(
        page,
        &format!(
            "{} nodes: {} dispatches ({} of them for {} nodes), {} host calls ({} of them conversions), {} chains, {} kernels, {} PDIs",
            pass.nodes,
            pass.dispatches,
            pass.fused,
            pass.fused_nodes,
            pass.host_calls,
            pass.conversions,
            pass.chains,
            pass.kernels,
            pass.pdis
        ),
    );
    paragraph(page, &super::report::joins_in_words(&pass.joins));
    time(page, pass);
    page.leaf("h3", &[], &"In the order of the queue");
    strip::strip(page, pass);
    page.leaf("h3", &[], &"Where on the array");
    occupancy::occupancy(page, pass, explanation.columns, explanation.rows);
    page.leaf("h3", &[], &"Operations");
    tables::operations(page, pass);
    page.leaf("h3", &[], &"Kernels");
    tables::kernels(page, pass);
}

fn time(page: &mut Markup, pass: &Pass) {
    let predicted = &pass.predicted;
    page.leaf("h3", &[], &format!("Predicted: {}", milliseconds(predicted.total_ns)));
    let said = format!(
        "From published costs of others, which differ: {} to {}. What host calls take is not in it. Kernels: memory alone would take {}, \
         arithmetic alone {}.",
        milliseconds(predicted.fastest_ns),
        milliseconds(predicted.slowest_ns),
        milliseconds(predicted.memory_ns),
        milliseconds(predicted.arithmetic_ns)
    );
    page.leaf("p", &[("class", &"faint")], &said);
    let parts = [
        ("kernels", predicted.kernels_ns),
        ("operations", predicted.operations_ns),
        ("chains", predicted.chains_ns),
        ("commands", predicted.commands_ns),
    ];
    let bar = |(index, (name, ns)): (usize, (&str, f64))| Bar::new(name, ns, milliseconds(ns), index);
    bars(page, "Predicted time by part", &parts.into_iter().enumerate().map(bar).collect::<Vec<_>>());
    let mut by_operation: Vec<(String, f64, u64)> = Vec::new();
    for operation in &pass.operations {
        let Some(ns) = operation.predicted_ns else { continue };
        match by_operation.iter_mut().find(|(op, ..)| *op == operation.op) {
            Some((_, sum, count)) => (*sum, *count) = (*sum + ns, *count + operation.array),
            None => by_operation.push((operation.op.clone(), ns, operation.array)),
        }
    }
    by_operation.sort_by(|a, b| b.1.total_cmp(&a.1));
    if by_operation.len() > SHOWN {
        let others = by_operation.split_off(SHOWN - 1);
        let sum = others.iter().fold((0.0, 0), |sum, (_, ns, count)| (sum.0 + ns, sum.1 + count));
        by_operation.push((format!("{} others", others.len()), sum.0, sum.1));
    }
    let bar = |(op, ns, count): &(String, f64, u64)| {
        Bar::new(op, *ns, format!("{}, {count} dispatches", milliseconds(*ns)), 0)
    };
    bars(
        page,
        "Predicted time by operation, a command with each dispatch",
        &by_operation.iter().map(bar).collect::<Vec<_>>(),
    );
}

fn milliseconds(ns: f64) -> String {
    format!("{:.3} ms", ns / 1e6)
}
