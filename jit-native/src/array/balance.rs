//! Whether all that is sent in a phase arrives, and all chains of the configuration end where they began.
//!
//! A stream's ends move the same number of words. Those of a chain are not counted by anyone: they follow from what the other end of its
//! stream moves, or the chain on the other side of a ring that it shares, buffer by buffer. So what shims send is followed through mem tiles
//! into the cores, and what they receive back to them.

use super::chain::Chain;
use super::error::ArrayError;
use super::route::Stream;
use super::tile::{Channel, End, Key};
use std::collections::BTreeMap;

/// Checks a phase in which channels without a chain move these words.
pub(super) fn check(streams: &[Stream], chains: &[Chain], words: &BTreeMap<Key, u64>) -> Result<(), ArrayError> {
    let mut moved = words.clone();
    let known = |channel: Channel| chains.iter().all(|chain| chain.channel != channel);
    for channel in streams.iter().flat_map(channels).filter(|channel| known(*channel)) {
        moved.entry(channel.key()).or_insert(0);
    }
    // Each pass settles a channel at least, or is the last.
    while follow_streams(streams, &mut moved) | follow_rings(chains, &mut moved)? {}
    for stream in streams {
        let End::Dma(from) = stream.from else { continue };
        for to in &stream.to {
            let End::Dma(to) = *to else { continue };
            let [sent, received] = [from, to].map(|channel| moved.get(&channel.key()).copied().unwrap_or(0));
            if sent != received {
                return Err(ArrayError::Unbalanced { from, sent, to, received });
            }
        }
    }
    Ok(())
}

fn channels(stream: &Stream) -> impl Iterator<Item = Channel> + '_ {
    [stream.from].into_iter().chain(stream.to.iter().copied()).filter_map(|end| match end {
        End::Dma(channel) => Some(channel),
        End::Core(_) => None,
    })
}

/// What one end of a stream moves the others do. Whether that was new of one.
fn follow_streams(streams: &[Stream], moved: &mut BTreeMap<Key, u64>) -> bool {
    let mut is_new = false;
    for stream in streams {
        let Some(words) = channels(stream).find_map(|channel| moved.get(&channel.key()).copied()) else { continue };
        for channel in channels(stream) {
            moved.entry(channel.key()).or_insert_with(|| {
                is_new = true;
                words
            });
        }
    }
    is_new
}

/// Buffers that one chain fills another one empties. Whether that was new of one.
fn follow_rings(chains: &[Chain], moved: &mut BTreeMap<Key, u64>) -> Result<bool, ArrayError> {
    let mut is_new = false;
    for chain in chains {
        let Some(words) = moved.get(&chain.channel.key()).copied() else { continue };
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
                let known = *moved.entry(other.channel.key()).or_insert_with(|| {
                    is_new = true;
                    words
                });
                if known != words {
                    let (from, to) = (chain.channel, other.channel);
                    return Err(ArrayError::Unbalanced { from, sent: words, to, received: known });
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
