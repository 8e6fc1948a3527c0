//! The instruction stream, a line for each step.

use super::plural;
use super::tile::{address_text, descriptor_cells, task_text};
use crate::design::Design;
use crate::design::descriptor::Address;
use crate::design::stream::{Action, Stream};
use crate::design::tile::ChannelId;
use std::fmt::{self, Formatter};

pub fn stream(f: &mut Formatter<'_>, design: &Design, stream: &Stream) -> fmt::Result {
    writeln!(
        f,
        "\ninstruction stream: {}, {}, for {}",
        plural(stream.steps.len(), "operation"),
        plural(stream.arguments, "argument"),
        plural(stream.columns.into(), "column")
    )?;
    for step in &stream.steps {
        for (number, action) in step.actions.iter().enumerate() {
            let index = if number == 0 { step.index.to_string() } else { String::new() };
            writeln!(f, "  {index:>5}  {}", action_text(design, action))?;
        }
    }
    Ok(())
}

fn channel_name(channel: ChannelId) -> String {
    format!("{} {}", channel.direction, channel.channel)
}

fn action_text(design: &Design, action: &Action) -> String {
    let register = |offset: u32, name: &Option<String>| match name {
        Some(name) => format!("{offset:#07x} ({name})"),
        None => format!("{offset:#07x}"),
    };
    let bits = |mask: u32| if mask == u32::MAX { String::new() } else { format!(" under mask {mask:#010x}") };
    match action {
        Action::Descriptor { tile, descriptor } => {
            let cells = descriptor_cells(descriptor);
            let cells: Vec<&str> = cells[1..].iter().map(String::as_str).filter(|cell| !cell.is_empty()).collect();
            // The address is patched in as a rule.
            let at = match descriptor.address {
                Address::Host { byte: 0 } => String::new(),
                address => format!(" at {}", address_text(address)),
            };
            format!("{tile} BD {}{at}: {}", descriptor.id, cells.join(", "))
        }
        Action::DescriptorWord { tile, descriptor, word, mask, value } => {
            format!("{tile} BD {descriptor} word {word} = {value:#010x}{}", bits(*mask))
        }
        Action::AddressPatch { tile, descriptor, register, argument, byte } => {
            let address = address_text(Address::Argument { argument: *argument, byte: *byte });
            match descriptor {
                Some(descriptor) => format!("{tile} BD {descriptor} address = {address}"),
                None => format!("{tile} {register:#07x} = address of {address}"),
            }
        }
        Action::Start { tile, channel, task, transfers } => {
            let moves: Vec<String> = transfers
                .iter()
                .map(|transfer| {
                    format!("{} at {}", plural(transfer.words as usize, "word"), address_text(transfer.address))
                })
                .collect();
            format!("{tile} {} runs {}: {}", channel_name(*channel), task_text(task), moves.join("; "))
        }
        Action::Control { tile, channel, controller: Some(controller), .. } => {
            format!("{tile} {} tokens have packet id {controller}", channel_name(*channel))
        }
        Action::Control { tile, channel, mask, value, .. } => {
            format!("{tile} {} control = {value:#010x}{}", channel_name(*channel), bits(*mask))
        }
        Action::Lock { tile, lock, value } => format!("{tile} lock {lock} = {value}"),
        Action::Memory { tile, byte, words } => {
            let shown: Vec<String> = words.iter().take(8).map(|word| format!("{word:#x}")).collect();
            let more = if words.len() > 8 { format!(" and {} more words", words.len() - 8) } else { String::new() };
            format!("{tile} data memory {byte:#07x} = {}{more}", shown.join(", "))
        }
        Action::Program { tile, address, bytes } => format!("{tile} program memory {address:#x}: {bytes} bytes"),
        Action::Register { tile, offset, name, mask, value } => {
            format!("{tile} {} = {value:#010x}{}", register(*offset, name), bits(*mask))
        }
        Action::Poll { tile, offset, name, mask, value, busy } => {
            let busy = if *busy { ", without giving way" } else { "" };
            format!("wait until {tile} {} is {value:#010x}{}{busy}", register(*offset, name), bits(*mask))
        }
        Action::WaitToken { column, row, columns, rows, channel } => {
            let tile = design.tile(*column, *row).map(|tile| tile.position.to_string());
            let tile = tile.unwrap_or_else(|| format!("tile ({column},{row})"));
            if (*columns, *rows) == (1, 1) {
                format!("wait for the token of {tile} {}", channel_name(*channel))
            } else {
                let tiles = format!("{} by {}", plural((*columns).into(), "column"), plural((*rows).into(), "row"));
                format!("wait for a token of {} of each of {tiles} from {tile} on", channel_name(*channel))
            }
        }
        Action::Noop => "nothing".into(),
        Action::Preempt { level } => format!("another context may take over (level {level})"),
        Action::LoadPdi { id, size, address } => format!("load PDI {id}, {size} bytes at {address:#x}"),
        Action::Outside { address } => format!("{address:#x}, which is in no tile"),
        Action::Other { name, words } => {
            let words: Vec<String> = words.iter().map(|word| format!("{word:#x}")).collect();
            format!("{name} {}", words.join(", ")).trim_end().to_owned()
        }
    }
}
