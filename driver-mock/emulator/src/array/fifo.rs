//! Words of a stream, and the buffer of a port, which knows when they pass.
//!
//! Words that pass together are handled together: their times follow one another by one rule, so those of the first and the last
//! are enough. What comes out is what word by word would give, to the cycle.

/// Words that the buffer of a port holds: the hardware has a slave's four and a master's two for each hop.
pub const DEPTH: usize = 6;
/// Places of a buffer, of which ports use fewer.
const PLACES: usize = 32;

/// A word of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    pub data: u32,
    /// The last of its packet.
    pub last: bool,
}

/// Words that pass together. Of the time of a word is known that it is at most one cycle later than the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words {
    data: [u32; Self::MOST],
    /// A bit for each word that is the last of its packet.
    lasts: u32,
    count: usize,
    /// When the first word passes.
    pub time: u64,
}

impl Words {
    /// How many words pass together at most.
    pub const MOST: usize = 8;

    pub fn data(&self) -> &[u32] {
        &self.data[..self.count]
    }

    /// Adds a word. There must be fewer than [`Words::MOST`].
    #[inline]
    pub fn push(&mut self, data: u32) {
        self.data[self.count] = data;
        self.count += 1;
    }

    /// Says that the word that was added last is the last of its packet.
    pub fn end_packet(&mut self) {
        self.lasts |= 1 << self.count >> 1;
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The same words, so many cycles later.
    #[inline]
    pub fn later(&self, cycles: u64) -> Self {
        Self { time: self.time + cycles, ..*self }
    }

    /// Whether the last of the words is the last of its packet.
    #[inline]
    pub fn ends_packet(&self) -> bool {
        self.lasts << 1 >> self.count & 1 == 1
    }

    /// The words one by one.
    pub fn iter(&self) -> impl Iterator<Item = Word> {
        self.data().iter().enumerate().map(|(index, data)| Word { data: *data, last: self.lasts >> index & 1 == 1 })
    }
}

/// The buffer of a port.
///
/// It has the times of the array's clock at which words pass: a port takes one word a cycle, and a word that finds the buffer
/// full goes in when one has left. Words of one batch count as consecutive, which is what they are unless their sender stalls.
#[derive(Debug, Default)]
pub struct Fifo {
    /// A ring: words pass too often for anything that allocates.
    data: [u32; PLACES],
    /// A bit for each place whose word is the last of its packet.
    lasts: u32,
    head: usize,
    count: usize,
    /// When the last word went in.
    pushed: u64,
    /// When the last word left.
    popped: u64,
    /// Words that have left.
    passed: u64,
}

impl Fifo {
    /// Words that it takes now.
    pub fn space(&self) -> usize {
        DEPTH.saturating_sub(self.count)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// From when on a word that goes in now has a place.
    pub fn room_from(&self) -> u64 {
        self.popped.saturating_sub(DEPTH as u64 - 1)
    }

    /// Puts a word in that comes at a time. There must be space.
    pub fn push_at(&mut self, word: Word, time: u64) {
        let mut words = Words { time, ..Words::default() };
        words.push(word.data);
        if word.last {
            words.end_packet();
        }
        self.push(&words);
    }

    /// Puts words in, each when it comes and a cycle after the one before. There must be space.
    #[inline]
    pub fn push(&mut self, words: &Words) {
        debug_assert!(self.count + words.count <= PLACES, "a port takes no more than it has space for");
        if words.is_empty() {
            return;
        }
        // No word is more than a cycle behind the one before: once the first has gone in, the others follow.
        self.pushed = words.time.max(self.pushed + 1) + words.count as u64 - 1;
        let first = self.head + self.count;
        for (index, data) in words.data().iter().enumerate() {
            self.data[(first + index) % PLACES] = *data;
        }
        let mask = (1u32 << words.count) - 1;
        let shift = (first % PLACES) as u32;
        self.lasts = self.lasts & !mask.rotate_left(shift) | words.lasts.rotate_left(shift);
        self.count += words.count;
    }

    /// When the next word leaves if it can from a time on.
    #[inline]
    fn leaves_at(&self, time: u64) -> u64 {
        time.max(self.pushed.saturating_sub(self.count as u64 - 1))
    }

    /// Takes at most so many words out of the ring, which leave from a time on.
    #[inline]
    fn take(&mut self, most: usize, time: u64) -> Words {
        let count = most.min(self.count).min(Words::MOST);
        let mut words = Words { data: [0; Words::MOST], lasts: 0, count, time };
        for (index, data) in words.data.iter_mut().enumerate() {
            *data = self.data[(self.head + index) % PLACES];
        }
        words.lasts = self.lasts.rotate_right(self.head as u32) & ((1 << count) - 1);
        self.head = (self.head + count) % PLACES;
        self.count -= count;
        self.passed += count as u64;
        words
    }

    /// Takes the next words, at most so many and [`Words::MOST`]: each at a time, or later, when it is there.
    #[inline]
    pub fn pop(&mut self, time: u64, most: usize) -> Words {
        if self.count == 0 || most == 0 {
            return Words::default();
        }
        let words = self.take(most, self.leaves_at(time));
        self.popped = time.max(self.pushed.saturating_sub(self.count as u64));
        words
    }

    /// The same for something that takes one word a cycle: the first at a time, each of the others a cycle after the one before.
    /// Gives when it takes the last, too.
    #[inline]
    pub fn pop_one_a_cycle(&mut self, time: u64, most: usize) -> (Words, u64) {
        if self.count == 0 || most == 0 {
            return (Words::default(), time);
        }
        let words = self.take(most, self.leaves_at(time));
        // Words have come one a cycle at most, so none makes it wait but the first.
        self.popped = words.time + words.count as u64 - 1;
        (words, self.popped)
    }

    /// Takes the next word at a time, or later, when it is there: the time is given.
    pub fn pop_at(&mut self, time: u64) -> Option<(Word, u64)> {
        let words = self.pop(time, 1);
        words.iter().next().map(|word| (word, words.time))
    }

    /// Words that have left since reset.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    #[inline]
    pub fn front(&self) -> Option<Word> {
        let word = Word { data: self.data[self.head], last: self.lasts >> self.head & 1 == 1 };
        (self.count > 0).then_some(word)
    }

    /// How many words there are up to the end of a packet, at most all.
    pub fn up_to_last(&self) -> usize {
        let lasts = self.lasts.rotate_right(self.head as u32);
        self.count.min(lasts.trailing_zeros() as usize + 1)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequence of numbers that looks random.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut state = 1u64;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        }
    }

