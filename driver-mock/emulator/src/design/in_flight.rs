//! What a stream has in flight when it goes on: queues that overflow, descriptors that are written while a channel may still use them,
//! tokens that are not waited for, addresses without a descriptor.
//!
//! A task counts as ended when the stream has waited for a token of it, or of a task that it began later: what has come out has taken
//! what was put in before. That is less than silicon demands, but it is what published designs rely on. A poll of a tile's register, or
//! a wait for tokens of any channels, may be for anything, so it ends all that it can.
//!
//! Where all channels of mem tiles and cores are static, tasks of shims alone are in flight, and a token says less. It ends the tasks in front of
//! its own on its channel, which runs them in order. That of a result also ends the operands that the stream has begun before the
//! result and that have a way to it ([`Flow`]): a result has taken what it is made of. Operands of other results, and other results, go on.
//! What this assumes of a design: a stream begins a result behind all operands that the result is made of, and in front of those that only
//! later results are made of, as weights that run ahead; and the core that sends the last words of a result has taken all words of the
//! operands in front. No file says what a core takes. A descriptor that is rewritten too early is an error of the emulated array, in some
//! order of events.

use super::flow::{Flow, Key, key};
use super::position::Position;
use super::stream::Action;
use super::tile::{ChannelId, Task};
use std::collections::{BTreeMap, BTreeSet};

/// Tasks that a channel holds, the one that it runs included, before a push is lost.
pub(super) const QUEUE: usize = 4;

/// A task that may not have ended.
struct Pushed {
    order: usize,
    token: bool,
    chain: Vec<u8>,
}

/// Follows a stream from its beginning.
#[derive(Default)]
pub(super) struct InFlight {
    queues: BTreeMap<Key, Vec<Pushed>>,
    order: usize,
    /// Descriptors that the stream has written.
    written: BTreeSet<(u8, u8, u8)>,
    /// What has been said, since a stream often does the same a thousand times.
    said: BTreeSet<(u8, u8, u8, &'static str)>,
    /// Whether somebody takes tokens of any channels.
    merges: bool,
    /// Where words of shims get to, if all other channels are static.
    flow: Option<Flow>,
}

/// What is wrong, and in which tile.
pub(super) type Found = (Position, String);

impl InFlight {
    /// With a flow: that of a design whose channels of mem tiles and cores are all static.
    pub fn new(flow: Option<Flow>) -> Self {
        Self { flow, ..Self::default() }
    }

    /// Endless tasks of the configuration keep a place in their queues for ever.
    pub fn configured(&mut self, tile: Position, channel: ChannelId, tasks: &[Task]) {
        let endless = tasks.iter().filter(|task| task.endless);
        let pushed = endless.map(|task| Pushed { order: usize::MAX, token: false, chain: task.chain.clone() });
        self.queues.entry(key(tile.key(), channel)).or_default().extend(pushed);
    }

    /// What is wrong with an action of operation `index`.
    pub fn action(&mut self, index: usize, action: &Action) -> Option<Found> {
        match action {
            Action::Descriptor { tile, descriptor } => self.write(index, *tile, descriptor.id),
            Action::DescriptorWord { tile, descriptor, .. } => self.write(index, *tile, *descriptor),
            Action::AddressPatch { tile, descriptor: Some(id), .. } => {
                let (column, row) = tile.key();
                if !self.written.contains(&(column, row, *id)) && self.said.insert((column, row, *id, "patch")) {
                    let what = format!(
                        "operation {index} puts an address into BD {id}, which the stream has not written: firmware leaves 0 there"
                    );
                    return Some((*tile, what));
                }
                self.write(index, *tile, *id)
            }
            Action::Start { tile, channel, task, .. } => self.push(index, *tile, *channel, task),
            Action::WaitToken { column, row, columns, rows, channel } => {
                let columns = *column..column.saturating_add(*columns);
                for column in columns {
                    for row in *row..row.saturating_add(*rows) {
                        self.wait(key((column, row), *channel));
                    }
                }
                None
            }
            Action::Poll { tile, .. } => {
                let (column, row) = tile.key();
                self.end(|of, pushed| (of.0, of.1) == (column, row) && !pushed.token);
                None
            }
            Action::Other { name, .. } if name == "merge sync" => {
                self.merges = true;
                self.end(|_, _| true);
                None
            }
            _ => None,
        }
    }

    /// What is wrong at the end: each channel whose tokens are left, with how many there are.
    pub fn tokens_left(&self) -> impl Iterator<Item = ((u8, u8), String)> {
        let left = |pushed: &&Pushed| pushed.token;
        let queues = self.queues.iter().filter(|_| !self.merges);
        queues.filter_map(move |((column, row, direction, channel), queue)| {
            let count = queue.iter().filter(left).count();
            let direction = if *direction == 0 { "S2MM" } else { "MM2S" };
            let what = format!(
                "the stream does not wait for all tokens of {direction} {channel} that it asks for ({count} left): the next one goes on too early"
            );
            (count > 0).then_some(((*column, *row), what))
        })
    }

    fn write(&mut self, index: usize, tile: Position, id: u8) -> Option<Found> {
        let (column, row) = tile.key();
        self.written.insert((column, row, id));
        let is_live = self
            .queues
            .iter()
            .any(|(of, queue)| (of.0, of.1) == (column, row) && queue.iter().any(|task| task.chain.contains(&id)));
        (is_live && self.said.insert((column, row, id, "live"))).then(|| {
            let what = format!("operation {index} writes BD {id} while a task with it may not have ended");
            (tile, what)
        })
    }

    fn push(&mut self, index: usize, tile: Position, channel: ChannelId, task: &Task) -> Option<Found> {
        let (order, chain) = (self.order, task.chain.clone());
        self.order += 1;
        let at = key(tile.key(), channel);
        let queue = self.queues.entry(at).or_default();
        queue.push(Pushed { order, token: task.token, chain });
        let is_lost = queue.len() > QUEUE;
        (is_lost && self.said.insert((at.0, at.1, at.2 << 4 | at.3, "queue"))).then(|| {
            let what = format!(
                "operation {index} pushes task {} of {channel} before it has waited for an earlier one: the queue holds {QUEUE}, and silicon loses it",
                queue.len()
            );
            (tile, what)
        })
    }

    /// A token of a channel has come: of the oldest task that sends one.
    fn wait(&mut self, at: Key) {
        let Some(queue) = self.queues.get(&at) else { return };
        let Some(order) = queue.iter().find(|pushed| pushed.token).map(|pushed| pushed.order) else { return };
        let flow = self.flow.take();
        // A token that another channel has sent stays to be waited for.
        self.end(|of, pushed| {
            let is_taken = || flow.as_ref().is_none_or(|flow| flow.reaches(of, at));
            pushed.order <= order && (of == at || !pushed.token && is_taken())
        });
        self.flow = flow;
    }

    fn end(&mut self, ends: impl Fn(Key, &Pushed) -> bool) {
        for (of, queue) in &mut self.queues {
            queue.retain(|pushed| pushed.order == usize::MAX || !ends(*of, pushed));
        }
    }
}
