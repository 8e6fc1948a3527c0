//! Which PDI lives in which hardware context.
//!
//! An NPU rejects more than a fixed number of PDIs in a context and more than a fixed number of contexts, and the kernel driver
//! may reject a context earlier, because other processes hold some. The planner works inside these limits: the PDIs of a
//! command list are put together into as few contexts as possible, a context that has room is created again with the union, and
//! the least recently used context goes when there are too many. So a caller with any number of kernels sees costs, not errors.
//!
//! The planner does the bookkeeping and calls a [`ContextHost`] for the rest. It does not outlive a context: the code that drops a
//! planner calls [`ContextPlanner::clear`] first, unless the device destroys its contexts on its own.

use crate::device::Limits;
use crate::loaded_pdi::LoadedPdi;
use std::fmt::{Debug, Display, Formatter};
use std::sync::{Arc, Weak};

/// Creates contexts of PDIs. A PDI is loaded as long as there is an [`Arc`] of it; the planner has none except during a
/// call, so the last one may be dropped inside the planner.
pub trait ContextHost {
    /// Memory that a PDI is loaded into.
    type Memory: Send + Sync;
    /// Names a context.
    type Context: Copy + Ord + Debug + Send;
    /// Why a context could not be made or destroyed.
    type Error: Display;
    /// Creates a context in which PDIs have the indices that they have in `pdis`. A host whose contexts need the PDIs' memory
    /// keeps it until it destroys the context: the planner does not keep PDIs loaded.
    ///
    /// # Errors
    /// The host's. Then there is no context.
    fn create(&self, pdis: &[Arc<LoadedPdi<Self::Memory>>]) -> Result<Self::Context, Self::Error>;
    /// Destroys a context. Whatever happens, the planner does not name it again.
    ///
    /// # Errors
    /// The host's.
    fn destroy(&self, context: Self::Context) -> Result<(), Self::Error>;
    /// Whether `create` may succeed when one of the planner's contexts is destroyed.
    fn is_exhausted(&self, error: &Self::Error) -> bool;
}

/// A PDI that is loaded for a host.
pub type PdiOf<H> = Arc<LoadedPdi<<H as ContextHost>::Memory>>;

/// Where a PDI is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residence<C> {
    /// The context.
    pub context: C,
    /// The PDI's index there.
    pub slot: usize,
}

/// A PDI in a context. It may have been unloaded since.
struct Member<M> {
    number: usize,
    loaded: Weak<LoadedPdi<M>>,
}

struct Planned<C, M> {
    id: C,
    /// By slot.
    pdis: Vec<Member<M>>,
    last_used: u64,
}

/// The contexts of one device.
pub struct ContextPlanner<H: ContextHost> {
    /// Distinct PDIs that one can hold, and how many there can be.
    capacity: usize,
    most: usize,
    contexts: Vec<Planned<H::Context, H::Memory>>,
    /// By PDI number.
    residences: Vec<Option<Residence<H::Context>>>,
    /// Rounds so far: a context that was used in this one has its `last_used`.
    round: u64,
}

impl<H: ContextHost> Debug for ContextPlanner<H> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let contexts = self.contexts.iter().map(|c| (c.id, c.pdis.iter().map(|m| m.number).collect::<Vec<_>>()));
        f.debug_struct("ContextPlanner").field("contexts", &contexts.collect::<Vec<_>>()).finish()
    }
}

impl<H: ContextHost> ContextPlanner<H> {
    /// A planner that keeps within [`Limits::pdis_per_context`] and [`Limits::contexts`].
    pub fn new(limits: &Limits) -> Self {
        let (capacity, most) = (limits.pdis_per_context.max(1), limits.contexts.max(1));
        Self { capacity, most, contexts: Vec::new(), residences: Vec::new(), round: 0 }
    }

    /// Where the PDI with this number is, when it is in a context.
    pub fn locate(&self, number: usize) -> Option<Residence<H::Context>> {
        self.residences.get(number).copied().flatten()
    }

    /// The contexts that exist.
    pub fn contexts(&self) -> impl Iterator<Item = H::Context> {
        self.contexts.iter().map(|c| c.id)
    }

