//! SVG elements as text.

use std::fmt::Write as _;

/// Radius of the corners of lines.
const CORNER: f64 = 5.0;

const STYLE: &str = "text{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;fill:#1d2430}\
.title{font-size:15px;font-weight:bold}.head{font-size:12px;font-weight:bold}.small{font-size:10px}\
.tiny{font-size:9px}.mono{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:9px}\
.middle{text-anchor:middle}.end{text-anchor:end}.pale{fill:#5d6875}\
.route:hover path{stroke-width:4}";

/// Text as XML has it.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML 1.0 has no other control characters.
            character if character.is_control() && !matches!(character, '\n' | '\t') => escaped.push('\u{FFFD}'),
            '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            character => escaped.push(character),
        }
    }
    escaped
}

/// The elements of a drawing, in the order of painting.
#[derive(Debug, Default)]
pub struct Canvas(String);

impl Canvas {
    /// Opens a group; what follows until [`Canvas::close`] has this title.
    pub fn open(&mut self, class: &str, title: &str) {
        self.push(format_args!("<g class=\"{class}\"><title>{}</title>\n", escape(title)));
    }

    pub fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    #[allow(clippy::too_many_arguments, reason = "the numbers of a rectangle")]
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, radius: f64, fill: &str, stroke: &str) {
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius:.1}\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n"
        ));
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.push(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n", escape(text)));
    }

    /// A line with round corners.
    pub fn line(&mut self, points: &[(f64, f64)], colour: &str, dashed: bool) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().copied().enumerate() {
            // A String takes everything that is written to it.
            let _ = match (index.checked_sub(1).map(|before| points[before]), points.get(index + 1)) {
                (None, _) => write!(path, "M{x:.1} {y:.1}"),
                (Some(before), Some(after)) => {
                    let (from, to) = (towards((x, y), before), towards((x, y), *after));
                    write!(path, " L{:.1} {:.1} Q{x:.1} {y:.1} {:.1} {:.1}", from.0, from.1, to.0, to.1)
                }
                (Some(_), None) => write!(path, " L{x:.1} {y:.1}"),
            };
        }
        let dashes = if dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        self.push(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}/>\n"
        ));
    }

    /// A triangle whose tip is at `(x, y)` and points along `(dx, dy)`, a unit vector.
    pub fn arrow(&mut self, (x, y): (f64, f64), (dx, dy): (f64, f64), colour: &str) {
        let (back_x, back_y) = (x - 7.0 * dx, y - 7.0 * dy);
        let (side_x, side_y) = (-3.6 * dy, 3.6 * dx);
        self.push(format_args!(
            "<path d=\"M{x:.1} {y:.1} L{:.1} {:.1} L{:.1} {:.1} Z\" fill=\"{colour}\"/>\n",
            back_x + side_x,
            back_y + side_y,
            back_x - side_x,
            back_y - side_y
        ));
    }

    pub fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        self.push(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.8\" fill=\"{colour}\"/>\n"));
    }

    /// The whole file.
    pub fn finish(self, width: f64, height: f64, description: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
             <title>{description}</title>\n<style>{STYLE}</style>\n\
             <rect x=\"0\" y=\"0\" width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.0
        )
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // A String takes everything that is written to it.
        let _ = self.0.write_fmt(text);
    }
}

/// The point on the way from a corner to another point where the corner's curve ends.
fn towards((x, y): (f64, f64), (to_x, to_y): (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (to_x - x, to_y - y);
    let length = dx.hypot(dy);
    if length == 0.0 {
        return (x, y);
    }
    let part = CORNER.min(length / 2.0) / length;
    (x + dx * part, y + dy * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{1}>"), "a&lt;b &amp; &quot;c&quot;\u{FFFD}&gt;");
    }

    #[test]
    fn corners_are_never_longer_than_half_a_line() {
        assert_eq!(towards((0.0, 0.0), (4.0, 0.0)), (2.0, 0.0));
        assert_eq!(towards((0.0, 0.0), (0.0, 40.0)), (0.0, 5.0));
        assert_eq!(towards((3.0, 3.0), (3.0, 3.0)), (3.0, 3.0));
    }
}
