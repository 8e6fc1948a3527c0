//! Sets of types of weights: what a program of product cores is made for.

use super::weights::Weights;
use std::collections::BTreeSet;
use std::fmt;

/// A set of types of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Types(u32);

impl Types {
    /// What single nodes take, whose models are not known: the first set with their type.
    pub(super) const DEFAULTS: [Self; 4] = [
        Self::with(&[Weights::Q4_1, Weights::Q4_0, Weights::Q8_0]),
        Self::with(&[Weights::Q4K, Weights::Q6K]),
        Self::with(&[Weights::Q5_0, Weights::Q5_1]),
        Self::with(&[Weights::Q5K]),
    ];

    /// These types.
    pub(super) const fn with(weights: &[Weights]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < weights.len() {
            bits |= 1 << weights[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// The types of the program that a single node with these weights gets.
    pub(super) fn default_for(weights: Weights) -> Self {
        Self::DEFAULTS.into_iter().find(|types| types.contains(weights)).unwrap_or(Self::with(&[weights]))
    }

    /// The types of a program that has at least those of these names: of a default one, so that there are few, or of one with just them.
    ///
    /// # Errors
    /// The name of none.
    pub(super) fn that_have(names: &BTreeSet<String>) -> Result<Self, String> {
        let bit = |name: &String| {
            let found = Weights::ALL.into_iter().find(|weights| weights.dtype().name() == name);
            found.map(|weights| 1 << weights as u32).ok_or_else(|| format!("{name} is no type of weights of products"))
        };
        let wanted = names.iter().try_fold(0, |bits, name| Ok::<_, String>(bits | bit(name)?))?;
        Ok(Self::DEFAULTS.into_iter().find(|types| types.0 & wanted == wanted).unwrap_or(Self(wanted)))
    }

    pub(super) fn contains(self, weights: Weights) -> bool {
        self.0 >> weights as u32 & 1 != 0
    }

    /// In the order of their numbers.
    pub(super) fn iter(self) -> impl Iterator<Item = Weights> {
        Weights::ALL.into_iter().filter(move |weights| self.contains(*weights))
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|weights| weights.dtype().name()).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_the_order_of_numbers() {
        let types = Types::with(&[Weights::Q8_0, Weights::Q4_0, Weights::Q8_0]);
        assert_eq!((types.to_string().as_str(), types.len()), ("q4_0, q8_0", 2));
        assert_eq!(types.iter().collect::<Vec<_>>(), [Weights::Q4_0, Weights::Q8_0]);
    }

    #[test]
    fn sets_have_what_is_named() {
        let that_have = |names: &[&str]| Types::that_have(&names.iter().copied().map(Into::into).collect());
        assert_eq!(that_have(&["q8_0", "q4_0"]), Ok(Types::DEFAULTS[0]));
        assert_eq!(that_have(&["q4_K", "q4_0"]), Ok(Types::with(&[Weights::Q4_0, Weights::Q4K])));
        assert_eq!(that_have(&["f64"]), Err("f64 is no type of weights of products".into()));
    }

    #[test]
    fn each_type_has_a_default_set() {
        for weights in Weights::ALL {
            assert!(Types::default_for(weights).contains(weights));
        }
    }
}
