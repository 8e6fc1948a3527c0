//! The tiles that each configuration uses.

use crate::explain::report::Pass;
use aie_emulator::markup::Markup;

const TILE: usize = 22;

/// A grid of columns and rows for each configuration that is machine code; what is known of the others.
pub(super) fn occupancy(page: &mut Markup, pass: &Pass, columns: usize, rows: usize) {
    let (drawn, others): (Vec<_>, Vec<_>) =
        pass.configurations.iter().enumerate().partition(|(_, configuration)| configuration.tiles_unknown.is_none());
    if !drawn.is_empty() {
        page.leaf(
            "p",
            &[("class", &"faint")],
            &format!(
                "{columns} columns and {rows} rows; the lowest row reaches memory. Full colour: a program runs; pale: data passes; empty: \
                 not used."
            ),
        );
    }
    page.element("div", &[("class", &"grids")], |page| {
        for (index, configuration) in drawn {
            page.element("div", &[("class", &"grid")], |page| {
                let programs = configuration.tiles.values().filter(|tile| tile.program).count();
                let cores = format!("{programs} tiles with programs, {} dispatches", configuration.dispatches);
                // A configuration may be for fewer columns, and names none that is not there.
                let view = format!("0 0 {} {}", columns * TILE, rows * TILE);
                page.element("svg", &[("viewBox", &view), ("width", &(columns * TILE)), ("role", &"img")], |svg| {
                    svg.leaf("title", &[], &format!("configuration {index}: {cores}"));
                    for row in 0..rows {
                        for column in 0..columns {
                            let (x, y) = (column * TILE, (rows - 1 - row) * TILE);
                            let class = match configuration.tiles.get(&format!("{column},{row}")) {
                                Some(tile) if tile.program => format!("c{}", index % 8),
                                Some(_) => format!("c{} moves", index % 8),
                                None => "free".to_owned(),
                            };
                            let size = TILE - 3;
                            svg.void(
                                "rect",
                                &[("x", &x), ("y", &y), ("width", &size), ("height", &size), ("class", &class)],
                            );
                        }
                    }
                });
                page.leaf("p", &[], &format!("Configuration {index}: {cores}"));
                let kernels: Vec<&str> = configuration.kernels.iter().map(String::as_str).collect();
                let more = kernels.len().saturating_sub(3);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let names = format!("{}{more}", kernels[..kernels.len().min(3)].join(", "));
                page.leaf("p", &[("class", &"faint")], &names);
            });
        }
    });
    if !others.is_empty() {
        page.element("ul", &[("class", &"faint plain")], |page| {
            for (index, configuration) in others {
                let why = configuration.tiles_unknown.as_deref().unwrap_or_default();
                let kernels: Vec<&str> = configuration.kernels.iter().map(String::as_str).collect();
                let dispatches = configuration.dispatches;
                page.element("li", &[], |item| {
                    super::key(item, index);
                    item.text(&format!(
                        "Configuration {index}: {dispatches} dispatches of {}: {why}",
                        kernels.join(", ")
                    ));
                });
            }
        });
    }
}
