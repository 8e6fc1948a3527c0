//! The chains of a pass as strips: which dispatches share a chain and a configuration, and the host calls between them.

use crate::explain::report::Pass;
use crate::explain::sequence::Stretch;
use aie_emulator::markup::Markup;

const WIDTH: usize = 1040;
const ROW: usize = 20;
/// Width of one command.
const COMMAND: usize = 8;

/// A piece of the strip, at a place.
struct Piece<'a> {
    stretch: &'a Stretch,
    x: usize,
    y: usize,
    width: usize,
}

/// The strip, in lines as wide as the page.
pub(super) fn strip(page: &mut Markup, pass: &Pass) {
    let longest = WIDTH / COMMAND - 2;
    let (mut x, mut y, mut pieces) = (0, 0, Vec::new());
    let mut chain = None;
    for stretch in &pass.sequence {
        let width = stretch.commands.min(longest) * COMMAND;
        // A gap between two chains that no host call parts.
        x += if chain.is_some() && stretch.chain.is_some() && stretch.chain != chain { 5 } else { 0 };
        if x + width > WIDTH {
            (x, y) = (0, y + ROW);
        }
        pieces.push(Piece { stretch, x, y, width });
        (x, chain) = (x + width + 1, stretch.chain);
    }
    page.leaf(
        "p",
        &[("class", &"faint")],
        &format!(
            "A square is a command; the chain and the names are in the tooltip. Dispatches of one colour next to each other can be joined. \
             {} stretches, {} chains.",
            pass.sequence.len(),
            pass.chains
        ),
    );
    legend(page, pass);
    let view = format!("0 0 {WIDTH} {}", y + ROW);
    page.element("svg", &[("viewBox", &view), ("width", &WIDTH), ("role", &"img")], |svg| {
        svg.leaf("title", &[], &"Commands in the order of the queue");
        for Piece { stretch, x, y, width } in pieces {
            let names = stretch.names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let (class, said) = match (stretch.chain, stretch.configuration) {
                (Some(chain), Some(configuration)) => (
                    format!("c{}", configuration % 8),
                    format!("chain {chain}, configuration {configuration}, {} dispatches: {names}", stretch.commands),
                ),
                _ => ("host".to_owned(), format!("{} host calls: {names}", stretch.commands)),
            };
            let height = ROW - 6;
            svg.element("g", &[("class", &class)], |group| {
                group.leaf("title", &[], &said);
                let rest = stretch.commands.min(longest);
                for index in 0..rest {
                    let left = x + index * COMMAND;
                    group.void("rect", &[("x", &left), ("y", &y), ("width", &(COMMAND - 1)), ("height", &height)]);
                }
                if stretch.commands > longest {
                    group.leaf(
                        "text",
                        &[("x", &(x + width - 60)), ("y", &(y + 12))],
                        &format!("({})", stretch.commands),
                    );
                }
            });
        }
    });
}

/// What the colours stand for.
fn legend(page: &mut Markup, pass: &Pass) {
    page.element("p", &[("class", &"faint legend")], |page| {
        super::swatch(page, "host");
        page.text(&"host call ");
        for index in 0..pass.configurations.len().min(8) {
            super::key(page, index);
            page.text(&format!("configuration {index} "));
        }
        page.text(&match pass.configurations.len() {
            0..=8 => "of the array (PDI); what each computes is listed below",
            _ => "of the array (PDI), and again from 8 on; what each computes is listed below",
        });
    });
}
