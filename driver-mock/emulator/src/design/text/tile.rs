//! The section of one tile.

use super::{arguments_at, list, plural};
use crate::design::descriptor::{Address, Descriptor, LockUse, Owner};
use crate::design::program::Program;
use crate::design::routes::{End, Place};
use crate::design::switch::Switch;
use crate::design::tile::{Channel, LockState, Task, Tile, User};
use crate::design::{Design, Position};
use std::fmt::{self, Formatter};

/// Regions of data memory that are listed one by one.
const MOST_REGIONS: usize = 8;

pub fn section<'a>(
    f: &mut Formatter<'_>,
    design: &Design,
    tile: &'a Tile,
    listed: Option<&mut Vec<(&'a Program, Position)>>,
) -> fmt::Result {
    writeln!(f, "\n{} tile, column {}, row {}", tile.position.kind, tile.position.column, tile.position.row)?;
    if let Some(core) = &tile.core {
        let state = match (core.enabled, core.in_reset) {
            (true, false) => "enabled",
            (true, true) => "enabled, in reset",
            (false, _) => "not enabled",
        };
        let program = core.program.as_ref().map_or("no program".to_owned(), |program| {
            format!("program of {} bytes, {}", program.bytes, plural(program.bundles, "bundle"))
        });
        write!(f, "  core          {state}, {program}")?;
        match core.cascade {
            Some((input, output)) => writeln!(f, ", cascade from {} to {}", side(input), side(output))?,
            None => writeln!(f)?,
        }
    }
    for (index, region) in tile.memory.iter().take(MOST_REGIONS).enumerate() {
        let content = if region.nonzero_words == 0 {
            "zeros".into()
        } else {
            format!("{} not zero", plural(region.nonzero_words as usize, "word"))
        };
        let range = format!("{:#07x} to {:#07x}", region.start, region.start + region.bytes);
        writeln!(f, "{}{range}, {} bytes, {content}", head("memory", index), region.bytes)?;
    }
    if tile.memory.len() > MOST_REGIONS {
        writeln!(f, "{}and {} further regions", head("memory", 1), tile.memory.len() - MOST_REGIONS)?;
    }
    for (index, lock) in tile.locks.iter().enumerate() {
        writeln!(f, "{}{}", head("locks", index), lock_text(tile.position, lock))?;
    }
    let rows: Vec<[String; 5]> = tile.descriptors.iter().map(descriptor_cells).collect();
    table(f, "BDs", &rows)?;
    for (index, channel) in tile.channels.iter().enumerate() {
        writeln!(f, "{}{}", head("channels", index), channel_text(channel))?;
    }
    for (index, channel) in tile.connected.iter().enumerate() {
        let port = aie_hal::format::shim_mux::port(channel.direction, channel.channel);
        let port = port.map(|port| port.to_string()).unwrap_or_default();
        let arguments = arguments_at(
            design,
            End { tile: tile.position, place: Place::Dma { direction: channel.direction, channel: channel.channel } },
        );
        writeln!(f, "{}{} {} at {port}{arguments}", head("connected", index), channel.direction, channel.channel)?;
    }
    for (index, line) in switch_lines(&tile.switch).iter().enumerate() {
        writeln!(f, "{}{line}", head("switch", index))?;
    }
    for (index, register) in tile.registers.iter().enumerate() {
        let name = register.name.as_deref().map(|name| format!("  {name}")).unwrap_or_default();
        writeln!(f, "{}{:#07x} = {:#010x}{name}", head("registers", index), register.offset, register.value)?;
    }
    let program = tile.core.as_ref().and_then(|core| core.program.as_ref());
    if let Some((listed, program)) = listed.zip(program) {
        let same = listed.iter().find(|(other, _)| *other == program);
        if let Some((_, position)) = same {
            writeln!(f, "  code          the same as of {position}")?;
        } else {
            writeln!(f, "  code")?;
            listing(f, program)?;
            listed.push((program, tile.position));
        }
    }
    Ok(())
}

