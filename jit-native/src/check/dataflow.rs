//! Whether a program has the dataflow that its author records.

use super::finding::Problem;
use super::history::Source;
use super::intent::{IntendedRead, Intent, Origin, ReadOperand, STALE};
use super::paths::Paths;

/// Compares what reads get with what is recorded.
pub(super) fn check(paths: &mut Paths<'_>, intent: &Intent) {
    let mut wrong = Vec::new();
    for sighting in &paths.sightings {
        let code = &paths.code;
        let port = &code.ports[sighting.port as usize];
        let Some(reader) = intent.intended(code, port) else { continue };
        let is_port = |read: &&IntendedRead| match read.operand {
            ReadOperand::Operand(operand) => port.operand == Some(operand),
            ReadOperand::Implied(register) => port.operand.is_none() && port.register == register,
        };
        let Some(read) = reader.reads.iter().find(is_port) else { continue };
        let (found, right) = match sighting.source {
            Source::Nothing | Source::Reset => (None, false),
            Source::Port(writer, iteration) => {
                let writer = &code.ports[writer as usize];
                let intended = intent.intended(code, writer);
                let same_loop = intended.is_some_and(|writer| {
                    writer.iteration.map(|(index, _)| index) == reader.iteration.map(|(index, _)| index)
                });
                let distance = (iteration != STALE).then(|| i16::from(sighting.iteration) - i16::from(iteration));
                let fits = |origin: &Origin| {
                    intended.is_some_and(|writer| writer.source == origin.source)
                        && origin.distance.is_none_or(|wanted| same_loop && distance == Some(wanted.into()))
                };
                let place = (code.bundles[writer.bundle as usize].address, distance.filter(|_| same_loop));
                (Some(place), read.from.iter().any(fits))
            }
        };
        if !right {
            wrong.push((port.bundle, sighting.leaf, found));
        }
    }
    wrong.sort();
    wrong.dedup();
    for (bundle, leaf, found) in wrong {
        let register = paths.leaf_name(leaf);
        let (writer, distance) = found.map_or((None, None), |(writer, distance)| (Some(writer), distance));
        paths.report(bundle, Problem::WrongValue { register, writer, distance });
    }
}
