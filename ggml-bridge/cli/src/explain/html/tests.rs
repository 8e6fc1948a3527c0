//! Pages of made-up models.

use super::page;
use crate::explain::report::Explanation;
use crate::explain::tests::explained;
use aie_emulator::markup::escaped;

/// The tags of a page, checked: each is closed by its own end, in order, and no text has a bare mark. The text inside tags, joined by spaces.
fn well_formed(page: &str) -> Vec<String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").expect("a document type");
    let (mut open, mut texts): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    while let Some(begin) = rest.find('<') {
        let text = &rest[..begin];
        assert!(!text.contains('>'), "a bare > in {text:?}");
        if !text.trim().is_empty() {
            assert!(!open.is_empty(), "text outside of the page: {text:?}");
            texts.push(text.to_owned());
        }
        let end = begin + rest[begin..].find('>').expect("a tag that ends");
        let tag = &rest[begin + 1..end];
        assert!(!tag.contains('<'), "a tag in a tag: {tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().expect("a name").to_owned());
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} stay open before {rest:?}");
    texts.iter().for_each(|text| references_are_known(text));
    texts
}

fn references_are_known(text: &str) {
    for part in text.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|known| part.starts_with(known)), "{part}");
    }
}

fn told(explanation: &Explanation) -> String {
    let page = page(explanation);
    well_formed(&page);
    for outside in ["http://", "https://", "url(", "@import", "<script", "src=", "href="] {
        let allowed = usize::from(outside == "http://");
        assert_eq!(page.matches(outside).count(), allowed, "{outside}");
    }
    page
}

#[test]
fn each_operation_has_the_counts_of_the_report() {
    for device in ["mock:aie2p", "mock:aie2?execute=emulated"] {
        let (found, _) = explained(device, true);
        let page = told(&found);
        let rows: Vec<&str> = page.split("<tr class=\"operation\">").skip(1).collect();
        let operations: Vec<_> = found.passes.iter().flat_map(|pass| &pass.operations).collect();
        assert_eq!(rows.len(), operations.len());
        for (row, operation) in rows.iter().zip(operations) {
            let numbers = [
                ("array", operation.array),
                ("host", operation.host),
                ("bytes", operation.bytes),
                ("macs", operation.macs),
            ];
            for (what, number) in numbers {
                let cell = format!("<td class=\"n\" data-of=\"{what}\">{number}</td>");
                assert!(row.contains(&cell), "{cell} is not in {row}");
            }
            for text in
                [Some(&operation.op), Some(&operation.shape), operation.host_reason.as_ref()].into_iter().flatten()
            {
                assert!(row.contains(&escaped(text)), "{text} is not in {row}");
            }
        }
    }
}

#[test]
fn pictures_show_each_command_and_each_tile() {
    let (found, _) = explained("mock:aie2?execute=emulated", true);
    let page = told(&found);
    let grids: Vec<_> = found.passes.iter().flat_map(|pass| &pass.configurations).collect();
    let drawn = grids.iter().filter(|configuration| !configuration.tiles.is_empty()).count();
    assert!(drawn > 0);
    assert_eq!(page.matches("<div class=\"grid\">").count(), drawn);
    assert_eq!((found.columns, found.rows), (4, 6));
    for configuration in grids {
        assert_eq!(configuration.code, configuration.tiles_unknown.is_none());
        assert_eq!(configuration.code, configuration.tiles.values().any(|tile| tile.program && tile.row > 1));
        assert!(configuration.tiles.values().all(|tile| tile.column < 4 && tile.row < 6));
    }
    for pass in &found.passes {
        let commands = |array: bool| {
            let of = pass.sequence.iter().filter(|stretch| stretch.chain.is_some() == array);
            of.map(|stretch| stretch.commands as u64).sum::<u64>()
        };
        assert_eq!((commands(true), commands(false)), (pass.dispatches, pass.host_calls));
        let chains = pass.sequence.iter().filter_map(|stretch| stretch.chain).max();
        assert_eq!(chains, Some(pass.chains - 1));
        assert_eq!(pass.joins.joined_at_most + pass.joins.places_at_least, pass.dispatches);
        assert!(pass.joins.pdi_changes as usize >= pass.pdis);
    }
}

#[test]
fn names_of_a_file_are_only_text() {
    let hostile = "</title><script>alert('1')</script>\"&\u{0}\u{1b}\u{202e}";
    let (mut found, _) = explained("mock:aie2p", true);
    let clean = told(&found).matches('<').count();
    found.model.name = Some(hostile.to_owned());
    found.model.architecture = hostile.to_owned();
    for pass in &mut found.passes {
        pass.operations[0].op = hostile.to_owned();
        pass.operations[0].shape = hostile.to_owned();
        pass.operations[0].kernel = Some(hostile.to_owned());
        pass.operations[0].host_reason = Some(hostile.to_owned());
        pass.sequence[0].names = [hostile.to_owned()].into();
        pass.configurations[0].kernels.insert(hostile.to_owned());
    }
    let page = told(&found);
    // Not one element more, and the name is there to be read.
    assert_eq!(page.matches('<').count(), clean);
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\u{fffd}\u{fffd}\u{fffd}"));
    assert!(!page.contains(['\u{0}', '\u{1b}', '\u{202e}']));
}
