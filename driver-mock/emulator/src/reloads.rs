//! Changes of context between dispatches, drawn by a seed.
//!
//! Another context may have had the array between two dispatches of one, and then firmware loads the PDI again: cores restart, channels,
//! descriptors and locks are as the PDI says, and memory that it does not write is what others have left. Nothing tells a dispatch
//! whether that was so. A design whose configuration stays from dispatch to dispatch, as rings that the PDI starts, has to be right
//! either way.

use crate::array::Rules;
use crate::core::Undefined;
use fastrand::Rng;

/// Draws before which dispatches the PDI is loaded again: one of two.
#[derive(Clone, Debug)]
pub struct Reloads(Rng);

impl Reloads {
    /// Those of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// Whether the PDI is loaded again before the next dispatch: the seed by which the array is another one then.
    pub fn draw(&mut self) -> Option<u64> {
        let seed = self.0.u64(..);
        self.0.bool().then_some(seed)
    }
}

impl Rules {
    /// The same with other noise, and another order of events if there is a seed for one.
    #[must_use]
    pub fn varied(mut self, seed: u64) -> Self {
        if let Undefined::Noise(noise) = &mut self.undefined {
            *noise ^= seed;
        }
        self.interleaving = self.interleaving.map(|order| order ^ seed);
        self
    }
}
