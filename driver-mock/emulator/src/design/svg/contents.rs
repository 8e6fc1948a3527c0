//! A tile: its box, ports, buffers and locks.

use super::canvas::Canvas;
use super::layout::{
    BUFFERS_AT, BUFFERS_WIDTH, Box, Buffer, CHIP_STEP, CHIP_WIDTH, CHIPS_PER_ROW, HEADER, MOST_BUFFERS, PORT_HEIGHT,
    PORT_WIDTH, ROW,
};
use super::{BOTH, KINDS, TO_MEMORY, TO_STREAM, UNUSED};
use crate::design::descriptor::Owner;
use crate::design::routes::Place;
use crate::design::text::{channel_text, descriptor_text, lock_text};
use crate::design::{ChannelId, Design, Tile};
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::register::TileKind;

/// Width of the numbers in front of the bars.
const LABEL: f64 = 74.0;

pub fn draw(canvas: &mut Canvas, design: &Design, at: &Box<'_>) {
    let (fill, stroke) = KINDS[at.position.kind as usize];
    let Some(tile) = at.tile else {
        canvas.rect(at.x, at.y, at.width, at.height, 8.0, "#fafafa", "#d5dae0");
        canvas.text(at.contents, at.y + 16.0, "head pale", &format!("{} (not configured)", at.position));
        return;
    };
    canvas.rect(at.x, at.y, at.width, at.height, 8.0, fill, stroke);
    canvas.text(at.contents, at.y + 16.0, "head", &at.position.to_string());
    canvas.text(at.x + at.width - 10.0, at.y + 16.0, "small pale end", &subtitle(design, tile, at));
    for place in &at.ports {
        let y = at.port(*place).map_or(0.0, |(_, y)| y) - PORT_HEIGHT / 2.0;
        let colour = match place {
            Place::Dma { direction: Direction::StreamToMemory, .. } => TO_MEMORY,
            Place::Dma { .. } => TO_STREAM,
            _ => "#7c8794",
        };
        let label = port_label(design, tile, *place);
        canvas.open("port", &port_title(tile, *place));
        canvas.rect(at.contents, y, PORT_WIDTH, PORT_HEIGHT, 3.0, "#ffffff", colour);
        canvas.text(at.contents + 6.0, y + 12.0, "small", &label);
        canvas.close();
    }
    let x = at.contents + BUFFERS_AT;
    let mut y = at.y + HEADER;
    for buffer in at.buffers.iter().take(MOST_BUFFERS) {
        bar(canvas, tile, buffer, at.scale(memory(design, tile)), (x, y));
        y += ROW;
    }
    if at.buffers.len() > MOST_BUFFERS {
        canvas.text(x, y + 9.0, "tiny pale", &format!("and {} more buffers", at.buffers.len() - MOST_BUFFERS));
        y += ROW;
    }
    if at.buffers.is_empty() {
        for (descriptor, place, words) in at.transfers.iter().take(MOST_BUFFERS) {
            canvas.text(x, y + 10.0, "mono", &format!("BD {descriptor:<2} {place:6} {words} words"));
            y += ROW;
        }
        if at.transfers.len() > MOST_BUFFERS {
            let more = at.transfers.len() - MOST_BUFFERS;
            canvas.text(x, y + 9.0, "tiny pale", &format!("and {more} more transfers"));
            y += ROW;
        }
    }
    y += 5.0;
    for (index, lock) in tile.locks.iter().enumerate() {
        let (column, row) = (index % CHIPS_PER_ROW, index / CHIPS_PER_ROW);
        let (x, y) = (x + CHIP_WIDTH * column as f64, y + CHIP_STEP * row as f64);
        canvas.open("lock", &format!("lock {}", lock_text(tile.position, lock)));
        canvas.rect(x, y, CHIP_WIDTH - 4.0, 14.0, 7.0, "#ffffff", stroke);
        canvas.text(x + 5.0, y + 10.5, "tiny pale", &lock.lock.to_string());
        canvas.text(x + CHIP_WIDTH - 10.0, y + 10.5, "tiny end", &lock.value.to_string());
        canvas.close();
    }
}