    /// Words that go through two buffers one by one, and in batches: data, ends of packets and times are the same.
    #[test]
    fn batches_have_the_times_of_single_words() {
        let mut number = numbers();
        let [mut one, mut many] = [(); 2].map(|()| [Fifo::default(), Fifo::default()]);
        let (mut sent, mut clocks, mut received) = (0, [0, 0], [Vec::new(), Vec::new()]);
        for _ in 0..20_000 {
            let (step, room) = (number(3), one[0].room_from());
            let most = 1 + number(6) as usize;
            match step {
                // A channel that sends a word a cycle.
                0 => {
                    let count = most.min(one[0].space());
                    let time = (clocks[0] + number(4)).max(room);
                    let mut words = Words { time, ..Words::default() };
                    for index in 0..count {
                        let last = number(5) == 0;
                        one[0].push_at(Word { data: sent, last }, time + index as u64);
                        words.push(sent);
                        if last {
                            words.end_packet();
                        }
                        sent += 1;
                    }
                    many[0].push(&words);
                    clocks[0] = time + count as u64;
                }
                // A port that passes on what is there.
                1 => {
                    let room = one[1].room_from();
                    let count = most.min(one[1].space()).min(one[0].len());
                    for _ in 0..count {
                        let (word, time) = one[0].pop_at(room).unwrap();
                        one[1].push_at(word, time);
                    }
                    let words = many[0].pop(room, count);
                    many[1].push(&words);
                }
                // A channel that takes a word a cycle.
                _ => {
                    let mut clock = clocks[1] + number(4);
                    let begin = clock + 1;
                    for _ in 0..most.min(one[1].len()) {
                        let (word, time) = one[1].pop_at(clock + 1).unwrap();
                        clock = time;
                        received[0].push((word, time));
                    }
                    let (words, end) = many[1].pop_one_a_cycle(begin, most);
                    let times = words.time..;
                    received[1].extend(words.iter().zip(times));
                    if !words.is_empty() {
                        assert_eq!(clock, end);
                    }
                    clocks[1] = clock;
                }
            }
            assert_eq!(format!("{one:?}"), format!("{many:?}"));
        }
        assert!(received[0].len() > 10_000);
        assert_eq!(received[0], received[1]);
    }
}
