//! Routes: lines from port to port, through the lanes of the tiles between.

use super::COLOURS;
use super::canvas::Canvas;
use super::layout::{Box, Layout, Wire};
use crate::design::Design;
use crate::design::routes::{Hop, Place, Route};
use aie_hal::format::stream_switch::Port;
use std::collections::{HashMap, HashSet};

/// Where a line crosses the edge of a tile, or meets a port.
#[derive(Clone, Copy)]
enum Stop {
    Port(f64, f64),
    /// At the top or bottom edge, on an upright lane.
    Upright(f64, f64),
    /// At the left or right edge, on a level lane.
    Level(f64, f64),
}

pub fn draw(canvas: &mut Canvas, design: &Design, layout: &Layout<'_>) {
    let mut drawn: HashSet<((u8, u8), Port, Port)> = HashSet::new();
    let mut used: HashMap<(u8, u8), (usize, usize)> = HashMap::new();
    let (mut sources, mut last) = (0, None);
    for route in &design.routes {
        if last.replace(route.from).is_some_and(|before| before != route.from) {
            sources += 1;
        }
        let colour = COLOURS[sources % COLOURS.len()];
        let packets = route.packets.map(|packets| format!(", {packets}")).unwrap_or_default();
        canvas.open("route", &format!("{}{packets} -> {}", route.from, route.to));
        for (index, hop) in route.hops.iter().enumerate() {
            let Some(tile) = layout.tile(hop.tile) else { continue };
            let counts = used.entry(hop.tile.key()).or_default();
            if !drawn.insert((hop.tile.key(), hop.slave, hop.master)) {
                continue;
            }
            let (from, to) = stops(layout, tile, route, index, hop);
            let (Some(from), Some(to)) = (from, to) else { continue };
            let points = way(layout, tile, from, to, counts);
            canvas.line(&points, colour, hop.packets);
            if let Stop::Port(x, y) = from {
                canvas.dot((x, y), colour);
            }
            if let (Stop::Port(..), Some(tip)) = (to, points.last()) {
                canvas.arrow(*tip, (1.0, 0.0), colour);
            }
            gap(canvas, layout, route, index, to, colour);
        }
        canvas.close();
    }
}

/// Where a hop begins and ends.
fn stops(layout: &Layout<'_>, tile: &Box<'_>, route: &Route, index: usize, hop: &Hop) -> (Option<Stop>, Option<Stop>) {
    let port = |place: Place| tile.port(place).map(|(x, y)| Stop::Port(x, y));
    let wire = |wire: Wire, arriving: bool| {
        let lane = layout.lane(tile, wire);
        let (top, bottom) = (tile.y, tile.y + tile.height);
        let (left, right) = (tile.x, tile.x + tile.width);
        match wire {
            Wire::Up(_) => Stop::Upright(lane, if arriving { bottom } else { top }),
            Wire::Down(_) => Stop::Upright(lane, if arriving { top } else { bottom }),
            Wire::Right(_) => Stop::Level(if arriving { left } else { right }, lane),
            Wire::Left(_) => Stop::Level(if arriving { right } else { left }, lane),
        }
    };
    let first = (index == 0).then(|| port(route.from.place)).flatten();
    let last = (index + 1 == route.hops.len()).then(|| port(route.to.place)).flatten();
    let from = first.or_else(|| Wire::of_slave(hop.slave).map(|found| wire(found, true)));
    let to = last.or_else(|| Wire::of_master(hop.master).map(|found| wire(found, false)));
    (from, to)
}

/// The points of a line inside a tile: level and upright parts only.
fn way(
    layout: &Layout<'_>,
    tile: &Box<'_>,
    from: Stop,
    to: Stop,
    (risers, jogs): &mut (usize, usize),
) -> Vec<(f64, f64)> {
    match (from, to) {
        (Stop::Port(x, y), Stop::Upright(lane, edge)) => vec![(x, y), (lane, y), (lane, edge)],
        (Stop::Upright(lane, edge), Stop::Port(x, y)) => vec![(lane, edge), (lane, y), (x, y)],
        (Stop::Upright(lane, edge), Stop::Level(side, level)) => vec![(lane, edge), (lane, level), (side, level)],
        (Stop::Level(side, level), Stop::Upright(lane, edge)) => vec![(side, level), (lane, level), (lane, edge)],
        (Stop::Upright(from, start), Stop::Upright(to, end)) if from == to => vec![(from, start), (to, end)],
        (Stop::Upright(from, start), Stop::Upright(to, end)) => {
            *jogs += 1;
            let level = layout.jog(tile, *jogs - 1);
            vec![(from, start), (from, level), (to, level), (to, end)]
        }
        (Stop::Level(from, start), Stop::Level(to, end)) if start == end => vec![(from, start), (to, end)],
        (Stop::Level(from, start), Stop::Level(to, end) | Stop::Port(to, end))
        | (Stop::Port(from, start), Stop::Level(to, end) | Stop::Port(to, end)) => {
            *risers += 1;
            let x = layout.riser(tile, *risers - 1);
            vec![(from, start), (x, start), (x, end), (to, end)]
        }
    }
}

/// The wire to the next tile, or an arrow where there is none.
fn gap(canvas: &mut Canvas, layout: &Layout<'_>, route: &Route, index: usize, to: Stop, colour: &str) {
    let hop = &route.hops[index];
    let next = route.hops.get(index + 1).and_then(|next| layout.tile(next.tile));
    let Some(here) = layout.tile(hop.tile) else { return };
    match (to, next) {
        (Stop::Upright(x, y), Some(next)) if next.position != here.position => {
            let end = if y <= here.y { next.y + next.height } else { next.y };
            canvas.line(&[(x, y), (x, end)], colour, hop.packets);
        }
        (Stop::Level(x, y), Some(next)) if next.position != here.position => {
            let end = if x <= here.x { next.x + next.width } else { next.x };
            canvas.line(&[(x, y), (end, y)], colour, hop.packets);
        }
        (Stop::Upright(x, y), None) => {
            let way = if y <= here.y { -1.0 } else { 1.0 };
            canvas.line(&[(x, y), (x, y + 10.0 * way)], colour, hop.packets);
            canvas.arrow((x, y + 16.0 * way), (0.0, way), colour);
        }
        (Stop::Level(x, y), None) => {
            let way = if x <= here.x { -1.0 } else { 1.0 };
            canvas.line(&[(x, y), (x + 8.0 * way, y)], colour, hop.packets);
            canvas.arrow((x + 14.0 * way, y), (way, 0.0), colour);
        }
        _ => {}
    }
}
