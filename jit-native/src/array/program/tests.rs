//! Every limit of the generation is an error with numbers.

use super::super::testing::aie2;
use super::*;
use rstest::rstest;

const SHIM: Tile = Tile::new(0, 0);
const MEM: Tile = Tile::new(0, 1);
const CORE: Tile = Tile::new(0, 2);

fn array() -> ArrayProgram {
    ArrayProgram::new(&aie2(), 1).unwrap()
}

type Step = fn(&mut ArrayProgram) -> Result<(), ArrayError>;

#[rstest]
#[case::columns(|_: &mut ArrayProgram| ArrayProgram::new(&aie2(), 5).map(drop), "a partition of 5 columns: the array has 4")]
#[case::no_columns(|_: &mut ArrayProgram| ArrayProgram::new(&aie2(), 0).map(drop), "a partition of 0 columns: the array has 4")]
#[case::column(|a: &mut ArrayProgram| a.core(Tile::new(1, 2), &[]), "there is no tile (1,2): the partition has 1 columns and 6 rows")]
#[case::row(|a: &mut ArrayProgram| a.core(Tile::new(0, 6), &[]), "there is no tile (0,6): the partition has 1 columns and 6 rows")]
#[case::no_core(|a: &mut ArrayProgram| a.core(MEM, &[]), "tile (0,1) is no core tile")]
#[case::program(|a: &mut ArrayProgram| a.core(CORE, &[0; 16385]), "the program of core (0,2) has 16385 bytes: the core has 16384")]
#[case::two_programs(|a: &mut ArrayProgram| a.core(CORE, &[]).and(a.core(CORE, &[])), "core 0 of tile (0,2) is in use already")]
#[case::data(|a: &mut ArrayProgram| a.data(CORE, 0xFFFC, &[0; 5]), "bytes 0xfffc..0x10004 of tile (0,2): it has 0x10000")]
#[case::shim_data(|a: &mut ArrayProgram| a.data(SHIM, 0, &[0; 4]), "bytes 0x0..0x4 of tile (0,0): it has 0x0")]
#[case::data_offset(|a: &mut ArrayProgram| a.data(CORE, 2, &[0; 4]), "the offset of data is 2, no multiple of 4")]
#[case::parameters(|a: &mut ArrayProgram| a.parameters(CORE, 2, 4), "the offset of parameters is 2, no multiple of 4")]
#[case::overlap(
    |a: &mut ArrayProgram| a.data(CORE, 0x100, &[0; 6]).and(a.parameters(CORE, 0xFC, 4)),
    "bytes 0xfc..0x10c of tile (0,2) are in use from 0x100 to 0x108"
)]
#[case::lock(|a: &mut ArrayProgram| a.lock(CORE, Some(16), 0).map(drop), "the number of a lock is 16: it has to be 0 to 15")]
#[case::lock_value(|a: &mut ArrayProgram| a.lock(CORE, None, 64).map(drop), "the value of a lock is 64: it has to be 0 to 63")]
#[case::same_lock(
    |a: &mut ArrayProgram| a.lock(MEM, Some(7), 0).and(a.lock(MEM, Some(7), 0)).map(drop),
    "lock 7 of tile (0,1) is in use already"
)]
#[case::locks(|a: &mut ArrayProgram| (0..16).try_for_each(|_| a.lock(CORE, None, 0).map(drop)), "tile (0,2) has 16 locks, all in use")]
#[case::mem_locks(|a: &mut ArrayProgram| (0..65).try_for_each(|_| a.lock(MEM, None, 0).map(drop)), "tile (0,1) has 64 locks, all in use")]
#[case::channels(
    |a: &mut ArrayProgram| (0..3).try_for_each(|_| a.channel(CORE, Direction::MemoryToStream).map(drop)),
    "tile (0,2) has 2 MM2S channels, all in use"
)]
#[case::channel(
    |a: &mut ArrayProgram| a.stream(Channel::send(SHIM, 2), [Channel::receive(CORE, 0)]),
    "the number of a DMA channel is 2: it has to be 0 to 1"
)]
#[case::ring(|a: &mut ArrayProgram| a.ring(CORE, None, 0x8004, 2).map(drop), "65544 bytes of tile (0,2): the largest free range has 65536")]
#[case::ring_address(|a: &mut ArrayProgram| a.ring(CORE, Some(6), 8, 2).map(drop), "the address of a ring is 6, no multiple of 4")]
#[case::ring_depth(|a: &mut ArrayProgram| a.ring(CORE, None, 8, 64).map(drop), "the number of buffers of a ring is 64: it has to be 1 to 63")]
fn limits_have_numbers(#[case] step: Step, #[case] message: &str) {
    assert_eq!(step(&mut array()).unwrap_err().to_string(), message);
}

#[test]
fn channels_of_streams_are_not_given_again() {
    let mut array = array();
    array.stream(Channel::send(SHIM, 0), [Channel::receive(CORE, 1)]).unwrap();
    let receive = Direction::StreamToMemory;
    assert_eq!(array.channel(CORE, receive), Ok(Channel::receive(CORE, 0)));
    assert!(array.channel(CORE, receive).is_err());
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let make = || {
        let mut array = array();
        array.core(CORE, &[1, 2, 3]).unwrap();
        array.parameters(CORE, 0, 4).unwrap();
        array.ring(CORE, None, 64, 2).unwrap();
        array.stream(Channel::send(SHIM, 0), [Channel::receive(CORE, 1)]).unwrap();
        array.finish().unwrap().pdi().to_vec()
    };
    assert_eq!(make(), make());
}
