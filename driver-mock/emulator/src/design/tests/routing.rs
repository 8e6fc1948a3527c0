//! Routes: broadcasts, packets, and routes that lead nowhere.

use super::*;

fn texts(design: &Design) -> Vec<String> {
    let packets = |route: &Route| route.packets.map(|packets| format!(" {packets}")).unwrap_or_default();
    design.routes.iter().map(|route| format!("{}{} -> {}", route.from, packets(route), route.to)).collect()
}

const SLOT: PacketSlot = PacketSlot { id: 5, mask: 31, arbiter: 1, msel: 2 };

#[test]
fn one_source_can_have_many_ends() {
    let mut maker = Maker::default();
    maker.circuit((0, 1), Port::Dma(0), Port::North(0));
    maker.circuit((0, 2), Port::South(0), Port::Dma(1)).circuit((0, 2), Port::South(0), Port::North(4));
    maker.circuit((0, 2), Port::South(0), Port::East(1)).circuit((0, 3), Port::South(4), Port::Dma(0));
    maker.circuit((1, 2), Port::West(1), Port::Core);
    let design = maker.read(None);
    let expected = ["core (0,2) S2MM 1", "core (0,3) S2MM 0", "core (1,2) core"];
    assert_eq!(texts(&design), expected.map(|end| format!("mem (0,1) MM2S 0 -> {end}")));
    let hops: Vec<(Position, Port, Port)> =
        design.routes[1].hops.iter().map(|hop| (hop.tile, hop.slave, hop.master)).collect();
    let expected = [
        (position(0, 1), Port::Dma(0), Port::North(0)),
        (position(0, 2), Port::South(0), Port::North(4)),
        (position(0, 3), Port::South(4), Port::Dma(0)),
    ];
    assert_eq!(hops, expected);
    assert_eq!(design.problems, []);
}

#[test]
fn packets_are_narrowed_by_every_rule() {
    let mut maker = Maker::default();
    // Ids 4 to 7 go up; of them the core takes 5 only.
    maker.packets((0, 1), Port::Dma(2), 0, PacketSlot { id: 4, mask: 0x1C, ..SLOT }, &[Port::North(0)]);
    maker.packets((0, 2), Port::South(0), 3, SLOT, &[Port::Dma(0), Port::North(1)]);
    maker.circuit((0, 3), Port::South(1), Port::Dma(1));
    let design = maker.read(None);
    let expected = ["core (0,2) S2MM 0", "core (0,3) S2MM 1"];
    assert_eq!(texts(&design), expected.map(|end| format!("mem (0,1) MM2S 2 packets 5 -> {end}")));
    assert_eq!(design.routes[0].packets, Some(Packets { id: 5, mask: 31 }));
    let rule = &design.tile(0, 2).unwrap().switch.rules[0];
    assert_eq!((rule.slave, rule.slot, rule.arbiter, rule.msel), (Port::South(0), 3, 1, 2));
    assert!(rule.masters.iter().all(|master| master.drop_header));
    let text = design.to_string();
    assert!(
        text.contains("South 0 packets 5/0x1f -> arbiter 1 msel 2 -> DMA 0 without header, North 1 without header")
    );
}

#[test]
fn rules_that_cannot_meet_end_a_route() {
    let mut maker = Maker::default();
    maker.packets((0, 1), Port::Dma(2), 0, PacketSlot { id: 4, ..SLOT }, &[Port::North(0)]);
    maker.packets((0, 2), Port::South(0), 0, SLOT, &[Port::Dma(0)]);
    let design = maker.read(None);
    assert_eq!(texts(&design), ["mem (0,1) MM2S 2 packets 4 -> core (0,2) South 0, which leads nowhere"]);
    assert_eq!(design.problems.len(), 1);
}

#[test]
fn ids_in_part_are_shown_by_their_bits() {
    assert_eq!(Packets { id: 0b10100, mask: 0b11100 }.to_string(), "packets 0b101xx");
    assert_eq!(Packets { id: 0, mask: 0 }.to_string(), "all packets");
}

#[test]
fn completion_tokens_go_below_the_array() {
    let mut maker = Maker::default();
    // As mlir-aie's PDIs have it.
    let slot = PacketSlot { id: 15, mask: 31, arbiter: 5, msel: 3 };
    maker.packets((0, 0), Port::TileControl, 0, slot, &[Port::South(0)]);
    let design = maker.read(None);
    assert_eq!(texts(&design), ["shim (0,0) control packets 15 -> shim (0,0) South 0, below the array"]);
    assert_eq!(design.problems, []);
}

