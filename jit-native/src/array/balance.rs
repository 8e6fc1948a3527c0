//! Whether all that is sent in a phase arrives, and all chains of the configuration end where they began.
//!
//! A stream's ends move the same number of words. Those of a chain are not counted by anyone: they follow from what the other end of its
//! stream moves, or the chain on the other side of a ring that it shares, buffer by buffer. So what shims send is followed through mem tiles
//! into the cores, and what they receive back to them. Only where several channels send to one end, a dispatch says what is whose.

use super::chain::Chain;
use super::error::ArrayError;
use super::route::Stream;
use super::tile::{Channel, End, Source, SourceKey};
use std::collections::BTreeMap;

/// Checks a phase in which channels without a chain, and those that share their end, move these words. Those of a channel whose packets have
/// ids are counted by id.
pub(super) fn check(streams: &[Stream], chains: &[Chain], words: &BTreeMap<SourceKey, u64>) -> Result<(), ArrayError> {
    let mut moved = words.clone();
    let known = |channel: Channel| chains.iter().all(|chain| chain.channel != channel);
    let shared = streams.iter().filter(|stream| stream.is_merged()).filter_map(|stream| sources(stream).next());
    for source in streams.iter().flat_map(sources).filter(|source| known(source.channel)).chain(shared) {
        moved.entry(source.key()).or_insert(0);
    }
    // Each pass settles a channel at least, or is the last.
    while follow_streams(streams, &mut moved) | follow_merges(streams, &mut moved) | follow_rings(chains, &mut moved)? {
    }
    let words = |source: Source| moved.get(&source.key()).copied().unwrap_or(0);
    for stream in streams.iter().filter(|stream| !stream.is_merged()) {
        let mut ends = sources(stream);
        let (End::Dma(_), Some(from)) = (stream.from, ends.next()) else { continue };
        for to in ends {
            let (sent, received) = (words(from), words(to));
            if sent != received {
                return Err(ArrayError::Unbalanced { from, sent, to: to.channel, received });
            }
        }
    }
    for (to, from) in merges(streams) {
        let (received, sent) = (words(to), from.iter().map(|from| words(*from)).sum());
        if received != sent {
            return Err(ArrayError::UnbalancedMerge { to: to.channel, received, streams: from.len(), sent });
        }
    }
    Ok(())
}

/// The channels of a stream, its beginning first; that has an id if the channel sends to several places.
fn sources(stream: &Stream) -> impl Iterator<Item = Source> + '_ {
    let begin = |channel| Source { channel, packet: stream.packet.filter(|_| !stream.is_merged()) };
    let begin = match stream.from {
        End::Dma(channel) => Some(begin(channel)),
        End::Core(_) => None,
    };
    begin.into_iter().chain(stream.to.iter().filter_map(|end| match *end {
        End::Dma(channel) => Some(channel.into()),
        End::Core(_) => None,
    }))
}

/// The ends of merges, each with all channels that send to it.
fn merges(streams: &[Stream]) -> Vec<(Source, Vec<Source>)> {
    let mut merges: Vec<(Source, Vec<Source>)> = Vec::new();
    for stream in streams.iter().filter(|stream| stream.is_merged()) {
        let mut ends = sources(stream);
        let (Some(from), Some(to)) = (ends.next(), ends.next()) else { continue };
        match merges.iter_mut().find(|(other, _)| *other == to) {
            Some((_, all)) => all.push(from),
            None => merges.push((to, vec![from])),
        }
    }
    merges
}

/// What all send arrives. Whether that was new of one.
fn follow_merges(streams: &[Stream], moved: &mut BTreeMap<SourceKey, u64>) -> bool {
    let mut is_new = false;
    for (to, from) in merges(streams) {
        let sent: Option<u64> = from.iter().map(|from| moved.get(&from.key()).copied()).sum();
        if let Some(sent) = sent.filter(|_| !moved.contains_key(&to.key())) {
            moved.insert(to.key(), sent);
            is_new = true;
        }
    }
    is_new
}

/// What one end of a stream moves the others do. Whether that was new of one.
fn follow_streams(streams: &[Stream], moved: &mut BTreeMap<SourceKey, u64>) -> bool {
    let mut is_new = false;
    for stream in streams.iter().filter(|stream| !stream.is_merged()) {
        let Some(words) = sources(stream).find_map(|source| moved.get(&source.key()).copied()) else { continue };
        for source in sources(stream) {
            moved.entry(source.key()).or_insert_with(|| {
                is_new = true;
                words
            });
        }
    }
    is_new
}

/// Buffers that one chain fills another one empties. Whether that was new of one.
fn follow_rings(chains: &[Chain], moved: &mut BTreeMap<SourceKey, u64>) -> Result<bool, ArrayError> {
    let mut is_new = false;
    for chain in chains {
        let Some(words) = moved.get(&(chain.channel.key(), None)).copied() else { continue };
        let turns = turns(chain, words)?;
        for part in &chain.parts {
            let shares = |other: &&Chain| {
                other.channel != chain.channel && other.parts.iter().any(|other| other.ring == part.ring)
            };
            for other in chains.iter().filter(shares) {
                // Parts of buffers are not counted: both ends of a ring have whole ones.
                let buffers = turns * chain.rounds();
                let words = buffers * other.turn() / other.rounds();
                self::turns(other, words)?;
                let known = *moved.entry((other.channel.key(), None)).or_insert_with(|| {
                    is_new = true;
                    words
                });
                if known != words {
                    let (from, to) = (chain.channel, other.channel);
                    return Err(ArrayError::Unbalanced { from: from.into(), sent: words, to, received: known });
                }
            }
        }
    }
    Ok(is_new)
}

fn turns(chain: &Chain, words: u64) -> Result<u64, ArrayError> {
    let (channel, turn) = (chain.channel, chain.turn());
    if words.is_multiple_of(turn) { Ok(words / turn) } else { Err(ArrayError::Turn { channel, words, turn }) }
}
