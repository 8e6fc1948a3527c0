//! Routes are followed through the switches as the hardware would, without the router.

use super::super::testing::aie2;
use super::*;
use std::collections::BTreeSet;

fn grid(columns: u8) -> Grid {
    Grid::new(&aie2(), columns).unwrap()
}

fn stream(from: Channel, to: &[Channel]) -> Stream {
    Stream { from: from.into(), to: to.iter().map(|channel| (*channel).into()).collect(), packet: None }
}

/// The tile that a port leads to, and the port there.
fn neighbour(tile: Tile, port: Port) -> Option<(Tile, Port)> {
    let (column, row) = (tile.column, tile.row);
    Some(match port {
        Port::North(n) => (Tile::new(column, row + 1), Port::South(n)),
        Port::South(n) => (Tile::new(column, row.checked_sub(1)?), Port::North(n)),
        Port::East(n) => (Tile::new(column + 1, row), Port::West(n)),
        Port::West(n) => (Tile::new(column.checked_sub(1)?, row), Port::East(n)),
        _ => return None,
    })
}

/// Where the words of a stream arrive when all circuits are set: masters of the tiles that lead to no other switch.
fn arrivals(circuits: &[Circuit], at: (Tile, Port)) -> Vec<(Tile, Port)> {
    let masters = circuits.iter().filter(|circuit| (circuit.tile, circuit.slave) == at);
    masters
        .flat_map(|circuit| match neighbour(circuit.tile, circuit.master) {
            // South of a shim is its DMA.
            Some(next) if circuit.tile.row > 0 || !matches!(circuit.master, Port::South(_)) => arrivals(circuits, next),
            _ => vec![(circuit.tile, circuit.master)],
        })
        .collect()
}

fn port(end: End) -> (Tile, Port) {
    let channel = match end {
        End::Dma(channel) => channel,
        End::Core(tile) => return (tile, Port::Core),
    };
    let port = match (channel.tile.row, channel.direction, channel.number) {
        (0, Direction::MemoryToStream, 0) | (0, Direction::StreamToMemory, 1) => Port::South(3),
        (0, Direction::MemoryToStream, _) => Port::South(7),
        (0, Direction::StreamToMemory, _) => Port::South(2),
        (_, _, number) => Port::Dma(number),
    };
    (channel.tile, port)
}

fn expect_delivery(streams: &[Stream], routes: &[Vec<Circuit>]) {
    let all: Vec<Circuit> = routes.iter().flatten().copied().collect();
    let masters: BTreeSet<String> = all.iter().map(|c| format!("{} {:?}", c.tile, c.master)).collect();
    assert_eq!(masters.len(), all.len(), "a master has two sources");
    for stream in streams {
        let mut found = arrivals(&all, port(stream.from));
        let mut expected: Vec<_> = stream.to.iter().map(|end| port(*end)).collect();
        let key = |(tile, port): &(Tile, Port)| (*tile, format!("{port:?}"));
        found.sort_by_key(key);
        expected.sort_by_key(key);
        assert_eq!(found, expected, "{stream:?}");
    }
}

#[test]
fn streams_arrive_where_they_should_and_nowhere_else() {
    // Operands from one shim to all cores of four columns, two more per column, and results from every top core.
    let cores = |column| (2..6).map(move |row| Tile::new(column, row));
    let everywhere: Vec<Channel> = (0..4).flat_map(cores).map(|tile| Channel::receive(tile, 0)).collect();
    let mut streams = vec![stream(Channel::send(Tile::new(1, 0), 1), &everywhere)];
    for column in 0..4 {
        let (shim, top) = (Tile::new(column, 0), Tile::new(column, 5));
        streams.push(stream(
            Channel::send(shim, 0),
            &[Channel::receive(top, 1), Channel::receive(Tile::new(column, 1), 0)],
        ));
        streams.push(stream(Channel::send(top, 0), &[Channel::receive(Tile::new((column + 1) % 4, 0), 1)]));
        streams.push(Stream { from: End::Core(top), to: vec![End::Core(Tile::new(column, 2))], packet: None });
    }
    let routes = route(&grid(4), &streams, &[]).unwrap();
    expect_delivery(&streams, &routes);
}

/// Random streams between free channels: every one that is routed arrives, and most are routed.
#[test]
fn random_streams_arrive() {
    let grid = grid(3);
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let channels = |direction| {
        let tiles = (0..3u8).flat_map(|column| (0..6u8).map(move |row| Tile::new(column, row)));
        let of = move |tile: Tile| {
            (0..if tile.row == 1 { 6 } else { 2 }).map(move |number| Channel { tile, direction, number })
        };
        tiles.flat_map(of).collect::<Vec<Channel>>()
    };
    let mut routed = 0;
    for _ in 0..20 {
        let (mut sends, mut receives) = (channels(Direction::MemoryToStream), channels(Direction::StreamToMemory));
        let streams: Vec<Stream> = (0..12)
            .map(|_| {
                let from = sends.swap_remove(random(sends.len()));
                let to = (0..=random(3)).map(|_| receives.swap_remove(random(receives.len()))).collect::<Vec<_>>();
                stream(from, &to)
            })
            .collect();
        match route(&grid, &streams, &[]) {
            Ok(routes) => {
                expect_delivery(&streams, &routes);
                routed += 1;
            }
            Err(ArrayError::Unroutable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(routed >= 16, "{routed} of 20");
}

#[test]
fn mistakes_are_named() {
    let (shim, core) = (Tile::new(0, 0), Tile::new(0, 2));
    let (from, to) = (Channel::send(shim, 0), Channel::receive(core, 0));
    let message = |streams: &[Stream]| route(&grid(1), streams, &[]).unwrap_err().to_string();
    assert_eq!(message(&[stream(to, &[to])]), "S2MM 0 of tile (0,2) cannot be the beginning of a stream");
    assert_eq!(message(&[stream(from, &[from])]), "MM2S 0 of tile (0,0) cannot be the end of a stream");
    assert_eq!(message(&[stream(from, &[to, to])]), "S2MM channel 0 of tile (0,2) is in use already");
    assert_eq!(
        message(&[stream(from, &[to]), stream(from, &[Channel::receive(core, 1)])]),
        "MM2S channel 0 of tile (0,0) is in use already"
    );
    let missing = Channel::receive(core, 2);
    assert_eq!(message(&[stream(from, &[missing])]), "the number of a DMA channel is 2: it has to be 0 to 1");
}

/// Only four streams go from the cores of a column to its mem tile.
#[test]
fn full_switches_are_named() {
    let streams: Vec<Stream> = (0..5)
        .map(|index| {
            let from = Channel::send(Tile::new(0, 2 + index / 2), index % 2);
            stream(from, &[Channel::receive(Tile::new(0, 1), index)])
        })
        .collect();
    expect_delivery(&streams[..4], &route(&grid(1), &streams[..4], &[]).unwrap());
    let error = route(&grid(1), &streams, &[]).unwrap_err();
    assert!(matches!(error, ArrayError::Unroutable { .. }), "{error}");
    assert!(error.to_string().starts_with("there is no free way from MM2S"), "{error}");
}
