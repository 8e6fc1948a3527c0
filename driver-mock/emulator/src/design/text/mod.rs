//! A design as text: what all tiles do together, then a section for each tile, then the stream.

mod stream;
mod tile;

pub(super) use tile::{channel_text, descriptor_text, lock_text};

use super::program::Program;
use super::routes::{End, Place, Route};
use super::tile::ChannelId;
use super::{Design, Position};
use std::fmt::{self, Display, Formatter};

/// What of a design is shown as text.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The design.
    pub design: &'a Design,
    /// Whether programs are listed.
    pub code: bool,
    /// Column and row of the tiles to show; empty: all tiles, and what they do together.
    pub tiles: &'a [(u8, u8)],
}

/// All of it.
impl Display for Design {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Shown { design: self, code: true, tiles: &[] }.fmt(f)
    }
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let design = self.design;
        if self.tiles.is_empty() {
            summary(f, design)?;
            routes(f, design)?;
        }
        let mut listed: Vec<(&Program, Position)> = Vec::new();
        for tile in &design.tiles {
            if self.tiles.is_empty() || self.tiles.contains(&tile.position.key()) {
                tile::section(f, design, tile, self.code.then_some(&mut listed))?;
            }
        }
        if self.tiles.is_empty() {
            if let Some(found) = &design.stream {
                stream::stream(f, design, found)?;
            }
            problems(f, design)?;
        }
        Ok(())
    }
}

fn summary(f: &mut Formatter<'_>, design: &Design) -> fmt::Result {
    let programs = design.tiles.iter().filter_map(|tile| tile.core.as_ref()?.program.as_ref());
    let (mut count, mut bytes) = (0, 0);
    programs.for_each(|program| (count, bytes) = (count + 1, bytes + program.bytes));
    writeln!(
        f,
        "{} ({}): {}, {}, {} of {bytes} bytes, {}",
        design.arch,
        design.title,
        plural(design.columns.into(), "column"),
        plural(design.tiles.len(), "tile"),
        plural(count, "program"),
        plural(design.routes.len(), "route")
    )?;
    for argument in &design.arguments {
        let range =
            |what: &str, range: Option<(u64, u64)>| range.map(|(from, to)| format!("{what} bytes {from} to {to}"));
        let uses: Vec<String> =
            [range("reads", argument.read), range("writes", argument.written)].into_iter().flatten().collect();
        let uses = if uses.is_empty() { "not used".into() } else { uses.join(", ") };
        writeln!(f, "  argument {}: {uses}", argument.argument)?;
    }
    if let Some(cause) = &design.arguments_unknown {
        writeln!(f, "  which bytes of the arguments are used cannot be determined: {cause}")?;
    }
    if let Some(first) = design.problems.first() {
        let more = design.problems.len() - 1;
        let rest = if more == 0 { String::new() } else { format!(" (and {more} more, listed at the end)") };
        writeln!(f, "  problem: {}{rest}", first.what)?;
    }
    Ok(())
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// One line for each source and the packets it sends.
fn routes(f: &mut Formatter<'_>, design: &Design) -> fmt::Result {
    let mut groups: Vec<(&Route, Vec<&Route>)> = Vec::new();
    for route in &design.routes {
        match groups.last_mut() {
            Some((first, group)) if first.from == route.from && first.packets == route.packets => group.push(route),
            _ => groups.push((route, vec![route])),
        }
    }
    let label = |route: &Route| {
        let arguments = arguments_at(design, route.from);
        let packets = route.packets.map(|packets| format!(", {packets}")).unwrap_or_default();
        format!("{}{arguments}{packets}", route.from)
    };
    let width = groups.iter().map(|(first, _)| label(first).len()).max().unwrap_or(0);
    if !groups.is_empty() {
        writeln!(f, "\nroutes")?;
    }
    for (first, group) in groups {
        let mut from = label(first);
        for route in group {
            write!(f, "  {from:width$} -> {}{}", route.to, arguments_at(design, route.to))?;
            // The tiles between the first and the last.
            let between: Vec<String> = route
                .hops
                .iter()
                .filter(|hop| hop.tile != route.from.tile && hop.tile != route.to.tile)
                .map(|hop| hop.tile.to_string())
                .collect();
            writeln!(f, "{}{}", if between.is_empty() { "" } else { " by " }, between.join(", "))?;
            from.clear();
        }
    }
    Ok(())
}

fn arguments_at(design: &Design, end: End) -> String {
    let Place::Dma { direction, channel } = end.place else { return String::new() };
    match design.arguments_of(end.tile, ChannelId { direction, channel })[..] {
        [] => String::new(),
        [only] => format!(" (argument {only})"),
        ref several => format!(" (arguments {})", list(several)),
    }
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn problems(f: &mut Formatter<'_>, design: &Design) -> fmt::Result {
    if !design.problems.is_empty() {
        writeln!(f, "\nproblems")?;
    }
    for problem in &design.problems {
        match problem.tile {
            Some(tile) => writeln!(f, "  {tile}: {}", problem.what)?,
            None => writeln!(f, "  {}", problem.what)?,
        }
    }
    Ok(())
}
