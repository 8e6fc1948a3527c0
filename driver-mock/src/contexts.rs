//! Which PDI lives in which hardware context.
//!
//! The silicon refuses the 33rd PDI of a context and the 17th context. This planner never asks for either: the PDIs of a
//! command list are put together into as few contexts as possible, a context that has room is created again with the
//! union, and the least recently used context goes when there are too many. So a caller with any number of kernels sees
//! costs, not errors.

use crate::executable::LoadedPdi;
use crate::npu::{ContextId, Npu, Refusal};
use aie_hal::artifact::Digest;
use std::sync::{Arc, Weak};

/// Where a PDI is: a context and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Residence {
    pub(crate) context: ContextId,
    pub(crate) slot: usize,
}

#[derive(Debug)]
struct Planned {
    id: ContextId,
    /// By slot.
    pdis: Vec<Member>,
    last_used: u64,
}

/// A PDI in a context. It may have been unloaded since.
#[derive(Debug)]
struct Member {
    number: usize,
    digest: Digest,
    loaded: Weak<LoadedPdi>,
}

/// The contexts of one device.
#[derive(Debug, Default)]
pub(crate) struct ContextPlanner {
    contexts: Vec<Planned>,
    /// By PDI number.
    residences: Vec<Option<Residence>>,
    uses: u64,
}

impl ContextPlanner {
    /// Where the PDI with this number is, when it is in a context.
    pub(crate) fn locate(&self, number: usize) -> Option<Residence> {
        self.residences.get(number).copied().flatten()
    }

    /// Puts all of `wanted` into contexts, as far as they fit into the NPU at one time; the first ones win.
    pub(crate) fn prepare(&mut self, npu: &Npu, wanted: &[&Arc<LoadedPdi>]) -> Result<(), Refusal> {
        self.uses += 1;
        let mut missing: Vec<Member> = Vec::new();
        for pdi in wanted {
            match self.locate(pdi.number) {
                Some(at) => self.touch(at.context),
                None if missing.iter().all(|m| m.number != pdi.number) => {
                    missing.push(Member { number: pdi.number, digest: pdi.digest, loaded: Arc::downgrade(pdi) });
                }
                None => {}
            }
        }
        let capacity = npu.limits().pdis_per_context;
        missing.truncate(capacity.saturating_mul(npu.limits().contexts));
        while !missing.is_empty() {
            let live = |c: &Planned| c.pdis.iter().filter(|m| m.loaded.strong_count() > 0).count();
            let room = |c: &&Planned| live(c) + missing.len() <= capacity;
            // The context used last is the one these PDIs will alternate with.
            let with_room = self.contexts.iter().filter(room).max_by_key(|c| c.last_used).map(|c| c.id);
            let pdis = match with_room {
                Some(context) => {
                    let mut union = self.retire(npu, context)?;
                    union.append(&mut missing);
                    union
                }
                None => {
                    if self.contexts.len() >= npu.limits().contexts
                        && let Some(oldest) = self.contexts.iter().min_by_key(|c| c.last_used).map(|c| c.id)
                    {
                        self.retire(npu, oldest)?;
                    }
                    missing.drain(..capacity.min(missing.len())).collect()
                }
            };
            self.create(npu, pdis)?;
        }
        Ok(())
    }

    /// The residence of one PDI, created when it has none. For lists with more PDIs than the NPU holds at one time.
    pub(crate) fn require(&mut self, npu: &Npu, pdi: &Arc<LoadedPdi>) -> Result<Residence, Refusal> {
        if let Some(at) = self.locate(pdi.number) {
            return Ok(at);
        }
        self.prepare(npu, &[pdi])?;
        self.locate(pdi.number).ok_or(Refusal::Limit { what: "contexts", requested: 1, limit: 0 })
    }

    /// Marks a context as used now.
    pub(crate) fn touch(&mut self, context: ContextId) {
        if let Some(planned) = self.contexts.iter_mut().find(|c| c.id == context) {
            planned.last_used = self.uses;
        }
    }

    fn create(&mut self, npu: &Npu, pdis: Vec<Member>) -> Result<(), Refusal> {
        let id = npu.create_context(npu.arch().array.columns)?;
        let digests: Vec<Digest> = pdis.iter().map(|m| m.digest).collect();
        npu.configure_context(id, &digests)?;
        for (slot, Member { number, .. }) in pdis.iter().enumerate() {
            if self.residences.len() <= *number {
                self.residences.resize(number + 1, None);
            }
            self.residences[*number] = Some(Residence { context: id, slot });
        }
        self.contexts.push(Planned { id, pdis, last_used: self.uses });
        Ok(())
    }