    /// How many more PDIs fit into each of the contexts, or into one that does not exist yet.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.contexts.iter().map(|c| c.pdis.len()).max().unwrap_or(0))
    }

    /// Puts all of `wanted` into contexts, as far as they fit into the NPU at one time; the first ones win. The others are
    /// found with [`ContextPlanner::require`].
    ///
    /// # Errors
    /// The host's, when not one context could be made for `wanted`, or one could not be destroyed.
    pub fn prepare(&mut self, host: &H, wanted: &[&PdiOf<H>]) -> Result<(), H::Error> {
        self.round += 1;
        let mut missing: Vec<PdiOf<H>> = Vec::new();
        for pdi in wanted {
            match self.locate(pdi.number) {
                Some(at) => self.refresh(at, pdi),
                None if missing.iter().all(|m| m.number != pdi.number) => missing.push(Arc::clone(pdi)),
                None => {}
            }
        }
        missing.truncate(self.capacity.saturating_mul(self.most));
        while !missing.is_empty() {
            if let Err(error) = self.place(host, &mut missing, Evict::Earlier) {
                // The contexts of this round have what fits.
                let fits = host.is_exhausted(&error) && self.contexts.iter().any(|c| c.last_used == self.round);
                return if fits { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// The residence of one PDI, created when it has none. This may destroy any other context: nothing may be in flight.
    ///
    /// # Errors
    /// The host's.
    pub fn require(&mut self, host: &H, pdi: &PdiOf<H>) -> Result<Residence<H::Context>, H::Error> {
        self.round += 1;
        match self.locate(pdi.number) {
            Some(at) => {
                self.refresh(at, pdi);
                Ok(at)
            }
            None => self.place(host, &mut vec![Arc::clone(pdi)], Evict::Any),
        }
    }

    /// Destroys a context that cannot be trusted any more. Its PDIs get another one at their next use. A context that is not
    /// the planner's is ignored.
    ///
    /// # Errors
    /// The host's; the context is forgotten anyway.
    pub fn discard(&mut self, host: &H, context: H::Context) -> Result<(), H::Error> {
        self.retire(host, context).map(drop)
    }

    /// Destroys the contexts that hold PDIs which are not loaded any more, so that a host can give their memory back. The
    /// other PDIs of these contexts get another one at their next use.
    ///
    /// # Errors
    /// The host's first; all such contexts are forgotten anyway.
    pub fn discard_unloaded(&mut self, host: &H) -> Result<(), H::Error> {
        let stale = self.contexts.iter().filter(|c| c.pdis.iter().any(|m| m.loaded.strong_count() == 0));
        self.discard_all(host, stale.map(|c| c.id).collect())
    }

    /// Destroys all contexts.
    ///
    /// # Errors
    /// The host's first; all contexts are forgotten anyway.
    pub fn clear(&mut self, host: &H) -> Result<(), H::Error> {
        self.discard_all(host, self.contexts().collect())
    }

    fn discard_all(&mut self, host: &H, contexts: Vec<H::Context>) -> Result<(), H::Error> {
        contexts.into_iter().map(|context| self.discard(host, context)).fold(Ok(()), Result::and)
    }

    /// Marks the context as used, and the PDI in it as loaded.
    fn refresh(&mut self, at: Residence<H::Context>, pdi: &PdiOf<H>) {
        let round = self.round;
        if let Some(planned) = self.contexts.iter_mut().find(|c| c.id == at.context) {
            planned.last_used = round;
            if let Some(member) = planned.pdis.get_mut(at.slot).filter(|m| m.loaded.strong_count() == 0) {
                member.loaded = Arc::downgrade(pdi);
            }
        }
    }

    /// Takes as many of `missing` from the front as one context has room for and creates that context; returns the residence
    /// of the first. `missing` is not empty.
    fn place(
        &mut self,
        host: &H,
        missing: &mut Vec<PdiOf<H>>,
        evict: Evict,
    ) -> Result<Residence<H::Context>, H::Error> {
        let capacity = self.capacity;
        let live = |c: &Planned<_, H::Memory>| c.pdis.iter().filter(|m| m.loaded.strong_count() > 0).count();
        let room = |c: &&Planned<_, _>| live(c) + missing.len() <= capacity;
        // The context used last is the one these PDIs will alternate with.
        let with_room = self.contexts.iter().filter(room).max_by_key(|c| c.last_used).map(|c| c.id);
        let mut pdis = match with_room {
            Some(context) => self.retire(host, context)?,
            None => {
                if self.contexts.len() >= self.most
                    && let Some(oldest) = self.oldest(Evict::Any)
                {
                    self.retire(host, oldest)?;
                }
                Vec::new()
            }
        };
        let slot = pdis.len();
        pdis.extend(missing.drain(..(capacity - slot).min(missing.len())));
        let context = loop {
            match self.create(host, &pdis) {
                Ok(context) => break context,
                Err(error) if host.is_exhausted(&error) => match self.oldest(evict) {
                    Some(oldest) => drop(self.retire(host, oldest)?),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        };
        Ok(Residence { context, slot })
    }

    /// The least recently used context.
    fn oldest(&self, evict: Evict) -> Option<H::Context> {
        let may_go = |c: &&Planned<_, _>| evict == Evict::Any || c.last_used < self.round;
        self.contexts.iter().filter(may_go).min_by_key(|c| c.last_used).map(|c| c.id)
    }

    fn create(&mut self, host: &H, pdis: &[PdiOf<H>]) -> Result<H::Context, H::Error> {
        let id = host.create(pdis)?;
        let mut members = Vec::with_capacity(pdis.len());
        for (slot, pdi) in pdis.iter().enumerate() {
            let number = pdi.number;
            if self.residences.len() <= number {
                self.residences.resize(number + 1, None);
            }
            self.residences[number] = Some(Residence { context: id, slot });
            members.push(Member { number, loaded: Arc::downgrade(pdi) });
        }
        self.contexts.push(Planned { id, pdis: members, last_used: self.round });
        Ok(id)
    }

    /// Destroys a context; returns the PDIs that were in it and are still loaded.
    fn retire(&mut self, host: &H, context: H::Context) -> Result<Vec<PdiOf<H>>, H::Error> {
        let Some(index) = self.contexts.iter().position(|c| c.id == context) else { return Ok(Vec::new()) };
        let planned = self.contexts.swap_remove(index);
        for member in &planned.pdis {
            self.residences[member.number] = None;
        }
        host.destroy(context)?;
        Ok(planned.pdis.iter().filter_map(|member| member.loaded.upgrade()).collect())
    }
}

/// Which contexts may go to make room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evict {
    /// Those that were not used in this round.
    Earlier,
    Any,
}

#[cfg(test)]
mod tests;
