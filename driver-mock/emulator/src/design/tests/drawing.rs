//! The drawing is well-formed XML and shows what the design has.

use super::*;
use aie_hal::format::bd::CoreBd;

/// A design with routes in every direction, buffers, locks and packets.
fn design() -> Design {
    let mut maker = Maker::default();
    let task = DmaTask { descriptor: 0, repeat: 0, token: false };
    maker.connect(0, Direction::MemoryToStream, 0);
    maker.circuit((0, 0), Port::South(3), Port::East(1)).circuit((1, 0), Port::West(1), Port::North(0));
    maker.circuit((1, 1), Port::South(0), Port::North(0)).circuit((1, 2), Port::South(0), Port::West(2));
    maker.circuit((0, 2), Port::East(2), Port::Dma(0)).circuit((0, 2), Port::East(2), Port::North(5));
    let slot = PacketSlot { id: 1, mask: 31, arbiter: 0, msel: 0 };
    maker.packets((0, 3), Port::South(5), 0, slot, &[Port::Dma(1)]);
    maker.circuit((0, 2), Port::Dma(1), Port::South(3)).lock((0, 2), 3, 1);
    let bd = CoreBd { length: 0x1000, address: 0x1000, valid: true, ..CoreBd::default() };
    maker.block((0, 2), CoreBd::register(0), &bd.encode().unwrap());
    maker.start((0, 2), Direction::StreamToMemory, 0, task);
    maker.read(None)
}

/// Checks tags, attributes and entities, and counts elements by name.
fn elements(xml: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").unwrap();
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>'), "`>` outside of a tag: {text}");
        for entity in text.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)), "{entity}");
        }
        let (tag, behind) = after.split_once('>').unwrap();
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let closed = tag.ends_with('/');
        let name = tag.split([' ', '/']).next().unwrap();
        let quotes = tag.matches('"').count();
        assert!(quotes % 2 == 0 && quotes / 2 == tag.matches("=\"").count(), "{tag}");
        *counts.entry(name.to_owned()).or_default() += 1;
        if !closed {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    counts
}

#[test]
fn it_is_well_formed() {
    let drawing = svg(&design(), "a <name> & more");
    let counts = elements(&drawing);
    assert_eq!(counts["svg"], 1);
    assert!(drawing.contains("a &lt;name&gt; &amp; more"));
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
}

#[test]
fn it_has_tiles_routes_buffers_and_locks() {
    let design = design();
    let drawing = svg(&design, "k");
    for tile in &design.tiles {
        assert!(drawing.contains(&format!(">{}<", tile.position)), "{}", tile.position);
    }
    assert_eq!(drawing.matches("<g class=\"route\">").count(), design.routes.len());
    assert_eq!(drawing.matches("<g class=\"buffer\">").count(), 1);
    assert_eq!(drawing.matches("<g class=\"lock\">").count(), 1);
    assert!(drawing.contains("<title>shim (0,0) MM2S 0 -&gt; core (0,2) S2MM 0</title>"));
    assert!(drawing.contains("<title>shim (0,0) MM2S 0, packets 1 -&gt; core (0,3) S2MM 1</title>"));
    assert!(drawing.contains("stroke-dasharray"), "packets are dashed");
    assert!(drawing.contains("core (1,3) (not configured)"));
}

/// Numbers of an attribute of all elements of a name.
fn numbers(drawing: &str, element: &str, attribute: &str) -> Vec<f64> {
    let start = format!("<{element} ");
    let elements = drawing.split(&start).skip(1).map(|rest| rest.split('>').next().unwrap());
    let value = |element: &str| element.split(&format!("{attribute}=\"")).nth(1)?.split('"').next()?.parse().ok();
    elements.filter_map(value).collect()
}

#[test]
fn nothing_lies_outside_of_it() {
    let drawing = svg(&design(), "k");
    let (width, height) = (numbers(&drawing, "svg", "width")[0], numbers(&drawing, "svg", "height")[0]);
    for (attribute, size, limit) in [("x", "width", width), ("y", "height", height)] {
        for (at, long) in numbers(&drawing, "rect", attribute).into_iter().zip(numbers(&drawing, "rect", size)) {
            assert!(at >= 0.0 && at + long <= limit + 0.1, "{attribute} {at} + {long} > {limit}");
        }
    }
    // The bar of words 0x1000 to 0x2000 of 16 Ki words: the second quarter, of the half that is shown.
    let bars: Vec<&str> =
        drawing.split("<g class=\"buffer\">").nth(1).unwrap().split("<rect ").skip(1).take(2).collect();
    let number = |text: &str, name: &str| -> f64 {
        text.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    };
    let (track, bar) = (bars[0], bars[1]);
    assert!((number(bar, " width") - number(track, " width") / 2.0).abs() < 0.11);
    assert!((number(bar, "x") - number(track, "x") - number(track, " width") / 2.0).abs() < 0.11);
}

#[test]
fn an_empty_design_is_drawn() {
    elements(&svg(&Maker::default().read(None), ""));
}