/// Data memory of a tile in bytes.
fn memory(design: &Design, tile: &Tile) -> u64 {
    (if tile.position.kind == TileKind::Mem { design.data_bytes.1 } else { design.data_bytes.0 }) as u64
}

fn subtitle(design: &Design, tile: &Tile, at: &Box<'_>) -> String {
    let bytes = memory(design, tile);
    let scale = at.scale(bytes);
    let shown =
        if scale == bytes || at.buffers.is_empty() { String::new() } else { format!(", {} shown", scale >> 10) };
    match (tile.position.kind, &tile.core) {
        (TileKind::Core, Some(core)) => {
            let program =
                core.program.as_ref().map_or("no program".into(), |program| format!("program {} B", program.bytes));
            let state = if core.enabled && !core.in_reset { "" } else { ", not running" };
            format!("{program}{state}, memory {} KiB{shown}", bytes >> 10)
        }
        (TileKind::Mem, _) => format!("memory {} KiB{shown}", bytes >> 10),
        _ => String::new(),
    }
}

fn port_label(design: &Design, tile: &Tile, place: Place) -> String {
    let Place::Dma { direction, channel } = place else { return place.to_string() };
    let arguments: Vec<String> =
        design.arguments_of(tile.position, ChannelId { direction, channel }).iter().map(u16::to_string).collect();
    let arguments = if arguments.is_empty() { String::new() } else { format!(", arg {}", arguments.join(" ")) };
    format!("{place}{arguments}")
}

fn port_title(tile: &Tile, place: Place) -> String {
    let Place::Dma { direction, channel } = place else { return format!("{} {place}", tile.position) };
    let found = tile.channels.iter().find(|found| found.id == ChannelId { direction, channel });
    let tasks = found.map(channel_text).unwrap_or_default();
    format!("{} {place}: {tasks}", tile.position)
}

fn bar(canvas: &mut Canvas, tile: &Tile, buffer: &Buffer<'_>, bytes: u64, (x, y): (f64, f64)) {
    let numbers: Vec<String> = buffer.descriptors.iter().map(|descriptor| descriptor.id.to_string()).collect();
    let titles: Vec<String> = buffer.descriptors.iter().map(|descriptor| descriptor_text(descriptor)).collect();
    let colour = {
        let uses = |direction| {
            let channels = tile.channels.iter().filter(move |channel| channel.id.direction == direction);
            let mut tasks = channels.flat_map(|channel| &channel.tasks);
            tasks.any(|task| buffer.descriptors.iter().any(|descriptor| task.chain.contains(&descriptor.id)))
        };
        match (uses(Direction::StreamToMemory), uses(Direction::MemoryToStream)) {
            (true, false) => TO_MEMORY,
            (false, true) => TO_STREAM,
            (true, true) => BOTH,
            (false, false) => UNUSED,
        }
    };
    let neighbour = if buffer.owner == Owner::Own { "" } else { " *" };
    canvas.open("buffer", &titles.join("\n"));
    let mut label = format!("BD {}{neighbour}", numbers.join(" "));
    if label.len() > 12 {
        label = format!("BD {} +{}", numbers[0], numbers.len() - 1);
    }
    canvas.text(x, y + 9.5, "tiny", &label);
    let (track, width) = (x + LABEL, BUFFERS_WIDTH - LABEL);
    canvas.rect(track, y + 2.0, width, 9.0, 2.0, "#ffffff", "#cdd4dc");
    let share = |byte: u64| (byte as f64 / bytes.max(1) as f64).min(1.0);
    let (from, to) = (width * share(buffer.span.start), width * share(buffer.span.end));
    canvas.rect(track + from, y + 2.0, (to - from).max(1.5), 9.0, 1.0, colour, "none");
    canvas.close();
}
