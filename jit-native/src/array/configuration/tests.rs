//! A small program's PDI, write by write, in the notation of `W address value`, `M address mask value` and `D address words`.
//!
//! The words of switches, multiplexers, locks and resets are those that AMD's register library (aie-rt) computes; the order is that
//! of mlir-aie's PDIs.

use super::super::testing::aie2;
use super::super::{ArrayProgram, Channel};
use super::*;
use aie_hal::format::cdo::CdoCommand;
use aie_hal::format::pdi::Pdi;

fn text(pdi: &[u8]) -> Vec<String> {
    let commands = Pdi::parse(pdi).unwrap();
    let line = |command| match command {
        CdoCommand::Write { address, value } => Some(format!("W {address:08x} {value:08x}")),
        CdoCommand::MaskWrite { address, mask, value } => Some(format!("M {address:08x} {mask:08x} {value:08x}")),
        CdoCommand::DmaWrite { address, data } => {
            let words: String = data.iter().map(|word| format!(" {word:08x}")).collect();
            Some(format!("D {address:08x}{words}"))
        }
        CdoCommand::Nop { .. } => None,
        other => Some(format!("{other:?}")),
    };
    commands.cdo().commands().filter_map(line).collect()
}

#[test]
fn registers_are_written_in_the_order_of_mlir_aie() {
    let (shim, core) = (Tile::new(0, 0), Tile::new(0, 2));
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    array.core(core, &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66]).unwrap();
    array.data(core, 0x400, &[1, 2, 3, 4, 5]).unwrap();
    array.lock(core, Some(3), 1).unwrap();
    array.lock(Tile::new(0, 1), Some(63), 2).unwrap();
    array.stream(Channel::send(shim, 0), [Channel::receive(core, 0)]).unwrap();
    array.stream(Channel::send(core, 1), [Channel::receive(shim, 1)]).unwrap();
    let found = text(array.finish().unwrap().pdi());
    let expected = "
        M 00232000 00000001 00000000
        M 0021de00 00000002 00000002
        M 0021de08 00000002 00000002
        M 0021de10 00000002 00000002
        M 0021de18 00000002 00000002
        D 00220000 44332211 00016655 00010001 00010001
        D 00200400 04030201 00000005
        M 0021de00 00000002 00000000
        M 0021de08 00000002 00000000
        M 0021de10 00000002 00000000
        M 0021de18 00000002 00000000
        M 00232000 00000002 00000002
        M 00232000 00000002 00000000
        W 001c03f0 00000002
        W 0021f030 00000001
        W 0003f030 80000005
        W 0003f114 80000000
        W 001b002c 80000007
        W 001b011c 80000000
        W 0023f004 80000005
        W 0023f114 80000000
        W 0023f014 80000002
        W 0023f108 80000000
        W 001b001c 8000000d
        W 001b0134 80000000
        W 0003f014 8000000e
        W 0003f138 80000000
        M 0001f000 00000c00 00000400
        M 0001f004 000000c0 00000040
        W 0003f100 c0000000
        W 0003f200 0f1f0135
        W 0003f008 c0000045
        M 00232000 00000001 00000001";
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let found: Vec<&String> = found.iter().filter(|line| !is_clearing(line)).collect();
    assert_eq!(found, expected);
}

/// Each port of the tiles' switches is written once with what it is to do, before the first lock is set.
#[test]
fn tiles_are_cleared_of_what_others_have_left() {
    let (shim, mem, core) = (Tile::new(0, 0), Tile::new(0, 1), Tile::new(0, 2));
    let mut array = ArrayProgram::new(&aie2(), 1).unwrap();
    array.core(core, &[0; 16]).unwrap();
    array.lock(mem, Some(5), 1).unwrap();
    array.stream(Channel::send(shim, 0), [Channel::receive(mem, 1)]).unwrap();
    array.stream(Channel::send(mem, 2), [Channel::receive(core, 0)]).unwrap();
    let found = text(array.finish().unwrap().pdi());
    let cleared: Vec<&String> = found.iter().filter(|line| is_clearing(line)).collect();
    let of = |pattern: &str| found.iter().filter(|line| line.starts_with(pattern)).count();
    // Six channels each way, in reset and out of it.
    assert_eq!(of("M 001a06"), 24);
    let masters = [(shim, 22), (mem, 17), (core, 23)];
    assert_eq!(masters.map(|(tile, _)| of(&master(tile))), masters.map(|(_, count)| count));
    let place = |line: &str| found.iter().position(|found| found == line).unwrap();
    let lock = place("W 001c0050 00000001");
    assert!(cleared.iter().all(|line| place(line) < lock));
}

/// How lines begin that write a master port.
fn master(tile: Tile) -> String {
    let register = if tile.row == 1 { 0xB_0000 } else { 0x3_F000 };
    format!("W {:08x}", tile.address(register))[..8].to_owned()
}

/// Whether a line takes away what another configuration may have left.
fn is_clearing(line: &str) -> bool {
    let is_master = (0..3).any(|row| line.starts_with(&master(Tile::new(0, row))));
    line.starts_with("M 001a06") || is_master && line.ends_with(" 00000000")
}

#[test]
fn shims_that_nothing_uses_send_no_tokens() {
    let mut array = ArrayProgram::new(&aie2(), 2).unwrap();
    array.core(Tile::new(0, 2), &[0; 16]).unwrap();
    array.stream(Channel::send(Tile::new(1, 0), 0), [Channel::receive(Tile::new(1, 1), 0)]).unwrap();
    let found = text(array.finish().unwrap().pdi());
    assert!(found.iter().any(|line| line.starts_with("W 0203f008")));
    assert!(!found.iter().any(|line| line.starts_with("W 0003f")));
}
