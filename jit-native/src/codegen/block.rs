//! Straight sequences with a branch at their end: what is scheduled at a time.

use super::operation::{Op, Row};

/// How a block ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The next block follows.
    Fall,
    /// A jump, or the end of the program if there is no row.
    Jump { branch: Option<Row>, target: Option<usize> },
    /// A conditional branch; the next block follows otherwise.
    Branch { branch: Row, target: usize },
    /// The end of a hardware loop's body: back to its start, or on.
    Loop,
}

/// A straight sequence.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub ops: Vec<Op>,
    pub end: End,
    /// Whether something jumps here. Its first bundle is aligned then.
    pub target: bool,
    /// Operations that set up the hardware loop that follows.
    pub setup: Vec<usize>,
    /// The operation that the branch at the end waits for: of a loop that counts down.
    pub counter: Option<usize>,
    /// The number of the loop whose body this is.
    pub body_of: Option<usize>,
    /// The number of the pipelined loop that this is a part of, and its bundles.
    pub pipelined: Option<(usize, Vec<Vec<Row>>)>,
    /// Which block of the program it is, however loops are scheduled.
    pub origin: usize,
}

impl Block {
    /// Without operations.
    pub fn empty(origin: usize) -> Self {
        let (ops, setup) = (Vec::new(), Vec::new());
        Self { ops, end: End::Fall, target: false, setup, counter: None, body_of: None, pipelined: None, origin }
    }
}
