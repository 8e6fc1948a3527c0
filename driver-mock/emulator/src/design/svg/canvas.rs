//! SVG elements as text.

use crate::markup::Markup;
use std::fmt::{Display, Write as _};

/// Radius of the corners of lines.
const CORNER: f64 = 5.0;

const STYLE: &str = "text{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;fill:#1d2430}\
.title{font-size:15px;font-weight:bold}.head{font-size:12px;font-weight:bold}.small{font-size:10px}\
.tiny{font-size:9px}.mono{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:9px}\
.middle{text-anchor:middle}.end{text-anchor:end}.pale{fill:#5d6875}\
.route:hover path{stroke-width:4}";

/// The elements of a drawing, in the order of painting.
#[derive(Debug, Default)]
pub struct Canvas(Markup);

impl Canvas {
    /// Opens a group; what follows until [`Canvas::close`] has this title.
    pub fn open(&mut self, class: &str, title: &str) {
        self.0.open("g", &[("class", &class)]);
        self.0.leaf("title", &[], &title);
    }

    pub fn close(&mut self) {
        self.0.close("g");
    }

    #[allow(clippy::too_many_arguments, reason = "the numbers of a rectangle")]
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, radius: f64, fill: &str, stroke: &str) {
        let numbers = [("x", x), ("y", y), ("width", width), ("height", height), ("rx", radius)];
        let numbers = numbers.map(|(name, number)| (name, format!("{number:.1}")));
        let [x, y, width, height, radius] = numbers.each_ref().map(|(name, number)| (*name, number as &dyn Display));
        self.0.void("rect", &[x, y, width, height, radius, ("fill", &fill), ("stroke", &stroke)]);
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
        self.0.leaf("text", &[("x", &x), ("y", &y), ("class", &class)], &text);
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
        let stroke: [(&str, &dyn Display); 4] =
            [("d", &path), ("fill", &"none"), ("stroke", &colour), ("stroke-width", &"1.8")];
        let dashes: &[(&str, &dyn Display)] = if dashed { &[("stroke-dasharray", &"5 3")] } else { &[] };
        self.0.void("path", &[&stroke, dashes].concat());
    }

    /// A triangle whose tip is at `(x, y)` and points along `(dx, dy)`, a unit vector.
    pub fn arrow(&mut self, (x, y): (f64, f64), (dx, dy): (f64, f64), colour: &str) {
        let (back_x, back_y) = (x - 7.0 * dx, y - 7.0 * dy);
        let (side_x, side_y) = (-3.6 * dy, 3.6 * dx);
        let path = format!(
            "M{x:.1} {y:.1} L{:.1} {:.1} L{:.1} {:.1} Z",
            back_x + side_x,
            back_y + side_y,
            back_x - side_x,
            back_y - side_y
        );
        self.0.void("path", &[("d", &path), ("fill", &colour)]);
    }

    pub fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
        self.0.void("circle", &[("cx", &x), ("cy", &y), ("r", &"2.8"), ("fill", &colour)]);
    }

    /// The whole file.
    pub fn finish(self, width: f64, height: f64, description: &str) -> String {
        let mut file = Markup::default();
        file.own("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let (width, height) = (format!("{width:.0}"), format!("{height:.0}"));
        let size: [(&str, &dyn Display); 2] = [("width", &width), ("height", &height)];
        let view = format!("0 0 {width} {height}");
        let head: [(&str, &dyn Display); 2] = [("xmlns", &"http://www.w3.org/2000/svg"), ("viewBox", &view)];
        file.element("svg", &[head, size].concat(), |file| {
            file.leaf("title", &[], &description);
            file.element("style", &[], |file| file.own(STYLE));
            let white: [(&str, &dyn Display); 3] = [("x", &"0"), ("y", &"0"), ("fill", &"#ffffff")];
            file.void("rect", &[&white[..], &size].concat());
            file.append(self.0);
        });
        file.finish()
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
    fn corners_are_never_longer_than_half_a_line() {
        assert_eq!(towards((0.0, 0.0), (4.0, 0.0)), (2.0, 0.0));
        assert_eq!(towards((0.0, 0.0), (0.0, 40.0)), (0.0, 5.0));
        assert_eq!(towards((3.0, 3.0), (3.0, 3.0)), (3.0, 3.0));
    }
}