    /// Destroys a context; returns the PDIs that were in it and are still loaded.
    fn retire(&mut self, npu: &Npu, context: ContextId) -> Result<Vec<Member>, Refusal> {
        let Some(index) = self.contexts.iter().position(|c| c.id == context) else { return Ok(Vec::new()) };
        npu.destroy_context(context)?;
        let mut planned = self.contexts.swap_remove(index);
        for member in &planned.pdis {
            self.residences[member.number] = None;
        }
        planned.pdis.retain(|m| m.loaded.strong_count() > 0);
        Ok(planned.pdis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executable::PdiTable;
    use crate::rig::artifact;
    use aie_hal::ArchRegistry;

    fn npu() -> Arc<Npu> {
        let mut arch = (*ArchRegistry::builtin().get("aie2p").unwrap()).clone();
        arch.limits.pdis_per_context = 4;
        arch.limits.contexts = 2;
        let heap = arch.limits.device_heap_bytes;
        Arc::new(Npu::new(Arc::new(arch), heap))
    }

    fn load(npu: &Arc<Npu>, count: usize) -> Vec<Arc<LoadedPdi>> {
        let mut table = PdiTable::default();
        let artifacts = (0..count).map(|i| artifact(npu.arch(), &format!("{i} 1"), 1));
        artifacts.map(|a| table.load(npu, &a, "test").unwrap()).collect()
    }

    fn prepare(planner: &mut ContextPlanner, npu: &Npu, pdis: &[Arc<LoadedPdi>]) -> u64 {
        let before = npu.counts().contexts_created;
        planner.prepare(npu, &pdis.iter().collect::<Vec<_>>()).unwrap();
        npu.counts().contexts_created - before
    }

    fn context(planner: &ContextPlanner, pdi: &LoadedPdi) -> Option<ContextId> {
        planner.locate(pdi.number).map(|at| at.context)
    }

    #[test]
    fn a_context_with_room_takes_more_pdis() {
        let (npu, mut planner) = (npu(), ContextPlanner::default());
        let pdis = load(&npu, 4);
        assert_eq!(prepare(&mut planner, &npu, &pdis[..2]), 1);
        assert_eq!(prepare(&mut planner, &npu, &pdis[..2]), 0);
        assert_eq!(prepare(&mut planner, &npu, &pdis[1..]), 1);
        let all: Vec<_> = pdis.iter().map(|pdi| context(&planner, pdi)).collect();
        assert!(all[0].is_some() && all.iter().all(|c| *c == all[0]), "{all:?}");
    }

    #[test]
    fn the_least_recently_used_context_goes() {
        let (npu, mut planner) = (npu(), ContextPlanner::default());
        let pdis = load(&npu, 12);
        prepare(&mut planner, &npu, &pdis[..4]);
        prepare(&mut planner, &npu, &pdis[4..8]);
        prepare(&mut planner, &npu, &pdis[..1]);
        assert_eq!(prepare(&mut planner, &npu, &pdis[8..]), 1);
        assert!(context(&planner, &pdis[0]).is_some());
        assert_eq!(context(&planner, &pdis[4]), None);
        assert_eq!(prepare(&mut planner, &npu, &pdis[8..]), 0);
    }

    #[test]
    fn unloaded_pdis_make_room() {
        let (npu, mut planner) = (npu(), ContextPlanner::default());
        let mut pdis = load(&npu, 8);
        let rest = pdis.split_off(4);
        prepare(&mut planner, &npu, &pdis);
        pdis.truncate(1);
        prepare(&mut planner, &npu, &rest[..3]);
        assert_eq!(context(&planner, &pdis[0]), context(&planner, &rest[0]));
    }

    #[test]
    fn too_many_for_all_contexts_are_found_one_by_one() {
        let (npu, mut planner) = (npu(), ContextPlanner::default());
        let pdis = load(&npu, 11);
        prepare(&mut planner, &npu, &pdis);
        for pdi in pdis.iter().chain(&pdis) {
            let at = planner.require(&npu, pdi).unwrap();
            assert_eq!(planner.locate(pdi.number), Some(at));
        }
    }
}
