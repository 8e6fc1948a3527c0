use super::*;

fn spans<'a>(parts: &'a [(Vec<BufferRef>, usize)], most: usize) -> Vec<Span<'a>> {
    let mut spans = Vec::new();
    parts.iter().for_each(|(bindings, outputs)| add_arguments(&mut spans, bindings, *outputs, most));
    spans
}

fn shape(span: &Span<'_>) -> (Range<usize>, bool) {
    (span.range.clone(), span.written)
}

#[test]
fn what_lies_in_one_buffer_is_one_argument() {
    let parts = [
        (vec![BufferRef::slot(0, 100, 10), BufferRef::slot(1, 0, 4)], 1),
        (vec![BufferRef::slot(0, 40, 8), BufferRef::slot(2, 7, 1), BufferRef::slot(1, 60, 4)], 1),
        (vec![BufferRef::slot(1, 0, 4), BufferRef::slot(0, 300, 4)], 1),
    ];
    let spans = spans(&parts, usize::MAX);
    assert_eq!(spans.iter().map(shape).collect::<Vec<_>>(), [(40..304, true), (0..64, true), (7..8, false)]);
    let ordered: Vec<&Span<'_>> = spans.iter().collect();
    let places = parts.iter().flat_map(|(bindings, _)| bindings).map(|binding| place(&ordered, binding).unwrap());
    let places: Vec<(u16, u64)> = places.map(|place| (place.argument, place.offset)).collect();
    assert_eq!(places, [(0, 60), (1, 0), (0, 0), (2, 0), (1, 60), (1, 0), (0, 260)]);
}

/// A packet cannot name more than 4 GiB, and weights may have more.
#[test]
fn a_span_is_no_longer_than_a_packet_can_name() {
    let gib = 1 << 30;
    let at = |start: usize| BufferRef::slot(0, start * gib, gib);
    let parts = [(vec![at(0), at(9)], 1), (vec![at(2), at(6), at(3)], 1)];
    let spans = spans(&parts, 4 * gib);
    let shapes: Vec<_> =
        spans.iter().map(|span| (span.range.start / gib..span.range.end / gib, span.written)).collect();
    assert_eq!(shapes, [(0..4, true), (6..10, true)]);
    let ordered: Vec<&Span<'_>> = spans.iter().collect();
    assert_eq!(place(&ordered, &at(9)), Some(ArgumentPlace { argument: 1, offset: 3 << 30 }));
    assert_eq!(place(&ordered, &at(5)), None);
}