/// The name of a group in front of its first line, and as much space in front of the others.
fn head(name: &str, index: usize) -> String {
    format!("  {:14}", if index == 0 { name } else { "" })
}

/// Columns that are as wide as their widest cell; nothing behind the last one.
fn table(f: &mut Formatter<'_>, name: &str, rows: &[[String; 5]]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    for (index, row) in rows.iter().enumerate() {
        let mut line = head(name, index);
        for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            line.push_str(&format!("{cell:width$}  "));
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

fn listing(f: &mut Formatter<'_>, program: &Program) -> fmt::Result {
    for line in &program.lines {
        let text = line.text.as_deref().or(line.error.as_deref()).unwrap_or_default();
        let mark = if line.error.is_some() { "??? " } else { "" };
        writeln!(f, "    {:5x}  {:32}  {mark}{text}", line.address, line.bytes)?;
    }
    Ok(())
}

fn side(owner: Owner) -> &'static str {
    match owner {
        Owner::Own => "own",
        Owner::South => "south",
        Owner::West => "west",
        Owner::North => "north",
        Owner::East => "east",
        Owner::Nobody => "no tile's",
    }
}

fn owned(owner: Owner, what: &str) -> String {
    if owner == Owner::Own { what.into() } else { format!("{} {what}", side(owner)) }
}

pub fn lock_text(here: Position, lock: &LockState) -> String {
    let user = |user: &User| {
        let (of, what) = match *user {
            User::Core { column, row } => ((column, row), "core".to_owned()),
            User::Descriptor { column, row, descriptor } => ((column, row), format!("BD {descriptor}")),
        };
        if of == here.key() { what } else { format!("{what} of ({},{})", of.0, of.1) }
    };
    let users = |what: &str, users: &[User]| {
        let names: Vec<String> = users.iter().map(user).collect();
        (!names.is_empty()).then(|| format!("{what} by {}", names.join(", ")))
    };
    let parts = [users("acquired", &lock.acquired_by), users("released", &lock.released_by)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{:2} = {:2}  {}", lock.lock, lock.value, parts.join("; ")).trim_end().to_owned()
}

pub fn address_text(address: Address) -> String {
    match address {
        Address::Tile { owner, byte } => owned(owner, &format!("{byte:#07x}")),
        Address::Host { byte } => format!("host {byte:#x}"),
        Address::Argument { argument, byte: 0 } => format!("argument {argument}"),
        Address::Argument { argument, byte } => format!("argument {argument} + {byte}"),
    }
}

/// Sizes and steps, outermost first.
fn shape_text(descriptor: &Descriptor) -> String {
    let mut text = String::new();
    if !descriptor.dimensions.is_empty() {
        let sizes = descriptor.dimensions.iter().map(|dimension| format!("{} x {}", dimension.size, dimension.step));
        text = format!("[{}]", sizes.collect::<Vec<_>>().join(", "));
        if descriptor.dimensions.iter().any(|dimension| dimension.zeros_before + dimension.zeros_after > 0) {
            let zeros = descriptor
                .dimensions
                .iter()
                .map(|dimension| format!("{}+{}", dimension.zeros_before, dimension.zeros_after));
            text.push_str(&format!(" zeros [{}]", zeros.collect::<Vec<_>>().join(", ")));
        }
    }
    if let Some(iteration) = descriptor.iteration {
        text.push_str(&format!(" iterates {} x {}", iteration.size, iteration.step));
        if iteration.current > 0 {
            text.push_str(&format!(", at {}", iteration.current));
        }
    }
    text.trim_start().to_owned()
}

fn locks_text(descriptor: &Descriptor) -> String {
    let mut parts = Vec::new();
    if let Some(LockUse { owner, lock, value }) = descriptor.acquire {
        let wanted = if value < 0 { format!(">= {}", -i16::from(value)) } else { format!("== {value}") };
        parts.push(format!("acquires {} {wanted}", owned(owner, &format!("lock {lock}"))));
    }
    if let Some(LockUse { owner, lock, value }) = descriptor.release {
        parts.push(format!("releases {} {value:+}", owned(owner, &format!("lock {lock}"))));
    }
    parts.join(", ")
}

fn rest_text(descriptor: &Descriptor) -> String {
    let mut parts = Vec::new();
    if let Some(next) = descriptor.next {
        parts.push(format!("then BD {next}"));
    }
    if let Some(packet) = descriptor.packet {
        let kind = if packet.packet_type == 0 { String::new() } else { format!(" of type {}", packet.packet_type) };
        let order =
            if descriptor.out_of_order == 0 { String::new() } else { format!(" for BD {}", descriptor.out_of_order) };
        parts.push(format!("sends packet {}{kind}{order}", packet.id));
    }
    for (set, what) in
        [(descriptor.suppress_tlast, "no TLAST"), (descriptor.compress, "compressed"), (!descriptor.valid, "NOT VALID")]
    {
        if set {
            parts.push(what.into());
        }
    }
    parts.join(", ")
}

pub fn descriptor_cells(descriptor: &Descriptor) -> [String; 5] {
    [
        format!("{:2}  {}", descriptor.id, address_text(descriptor.address)),
        plural(descriptor.words as usize, "word"),
        shape_text(descriptor),
        locks_text(descriptor),
        rest_text(descriptor),
    ]
}

/// A descriptor in one line.
pub fn descriptor_text(descriptor: &Descriptor) -> String {
    let cells = descriptor_cells(descriptor);
    let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).filter(|cell| !cell.is_empty()).collect();
    format!("BD {}", cells.join(", "))
}

