//! Hardware contexts of the simulated NPU, as the context planner makes them: over all columns, configured at once.

use crate::memory::HeapAllocation;
use crate::npu::{ContextId, ContextPdi, Rejection, SimulatedNpu};
use aie_hal::context_planner::ContextHost;
use aie_hal::loaded_pdi::LoadedPdi;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct NpuContexts(pub(crate) Arc<SimulatedNpu>);

impl ContextHost for NpuContexts {
    type Memory = HeapAllocation;
    type Context = ContextId;
    type Error = Rejection;

    fn create(&self, pdis: &[Arc<LoadedPdi<HeapAllocation>>]) -> Result<ContextId, Rejection> {
        let id = self.0.create_context(self.0.arch().array.columns)?;
        let of = |pdi: &Arc<LoadedPdi<HeapAllocation>>| ContextPdi {
            digest: pdi.digest,
            descriptors: pdi.memory.descriptors,
        };
        match self.0.configure_context(id, &pdis.iter().map(of).collect::<Vec<_>>()) {
            Ok(()) => Ok(id),
            Err(rejection) => {
                self.0.destroy_context(id)?;
                Err(rejection)
            }
        }
    }

    fn destroy(&self, context: ContextId) -> Result<(), Rejection> {
        self.0.destroy_context(context)
    }

    fn is_exhausted(&self, rejection: &Rejection) -> bool {
        matches!(rejection, Rejection::Limit { what: "contexts", .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_conformance::kernels::TestKernel;
    use aie_hal::ArchRegistry;
    use aie_hal::context_planner::ContextPlanner;
    use aie_hal::loaded_pdi::PdiTable;

    fn host() -> NpuContexts {
        let mut arch = (*ArchRegistry::builtin().get("aie2p").unwrap()).clone();
        arch.limits.pdis_per_context = 4;
        arch.limits.contexts = 2;
        let heap = arch.limits.device_heap_bytes;
        NpuContexts(Arc::new(SimulatedNpu::new(Arc::new(arch), heap)))
    }

    fn load(npu: &Arc<SimulatedNpu>, count: u32) -> Vec<Arc<LoadedPdi<HeapAllocation>>> {
        let mut table = PdiTable::default();
        let artifacts = (0..count).map(|i| TestKernel::Copy(i).artifact(npu.arch()));
        artifacts
            .map(|a| table.load(&a, |pdi| Ok(HeapAllocation::new(npu, pdi.len(), 4096).unwrap())).unwrap())
            .collect()
    }

    /// Contexts of other programs leave fewer for the planner; it must never see the rejection.
    #[test]
    fn the_planner_does_with_the_contexts_that_are_left() {
        let host = host();
        let mut planner = ContextPlanner::new(host.0.limits());
        let pdis = load(&host.0, 11);
        let other = host.0.create_context(1).unwrap();
        planner.prepare(&host, &pdis.iter().collect::<Vec<_>>(), &[]).unwrap();
        for pdi in pdis.iter().chain(&pdis) {
            let at = planner.require(&host, pdi).unwrap();
            assert_eq!(planner.locate(pdi.number), Some(at));
            assert_eq!(planner.contexts().count(), 1);
        }
        host.0.destroy_context(other).unwrap();
        planner.clear(&host).unwrap();
        // All are back: the limit can be used up again.
        assert!((0..2).all(|_| host.0.create_context(8).is_ok()));
    }

    #[test]
    fn a_context_that_cannot_be_configured_does_not_stay() {
        let host = host();
        let rejection = host.create(&load(&host.0, 5)).unwrap_err();
        assert_eq!(rejection.to_string(), "PDIs per context: 5 requested, the limit is 4");
        assert!((0..2).all(|_| host.0.create_context(8).is_ok()));
    }

    #[test]
    fn planned_slots_are_the_ones_of_the_npu() {
        let host = host();
        let mut planner = ContextPlanner::new(host.0.limits());
        let pdis = load(&host.0, 3);
        for pdi in &pdis {
            planner.require(&host, pdi).unwrap();
        }
        let slots: Vec<_> = pdis.iter().map(|pdi| planner.locate(pdi.number).unwrap().slot).collect();
        assert_eq!(slots, [0, 1, 2]);
        assert_eq!(host.0.counts().contexts_created, 3);
    }
}
