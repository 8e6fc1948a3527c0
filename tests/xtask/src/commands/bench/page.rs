//! The measured part of `docs/performance.md`, and its place there.

use super::Report;
use super::speed::{Pair, Speed};
use crate::output::on_or_off;
use crate::workspace;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;

const BEGIN: &str = "<!-- `cargo xtask bench --write` puts its figures below -->\n";
const END: &str = "<!-- end of the figures -->\n";

/// The figures as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut text = format!(
        "Machine: {}. Programs: {}. Model: {}. Device: {} ({}).\n{} threads on both sides, {} repetitions, both sides in turn; \
         mean ± standard deviation.\n\n",
        report.machine.describe(),
        report.programs.describe(),
        report.model,
        report.device.uri,
        report.device.arch,
        report.threads,
        report.repetitions
    );
    // Writing to a string cannot fail.
    text.push_str("| measurement | flash attention | CPU backend | this backend | ratio |\n|---|---|--:|--:|--:|\n");
    for comparison in &report.comparisons {
        let switch = on_or_off(comparison.flash_attention);
        for (name, pair) in [("prefill", &comparison.prefill), ("decode", &comparison.decode)] {
            let Pair { tokens, cpu, device, ratio } = pair;
            let (cpu, device) = (speed(cpu), speed(device));
            let _ = writeln!(text, "| {name}, {tokens} tokens, tokens/s | {switch} | {cpu} | {device} | {ratio:.2} |");
        }
    }
    for comparison in &report.comparisons {
        let (switch, memory) = (on_or_off(comparison.flash_attention), &comparison.peak_resident);
        let (cpu, device) = (megabytes(memory.cpu), megabytes(memory.device));
        let _ = writeln!(text, "| peak resident memory, MB | {switch} | {cpu} | {device} | {:.2} |", memory.ratio);
    }
    text.push_str("\n| a decoded token | flash attention | node by node | fused | saved |\n|---|---|--:|--:|--:|\n");
    for token in &report.tokens {
        let switch = on_or_off(token.flash_attention);
        for ((name, apart), (_, fused)) in token.apart.named().into_iter().zip(token.fused.named()) {
            let saved = if apart > 0.0 && fused < apart {
                format!("{:.0} %", 100.0 * (1.0 - fused / apart))
            } else {
                String::new()
            };
            let _ = writeln!(text, "| {name} | {switch} | {apart:.1} | {fused:.1} | {saved} |");
        }
    }
    text
}

/// Puts the figures into `docs/performance.md`.
pub fn write(report: &Report) -> Result<()> {
    let path = workspace::root().join("docs/performance.md");
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let page = spliced(&page, &markdown(report))
        .with_context(|| format!("{} lacks the comments between which figures go", path.display()))?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn spliced(page: &str, figures: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{figures}\n{END}{after}"))
}

/// Mean and deviation.
pub fn speed(speed: &Speed) -> String {
    format!("{:.1} ± {:.1}", speed.tokens_per_second, speed.deviation)
}

/// Millions of bytes.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_in_the_tables() {
        let text = markdown(&super::super::tests::report());
        for line in [
            "Some CPU @ 2 GHz, 2 cores",
            "ggml 0.27.0-1",
            "mock:aie2p (aie2p)",
            "| prefill, 128 tokens, tokens/s | off | 210.0 ± 14.1 | 105.0 ± 7.1 | 0.50 |",
            "| decode, 32 tokens, tokens/s | on | 52.5 ± 3.5 | 26.2 ± 1.8 | 0.50 |",
            "| peak resident memory, MB | on | 100 | 120 | 1.20 |",
            "| dispatches | off | 300.0 | 200.0 | 33 % |",
            "| of them for several nodes | off | 0.0 | 100.0 |  |",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn figures_replace_figures() {
        let page = format!("# A\n{BEGIN}old\n{END}rest\n");
        let once = spliced(&page, "new\n").unwrap();
        assert_eq!(once, format!("# A\n{BEGIN}\nnew\n\n{END}rest\n"));
        assert_eq!(spliced(&once, "new\n").unwrap(), once);
        assert!(spliced("# A\n", "new\n").is_none());
    }

    #[test]
    fn the_page_has_a_place_for_figures() {
        let page = fs::read_to_string(workspace::root().join("docs/performance.md")).unwrap();
        assert!(spliced(&page, "").is_some());
    }
}
