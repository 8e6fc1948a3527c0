//! The measured part of `docs/performance.md`, and its place there.

use super::Figures;
use super::speed::{Comparison, DECODE, PREFILL, Pair, Speed};
use crate::output::{self, on_or_off};
use crate::per_token::COUNTS;
use crate::workspace;
use anyhow::{Context, Result};
use comfy_table::{ContentArrangement, Table, presets};

const BEGIN: &str = "<!-- `cargo xtask bench --write` puts its figures below -->\n";
const END: &str = "<!-- end of the figures -->\n";

/// The tables of what was measured and counted: in the terminal and on the page.
pub fn tables(figures: &Figures) -> [Table; 2] {
    let mut measured = output::table(&["measurement", "flash attention", "#CPU backend", "#this backend", "#ratio"]);
    let speed = |speed: &Speed| format!("{:.1} ± {:.1}", speed.tokens_per_second, speed.deviation);
    let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
    for Comparison { flash_attention, prefill, decode, peak_resident } in &figures.comparisons {
        let mut row = |name: &str, cpu: String, device: String, ratio: f64| {
            measured.add_row([name, on_or_off(*flash_attention), &cpu, &device, &format!("{ratio:.2}")]);
        };
        for (name, tokens, pair) in [("prefill", PREFILL, prefill), ("decode", DECODE, decode)] {
            row(&format!("{name}, {tokens} tokens, tokens/s"), speed(&pair.cpu), speed(&pair.device), pair.ratio);
        }
        let Pair { cpu, device, ratio } = peak_resident;
        row("peak resident memory, MB", megabytes(*cpu), megabytes(*device), *ratio);
    }
    let mut counted = output::table(&["a decoded token", "flash attention", "#node by node", "#fused", "#saved"]);
    for token in &figures.tokens {
        for (name, _) in COUNTS {
            let (apart, fused) = (token.apart[name], token.fused[name]);
            let saved = if apart > 0.0 && fused < apart { 100.0 * (1.0 - fused / apart) } else { 0.0 };
            let saved = if saved > 0.0 { format!("{saved:.0} %") } else { String::new() };
            let switch = on_or_off(token.flash_attention);
            counted.add_row([name, switch, &format!("{apart:.1}"), &format!("{fused:.1}"), &saved]);
        }
    }
    [measured, counted]
}

pub fn markdown(figures: &Figures) -> String {
    let [measured, counted] = tables(figures).map(|mut table| {
        table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        table
    });
    format!(
        "Machine: {}. Programs: {}. Model: {}. Device: {} ({}).\n{} threads on both sides, {} repetitions, both sides in turn; \
         mean ± standard deviation.\n\n{measured}\n\n{counted}\n",
        figures.machine.describe(),
        figures.programs.describe(),
        figures.model,
        figures.device.uri,
        figures.device.arch,
        figures.threads,
        figures.repetitions
    )
}

/// Puts the figures into `docs/performance.md`.
pub fn write(figures: &Figures) -> Result<()> {
    let path = workspace::root().join("docs/performance.md");
    let page = crate::files::read(&path)?;
    let page = spliced(&page, &markdown(figures))
        .with_context(|| format!("{} lacks the comments between which figures go", path.display()))?;
    crate::files::write(&path, &page)
}

fn spliced(page: &str, figures: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{figures}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_in_the_tables() {
        // Cells are filled up to the width of their column.
        let text = markdown(&super::super::tests::figures());
        let text = text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        for line in [
            "Some CPU @ 2 GHz, 2 cores",
            "ggml 0.27.0-1",
            "mock:aie2p (aie2p)",
            "| prefill, 128 tokens, tokens/s | off | 210.0 ± 14.1 | 105.0 ± 7.1 | 0.50 |",
            "| decode, 32 tokens, tokens/s | on | 52.5 ± 3.5 | 26.2 ± 1.8 | 0.50 |",
            "| peak resident memory, MB | on | 100 | 120 | 1.20 |",
            "| dispatches | off | 300.0 | 200.0 | 33 % |",
            "| of them for several nodes | off | 0.0 | 100.0 | |",
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
        let page = std::fs::read_to_string(workspace::root().join("docs/performance.md")).unwrap();
        assert!(spliced(&page, "").is_some());
    }
}
