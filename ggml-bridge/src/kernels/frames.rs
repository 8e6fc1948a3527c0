//! Which PDIs kernels get that work with several.
//!
//! A kernel is made for a node, with a PDI that its compiler thinks of before it knows a model. Where its stream works with others, too
//! ([`Configuration`]), all such kernels of a device get one that has what all of them need: then neighbours can be one dispatch, and the
//! array is configured once. What is needed is never forgotten, so that the graphs of a model end with the same PDI. Where there is none
//! with everything, they get few: what most kernels need comes first, and the rest joins the first that has room for it. Kernels
//! that need nothing are with the first.

use aie_hal::KernelArtifact;
use aie_hal::artifact::Configuration;
use aie_ops::Node;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Features of PDIs, by the words of their design.
type Features = BTreeSet<String>;

/// Makes the kernel of a node with a PDI that has these features, if there is one.
pub type Widen<'a> = &'a dyn Fn(&Node, &Features) -> Option<KernelArtifact>;

/// A PDI that was chosen.
#[derive(Debug)]
struct Frame {
    /// A kernel that has it.
    kernel: KernelArtifact,
    /// What it is for.
    needs: Features,
}

/// The PDIs that were chosen, by the name of their configuration.
#[derive(Debug, Default)]
pub struct Frames(BTreeMap<String, Vec<Frame>>);

/// The kernels of one configuration, by what they need.
type Demands<'a> = BTreeMap<&'a Features, Vec<(&'a Node, &'a KernelArtifact)>>;

impl Frames {
    /// The kernel with the PDI that was chosen for it.
    #[must_use]
    pub fn place(&self, kernel: KernelArtifact) -> KernelArtifact {
        let frames = kernel.configuration().and_then(|configuration| self.0.get(&configuration.name));
        let moved = frames.and_then(|frames| frames.iter().find_map(|frame| kernel.with_pdi_of(&frame.kernel)));
        moved.unwrap_or(kernel)
    }

    /// Chooses PDIs for these kernels, beside those for which it has been done. Their order makes no difference.
    pub fn settle<'a>(&mut self, kernels: impl Iterator<Item = (&'a Node, &'a KernelArtifact)>, widen: Widen<'_>) {
        let mut configurations: BTreeMap<&str, Demands<'_>> = BTreeMap::new();
        for (node, kernel) in kernels {
            let Some(Configuration { name, needs, .. }) = kernel.configuration() else { continue };
            configurations.entry(name).or_default().entry(needs).or_default().push((node, kernel));
        }
        for (name, mut demands) in configurations {
            demands.values_mut().for_each(|kernels| kernels.sort_by_key(|(_, kernel)| kernel.name()));
            let widen = |node: &Node, features: &Features| {
                widen(node, features).filter(|kernel| {
                    kernel.configuration().is_some_and(|made| made.name == name && made.has.is_superset(features))
                })
            };
            settle(self.0.entry(name.to_owned()).or_default(), &demands, &widen);
        }
    }
}

/// Makes the frames of a configuration do for all demands.
fn settle(frames: &mut Vec<Frame>, demands: &Demands<'_>, widen: Widen<'_>) {
    let has = |frame: &Frame, needs: &Features| {
        frame.kernel.configuration().is_some_and(|configuration| configuration.has.is_superset(needs))
    };
    let mut open: Vec<_> = demands.iter().filter(|(needs, _)| !frames.iter().any(|frame| has(frame, needs))).collect();
    if open.is_empty() && frames.len() <= 1 {
        return;
    }
    let all = frames.iter().map(|frame| &frame.needs).chain(demands.keys().copied()).flatten().cloned().collect();
    // Where nothing is missing, one PDI instead of several has to be there already.
    let kernel = if open.is_empty() { there(demands, &all) } else { with(demands, &all, widen) };
    if let Some(kernel) = kernel {
        *frames = vec![Frame { kernel, needs: all }];
        return;
    }
    // What comes new may be another model.
    let new: Features = open.iter().flat_map(|(needs, _)| needs.iter().cloned()).collect();
    if let (false, Some(kernel)) = (open.is_empty() || frames.is_empty(), with(demands, &new, widen)) {
        frames.insert(0, Frame { kernel, needs: new });
        return;
    }
    open.sort_by_key(|(_, kernels)| Reverse(kernels.len()));
    for (needs, kernels) in open {
        let widened = frames.iter_mut().any(|frame| {
            let needs = &frame.needs | needs;
            let kernel = with(demands, &needs, widen);
            kernel.map(|kernel| *frame = Frame { kernel, needs }).is_some()
        });
        if let (false, Some((_, kernel))) = (widened, kernels.first()) {
            frames.push(Frame { kernel: (*kernel).clone(), needs: (*needs).clone() });
        }
    }
}