#[test]
fn the_multiplexer_decides_what_a_south_port_is() {
    let mut maker = Maker::default();
    maker.circuit((0, 0), Port::South(3), Port::South(2));
    assert_eq!(
        texts(&maker.read(None)),
        ["shim (0,0) South 3, below the array -> shim (0,0) South 2, below the array"]
    );
    maker.connect(0, Direction::MemoryToStream, 0).connect(0, Direction::StreamToMemory, 0);
    assert_eq!(texts(&maker.read(None)), ["shim (0,0) MM2S 0 -> shim (0,0) S2MM 0"]);
}

#[test]
fn routes_into_nothing_are_problems() {
    let mut maker = Maker::default();
    maker.circuit((0, 5), Port::Dma(0), Port::North(1));
    maker.circuit((0, 4), Port::Dma(0), Port::South(0));
    maker.circuit((0, 2), Port::North(3), Port::Dma(0));
    let design = maker.read(None);
    let expected = [
        "core (0,4) MM2S 0 -> core (0,3) North 0, which is off",
        "core (0,5) MM2S 0 -> core (0,5) North 1, the edge of the array",
        "core (0,2) North 3, which nothing feeds -> core (0,2) S2MM 0",
    ];
    assert_eq!(texts(&design), expected);
    assert_eq!(design.problems.len(), 3);
}

#[test]
fn a_loop_ends() {
    let mut maker = Maker::default();
    maker.circuit((0, 2), Port::Core, Port::North(0)).circuit((0, 3), Port::South(0), Port::South(1));
    maker.circuit((0, 2), Port::North(1), Port::North(0));
    // The second write to North 0 wins: the core's words go nowhere, and the others go round.
    let design = maker.read(None);
    assert_eq!(texts(&design)[0], "core (0,2) core -> core (0,2) core, which leads nowhere");
    assert!(texts(&design)[1].ends_with(", again"), "{:?}", texts(&design));
}

#[test]
fn the_buffer_of_a_switch_is_passed() {
    let mut maker = Maker::default();
    maker.circuit((0, 2), Port::Dma(0), Port::Fifo).circuit((0, 2), Port::Fifo, Port::Dma(1));
    assert_eq!(texts(&maker.read(None)), ["core (0,2) MM2S 0 -> core (0,2) S2MM 1"]);
}

/// Packets from the shims of two columns through one arbiter of a mem tile, to the cores of these rows and channels.
fn through_one_arbiter(ends: [(u8, u8); 2]) -> Maker {
    let mut maker = Maker::default();
    for column in [0, 1] {
        maker.connect(column, Direction::MemoryToStream, 0);
        let slot = PacketSlot { id: column, mask: 31, arbiter: 0, msel: 0 };
        let towards = if column == 0 { Port::North(0) } else { Port::West(0) };
        maker.packets((column, 0), Port::South(3), 0, slot, &[towards]);
    }
    // The second shim's join those of the first.
    let slot = PacketSlot { id: 1, mask: 31, arbiter: 0, msel: 0 };
    maker.packets((0, 0), Port::East(0), 0, slot, &[Port::North(0)]);
    maker.circuit((0, 1), Port::South(0), Port::North(0));
    for (id, (row, channel)) in (0..).zip(ends) {
        let slot = PacketSlot { id, mask: 31, arbiter: 1 + id, msel: 0 };
        // The first core's row is where both come; what is for the other goes on.
        let end = if row == 2 { Port::Dma(channel) } else { Port::North(0) };
        maker.packets((0, 2), Port::South(0), id, slot, &[end]);
        if row != 2 {
            maker.circuit((0, 3), Port::South(0), Port::Dma(channel));
        }
    }
    maker
}

#[test]
fn packets_of_one_core_that_share_an_arbiter_are_a_doubt() {
    let design = through_one_arbiter([(2, 0), (2, 1)]).read(None);
    assert_eq!(design.problems, []);
    let [doubt] = &design.doubts[..] else { panic!("{:?}", design.doubts) };
    assert_eq!(doubt.tile, Some(position(0, 0)));
    let expected = "arbiter 0: packets from shim (0,0) MM2S 0 to core (0,2) S2MM 0 can hold it while they wait for those from \
                    shim (1,0) MM2S 0 to core (0,2) S2MM 1, which wait for it; in some order both stop";
    assert_eq!(doubt.what, expected);
    // Two cores that have nothing to do with each other.
    assert_eq!(through_one_arbiter([(2, 0), (3, 0)]).read(None).doubts, []);
    // The same, where the first waits for the second.
    let mut maker = through_one_arbiter([(2, 0), (3, 0)]);
    maker.circuit((0, 3), Port::Dma(0), Port::South(2)).circuit((0, 2), Port::North(2), Port::Dma(1));
    assert_eq!(maker.read(None).doubts.len(), 1);
}
