//! Bars.

use aie_emulator::markup::Markup;

const NAMES: usize = 190;
const LENGTH: usize = 560;
const WIDTH: usize = 1000;
const ROW: usize = 22;

/// One bar.
pub(super) struct Bar {
    name: String,
    value: f64,
    said: String,
    colour: usize,
}

impl Bar {
    /// A bar for `value`, which is `said` behind it.
    pub(super) fn new(name: &str, value: f64, said: String, colour: usize) -> Self {
        Self { name: name.to_owned(), value, said, colour }
    }
}

/// Bars below each other, with the share each has of their sum.
pub(super) fn bars(page: &mut Markup, title: &str, bars: &[Bar]) {
    let sum: f64 = bars.iter().map(|bar| bar.value).sum();
    let share = |bar: &Bar| if sum > 0.0 { bar.value / sum } else { 0.0 };
    let view = format!("0 0 {WIDTH} {}", bars.len() * ROW + 22);
    page.element("svg", &[("viewBox", &view), ("width", &WIDTH), ("role", &"img")], |svg| {
        svg.leaf("title", &[], &title);
        svg.leaf("text", &[("x", &0), ("y", &13), ("class", &"faint")], &title);
        for (index, bar) in bars.iter().enumerate() {
            let top = index * ROW + 22;
            let base = top + 13;
            svg.leaf("text", &[("x", &(NAMES - 8)), ("y", &base), ("text-anchor", &"end")], &bar.name);
            let track: [(&str, &dyn std::fmt::Display); 5] =
                [("x", &NAMES), ("y", &top), ("width", &LENGTH), ("height", &(ROW - 5)), ("class", &"track")];
            svg.void("rect", &track);
            let length = format!("{:.1}", share(bar) * LENGTH as f64);
            let class = format!("c{}", bar.colour % 8);
            svg.void(
                "rect",
                &[("x", &NAMES), ("y", &top), ("width", &length), ("height", &(ROW - 5)), ("class", &class)],
            );
            let said = format!("{:.1} %, {}", 100.0 * share(bar), bar.said);
            svg.leaf("text", &[("x", &(NAMES + LENGTH + 8)), ("y", &base)], &said);
        }
    });
}