/// A kernel that is there, whose PDI has these features.
fn there(demands: &Demands<'_>, features: &Features) -> Option<KernelArtifact> {
    let configuration =
        |kernel: &&KernelArtifact| kernel.configuration().filter(|has| has.has.is_superset(features)).cloned();
    let there = demands.values().flatten().map(|(_, kernel)| *kernel);
    let there = there.filter_map(|kernel| configuration(&kernel).map(|found| (found.has.len(), kernel)));
    // Of those with the least the first, so that it does not depend on what else happens to be there.
    there.min_by_key(|(size, kernel)| (*size, kernel.name())).map(|(_, kernel)| kernel.clone())
}

/// A kernel whose PDI has these features: one that is there, else a new one.
fn with(demands: &Demands<'_>, features: &Features, widen: Widen<'_>) -> Option<KernelArtifact> {
    there(demands, features).or_else(|| {
        let (node, _) = demands.iter().rev().find_map(|(_, kernels)| kernels.first())?;
        widen(node, features)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_ops::artifact::reference_artifact;
    use aie_ops::{DataType, OpParams, Tensor, table};
    use std::cell::RefCell;

    const ROOM: usize = 2;

    fn features(words: &[&str]) -> Features {
        words.iter().copied().map(Into::into).collect()
    }

    /// A kernel of its own name; PDIs are the same where they have the same.
    fn kernel(elements: usize, needs: &[&str], has: &[&str]) -> (Node, KernelArtifact) {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let made = |elements| {
            let x = Tensor::contiguous(DataType::F32, [elements, 1, 1, 1]);
            let node = Node::new("SQR", OpParams::default(), x, vec![Some(x)]);
            let artifact = reference_artifact(table::lookup("SQR").unwrap(), &node, &arch).unwrap();
            (node, artifact)
        };
        let (has, needs) = (features(has), features(needs));
        let configuration = |needs| Configuration { name: "design".into(), needs, has: has.clone() };
        let number: usize = has.iter().flat_map(|word| word.bytes()).map(usize::from).sum();
        let pdi = made(1 << 16 | number).1.with_configuration(configuration(features(&[])));
        let (node, artifact) = made(elements);
        (node, artifact.with_configuration(configuration(needs)).with_pdi_of(&pdi).unwrap())
    }

    struct Rig {
        frames: Frames,
        asked: RefCell<Vec<Features>>,
    }

    impl Rig {
        fn new() -> Self {
            Self { frames: Frames::default(), asked: RefCell::default() }
        }

        /// With a compiler that makes PDIs of up to two features.
        fn settle(&mut self, kernels: &[(Node, KernelArtifact)]) {
            let widen = |_: &Node, features: &Features| {
                self.asked.borrow_mut().push(features.clone());
                let has: Vec<&str> = features.iter().map(String::as_str).collect();
                (has.len() <= ROOM).then(|| kernel(1, &[], &has).1)
            };
            self.frames.settle(kernels.iter().map(|(node, kernel)| (node, kernel)), &widen);
        }

        /// What the PDI of a kernel has.
        fn has(&self, (_, kernel): &(Node, KernelArtifact)) -> Vec<String> {
            let placed = self.frames.place(kernel.clone());
            assert_eq!((placed.name(), placed.instructions()), (kernel.name(), kernel.instructions()));
            placed.configuration().unwrap().has.iter().cloned().collect()
        }
    }

    #[test]
    fn all_kernels_get_the_pdi_that_has_what_they_need() {
        let mut rig = Rig::new();
        let kernels = [kernel(8, &[], &["a"]), kernel(16, &["a"], &["a"]), kernel(32, &["b"], &["b"])];
        rig.settle(&kernels[..2]);
        assert!(rig.asked.borrow().is_empty(), "one is there");
        rig.settle(&kernels);
        kernels.iter().for_each(|kernel| assert_eq!(rig.has(kernel), ["a", "b"]));
        rig.settle(&kernels);
        assert_eq!(*rig.asked.borrow(), [features(&["a", "b"])], "made once");
        let digests = kernels.map(|(_, kernel)| *rig.frames.place(kernel).digest());
        assert!(digests.iter().all(|digest| *digest == digests[0]));
    }

    /// What the first graph needs is there for the second.
    #[test]
    fn what_was_needed_stays() {
        let mut rig = Rig::new();
        rig.settle(&[kernel(16, &["a"], &["a"])]);
        let later = [kernel(32, &["b"], &["b"]), kernel(8, &[], &["b"])];
        rig.settle(&later);
        later.iter().for_each(|kernel| assert_eq!(rig.has(kernel), ["a", "b"]));
    }

    /// Where all have no room, those that come later are together: they may be another model's.
    #[test]
    fn a_later_model_has_a_pdi_of_its_own() {
        let mut rig = Rig::new();
        rig.settle(&[kernel(16, &["a"], &["a"]), kernel(32, &["b"], &["b"])]);
        let later = [kernel(64, &["c"], &["c"]), kernel(128, &["d"], &["d"]), kernel(8, &[], &["c"])];
        rig.settle(&later);
        later.iter().for_each(|kernel| assert_eq!(rig.has(kernel), ["c", "d"]));
    }

    /// A store without a compiler may get to a kernel with a PDI for all later.
    #[test]
    fn a_pdi_for_all_that_comes_later_is_taken() {
        let (a, b) = (kernel(16, &["a"], &["a"]), kernel(32, &["b"], &["b"]));
        let wide = kernel(64, &["a"], &["a", "b"]);
        let mut frames = Frames::default();
        let mut settle = |kernels: &[&(Node, KernelArtifact)]| {
            frames.settle(kernels.iter().map(|(node, kernel)| (node, kernel)), &|_, _| None);
            frames.0["design"].len()
        };
        assert_eq!((settle(&[&a, &b]), settle(&[&a, &b, &wide])), (2, 1));
    }

    #[test]
    fn where_cores_have_no_room_most_kernels_are_together() {
        let mut rig = Rig::new();
        let kernels = [
            kernel(8, &[], &["a"]),
            kernel(16, &["a"], &["a"]),
            kernel(32, &["b"], &["b"]),
            kernel(64, &["b"], &["b"]),
            kernel(128, &["c"], &["c"]),
            kernel(256, &["c"], &["c"]),
            kernel(512, &["c"], &["c"]),
        ];
        let reversed: Vec<_> = kernels.iter().cloned().rev().collect();
        for kernels in [&kernels[..], &reversed] {
            rig = Rig::new();
            rig.settle(kernels);
            let of =
                |need: &str| kernels.iter().find(|(_, k)| k.configuration().unwrap().needs.contains(need)).unwrap();
            assert_eq!(
                (rig.has(of("c")), rig.has(of("b")), rig.has(of("a"))),
                (vec!["b".into(), "c".into()], vec!["b".into(), "c".into()], vec!["a".into()])
            );
        }
        assert_eq!(rig.has(&kernels[0]), ["b", "c"], "vectors are with the first");
    }

    #[test]
    fn other_kernels_stay_as_they_are() {
        let mut rig = Rig::new();
        let (node, kernel) = kernel(16, &["a"], &["a"]);
        rig.settle(&[(node.clone(), kernel.clone())]);
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let plain = reference_artifact(table::lookup("SQR").unwrap(), &node, &arch).unwrap();
        rig.settle(&[(node, plain.clone())]);
        assert_eq!(rig.frames.place(plain.clone()).identity(), plain.identity());
    }
}