pub fn task_text(task: &Task) -> String {
    let chain: Vec<String> = task.chain.iter().map(u8::to_string).collect();
    let what = if chain.len() == 1 { format!("BD {}", chain[0]) } else { format!("BDs {}", chain.join(", ")) };
    let often = match (task.endless, task.runs) {
        (true, _) => ", again and again".to_owned(),
        (false, 1) => String::new(),
        (false, runs) => format!(", {runs} times"),
    };
    format!("{what}{often}{}", if task.token { ", then sends a token" } else { "" })
}

pub fn channel_text(channel: &Channel) -> String {
    let mut parts: Vec<String> = channel.tasks.iter().map(|task| format!("runs {}", task_text(task))).collect();
    for (set, what) in [
        (channel.in_reset, "held in reset"),
        (channel.out_of_order, "packets choose their BD"),
        (channel.finish_on_tlast, "TLAST ends a transfer"),
    ] {
        if set {
            parts.push(what.into());
        }
    }
    if channel.controller != 0 {
        parts.push(format!("tokens have packet id {}", channel.controller & 0x1F));
    }
    format!("{} {}  {}", channel.id.direction, channel.id.channel, parts.join("; "))
}

fn switch_lines(switch: &Switch) -> Vec<String> {
    let off = |enabled: bool| if enabled { "" } else { " (the slave port is off)" };
    let mut lines = Vec::new();
    for circuit in &switch.circuits {
        lines.push(format!("{} -> {}{}", circuit.slave, list(&circuit.masters), off(circuit.enabled)));
    }
    for rule in &switch.rules {
        let masters: Vec<String> = rule
            .masters
            .iter()
            .map(|master| format!("{}{}", master.port, if master.drop_header { " without header" } else { "" }))
            .collect();
        let masters = if masters.is_empty() { "nowhere".into() } else { masters.join(", ") };
        lines.push(format!(
            "{} packets {}/{:#04x} -> arbiter {} msel {} -> {masters}{}",
            rule.slave,
            rule.id,
            rule.mask,
            rule.arbiter,
            rule.msel,
            off(rule.enabled)
        ));
    }
    lines
}
