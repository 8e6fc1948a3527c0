//! Finding commands that need a barrier between them.
//!
//! Sorting by address makes this n log n in the accesses between two barriers. While sweeping it is enough to know the access
//! that reaches furthest, and the one that reaches furthest among the other commands, because a command may overlap itself.

/// A range one command touches. Ranges of different `space` never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Touch {
    /// 0 for device addresses, 1 + slot for offsets into a binding.
    pub(super) space: usize,
    /// First byte.
    pub(super) start: u64,
    /// One past the last byte.
    pub(super) end: u64,
    /// Index of the command in its list.
    pub(super) command: usize,
    /// Written or only read.
    pub(super) write: bool,
}

/// The two furthest-reaching touches by different commands.
#[derive(Default)]
struct Furthest([Option<Touch>; 2]);

impl Furthest {
    fn add(&mut self, touch: Touch) {
        let reach = |t: &Option<Touch>| t.map_or(0, |t| t.end);
        let [first, second] = &mut self.0;
        if first.is_some_and(|f| f.command == touch.command) {
            if touch.end > reach(first) {
                *first = Some(touch);
            }
        } else if touch.end > reach(first) {
            *second = first.replace(touch);
        } else if touch.end > reach(second) {
            *second = Some(touch);
        }
    }

    /// A touch by another command that reaches into `touch`, which starts no earlier than all added ones.
    fn reaching(&self, touch: &Touch) -> Option<Touch> {
        self.0.iter().flatten().find(|other| other.command != touch.command && other.end > touch.start).copied()
    }
}

/// The first two touches by different commands that overlap and one of which writes, in command order. Reorders `touches`.
pub(super) fn find_hazard(touches: &mut Vec<Touch>) -> Option<(Touch, Touch)> {
    touches.retain(|touch| touch.start < touch.end);
    touches.sort_unstable();
    for space in touches.chunk_by(|a, b| a.space == b.space) {
        let (mut all, mut writes) = (Furthest::default(), Furthest::default());
        for touch in space {
            if let Some(other) = if touch.write { all.reaching(touch) } else { writes.reaching(touch) } {
                return Some(if other.command < touch.command { (other, *touch) } else { (*touch, other) });
            }
            all.add(*touch);
            if touch.write {
                writes.add(*touch);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(start: u64, end: u64, command: usize, write: bool) -> Touch {
        Touch { space: 0, start, end, command, write }
    }

    /// The definition, in n^2.
    fn has_hazard(touches: &[Touch]) -> bool {
        touches.iter().enumerate().any(|(i, a)| {
            touches[i + 1..].iter().any(|b| {
                a.command != b.command
                    && (a.write || b.write)
                    && a.space == b.space
                    && a.start.max(b.start) < a.end.min(b.end)
            })
        })
    }

    #[test]
    fn reads_never_conflict_and_a_write_does() {
        assert_eq!(find_hazard(&mut vec![touch(0, 8, 0, false), touch(4, 12, 1, false)]), None);
        assert_eq!(find_hazard(&mut vec![touch(0, 8, 0, true), touch(8, 12, 1, true)]), None);
        assert_eq!(find_hazard(&mut vec![touch(0, 8, 0, true), touch(0, 8, 0, false)]), None);
        let (first, second) = (touch(4, 8, 1, true), touch(0, 5, 2, false));
        assert_eq!(find_hazard(&mut vec![second, first]), Some((first, second)));
    }

    #[test]
    fn empty_ranges_and_other_spaces_touch_nothing() {
        assert_eq!(find_hazard(&mut vec![touch(0, 8, 0, true), touch(4, 4, 1, true)]), None);
        let elsewhere = Touch { space: 1, ..touch(0, 8, 1, true) };
        assert_eq!(find_hazard(&mut vec![touch(0, 8, 0, true), elsewhere]), None);
    }

    #[test]
    fn agrees_with_the_definition_on_many_small_cases() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut next = |limit: usize| random.usize(..limit);
        let mut hazards = 0;
        for _ in 0..20_000 {
            let count = 1 + next(7);
            let mut touches: Vec<Touch> = (0..count)
                .map(|_| {
                    let start = next(12) as u64;
                    let end = start + next(6) as u64;
                    Touch { space: next(2), start, end, command: next(4), write: next(3) == 0 }
                })
                .collect();
            let expected = has_hazard(&touches);
            hazards += u32::from(expected);
            let found = find_hazard(&mut touches.clone());
            assert_eq!(found.is_some(), expected, "{touches:?}");
            if let Some((a, b)) = found {
                touches = vec![a, b];
                assert!(a.command < b.command && has_hazard(&touches), "{a:?} {b:?}");
            }
        }
        assert!((4_000..16_000).contains(&hazards), "the cases are one-sided: {hazards}");
    }
}
