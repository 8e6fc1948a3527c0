//! A design as a drawing: tiles as boxes with their buffers and locks, and the routes between them.
//!
//! The shim row is at the bottom, as in AMD's manuals. Every wire between two switches that a route uses has a lane of its own
//! through the whole row or column, so that lines never lie on each other; what a tile does with its words is inside of its box:
//! the ports of its DMA on the left, a bar for each buffer at its place in memory, and a chip for each lock. Pointing at anything
//! names it, in programs that show titles. The drawing is plain SVG 1.1 without scripts.

mod canvas;
mod contents;
mod layout;
mod wires;

use super::Design;
use super::descriptor::Address;
use super::stream::Action;
use canvas::Canvas;
use layout::Layout;

/// Colours of the routes, one source after the other.
const COLOURS: [&str; 12] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17a2b8", "#8c564b", "#e377c2", "#6b7a1e", "#3949ab",
    "#c2185b", "#00796b",
];
/// Fill and outline of a kind of tile: core, mem, shim.
const KINDS: [(&str, &str); 3] = [("#edf2fd", "#3f5fc4"), ("#eaf6ec", "#2f8a4b"), ("#fdf3e1", "#c77f12")];
const TO_MEMORY: &str = "#3d8bfd";
const TO_STREAM: &str = "#f2803a";
const BOTH: &str = "#8e5bbf";
const UNUSED: &str = "#9aa3ad";

/// Height of the title, and of the legend below the array.
const TITLE: f64 = 34.0;
const LEGEND: f64 = 54.0;

/// The design as an SVG file, with `name` as its title.
pub fn svg(design: &Design, name: &str) -> String {
    let layout = Layout::of(design);
    let mut canvas = Canvas::default();
    canvas.text(16.0, 22.0, "title", &format!("{name}, {} ({})", design.arch, design.title));
    for tile in &layout.tiles {
        contents::draw(&mut canvas, design, tile);
    }
    wires::draw(&mut canvas, design, &layout);
    legend(&mut canvas, design, &layout);
    let (width, height) = (layout.width.max(720.0), layout.height + LEGEND);
    let description = format!("Tiles, buffers, locks and routes of {name}");
    canvas.finish(width, height, &description)
}

fn legend(canvas: &mut Canvas, design: &Design, layout: &Layout<'_>) {
    let (mut x, y) = (16.0, layout.height + 14.0);
    let boxes = [
        (KINDS[0].0, "core tile"),
        (KINDS[1].0, "mem tile"),
        (KINDS[2].0, "shim tile"),
        (TO_MEMORY, "buffer written by S2MM"),
        (TO_STREAM, "buffer read by MM2S"),
        (BOTH, "both"),
        (UNUSED, "neither"),
    ];
    for (colour, what) in boxes {
        canvas.rect(x, y - 9.0, 12.0, 12.0, 2.0, colour, "#555555");
        canvas.text(x + 17.0, y + 1.0, "small", what);
        x += 32.0 + 6.2 * what.len() as f64;
    }
    canvas.line(&[(x, y - 3.0), (x + 24.0, y - 3.0)], "#555555", true);
    canvas.text(x + 30.0, y + 1.0, "small", "packets");
    let mut lines: Vec<String> = Vec::new();
    for argument in &design.arguments {
        let bytes = |(from, to): (u64, u64)| to - from;
        let read = argument.read.map(|range| format!("reads {} bytes", bytes(range)));
        let written = argument.written.map(|range| format!("writes {} bytes", bytes(range)));
        let uses: Vec<String> = [read, written].into_iter().flatten().collect();
        if !uses.is_empty() {
            lines.push(format!("argument {} {}", argument.argument, uses.join(", ")));
        }
    }
    let problems = design.problems.len();
    if problems > 0 {
        lines.push(format!("{problems} problem{}", if problems == 1 { "" } else { "s" }));
    }
    canvas.text(16.0, y + 22.0, "small", &lines.join("  ·  "));
}

/// What the stream moves with the descriptors of a shim tile: number, argument, words; each once.
fn transfers(design: &Design, key: (u8, u8)) -> Vec<(u8, String, u64)> {
    let mut found: Vec<(u8, String, u64)> = Vec::new();
    for action in design.stream.iter().flat_map(|stream| stream.actions()) {
        let Action::Start { tile, transfers, .. } = action else { continue };
        for transfer in transfers.iter().filter(|_| tile.key() == key) {
            let place = match transfer.address {
                Address::Argument { argument, .. } => format!("arg {argument}"),
                Address::Host { .. } => "host".into(),
                Address::Tile { .. } => continue,
            };
            let row = (transfer.descriptor, place, transfer.words);
            if !found.contains(&row) {
                found.push(row);
            }
        }
    }
    found.sort();
    found
}
