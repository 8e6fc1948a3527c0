//! Which PDI lives in which hardware context.
//!
//! An NPU rejects more than a fixed number of PDIs in a context and more than a fixed number of contexts, and the kernel driver
//! may reject a context earlier, because other processes hold some. The planner works inside these limits: a plan, the PDIs of a
//! command list, runs in one context that has all of them where they fit. A context that has room is created again with the
//! union; where none has, the plan gets one of its own, also for PDIs that others have too. The least recently used context goes
//! when there are too many, but not to bring together what is in several contexts already while all of them are in use: such
//! plans would take turns in replacing each other's. So a caller with any number of kernels sees costs, not errors.
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

/// Command lists behind which a context that none of them used is idle. Creating one costs as much as a dozen switches.
const IDLE: u64 = 32;

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

impl<C, M> Planned<C, M> {
    fn slot(&self, number: usize) -> Option<usize> {
        self.pdis.iter().position(|member| member.number == number)
    }

    /// Whether it has all of `plan`.
    fn is_whole(&self, plan: &[&Arc<LoadedPdi<M>>]) -> bool {
        plan.iter().all(|pdi| self.slot(pdi.number).is_some())
    }

    /// How many of its loaded PDIs are not of `plan`.
    fn others(&self, plan: &[&Arc<LoadedPdi<M>>]) -> usize {
        let is_other = |member: &&Member<M>| plan.iter().all(|pdi| pdi.number != member.number);
        self.pdis.iter().filter(|member| member.loaded.strong_count() > 0).filter(is_other).count()
    }
}

/// The contexts of one device.
pub struct ContextPlanner<H: ContextHost> {
    /// Distinct PDIs that one can hold, and how many there can be.
    capacity: usize,
    most: usize,
    contexts: Vec<Planned<H::Context, H::Memory>>,
    /// By PDI number: of the contexts that have it, the one that the plan prepared last uses.
    residences: Vec<Option<Residence<H::Context>>>,
    /// How many contexts there were when the host could not make one more, and in which round.
    rejected: Option<(usize, u64)>,
    /// The PDIs of the plan that ran last, when they are in several contexts, and since which round no other plan ran.
    apart: Option<(Vec<usize>, u64)>,
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
        Self { capacity, most, contexts: Vec::new(), residences: Vec::new(), rejected: None, apart: None, round: 0 }
    }

    /// Where the PDI with this number is, when it is in a context.
    pub fn locate(&self, number: usize) -> Option<Residence<H::Context>> {
        self.residences.get(number).copied().flatten()
    }

    /// The contexts that exist.
    pub fn contexts(&self) -> impl Iterator<Item = H::Context> {
        self.contexts.iter().map(|c| c.id)
    }

    /// Whether `pdis` are all located in one context, which then counts as used: what a list that runs again costs.
    pub fn continues<'p>(&mut self, pdis: impl Iterator<Item = &'p PdiOf<H>> + Clone) -> bool
    where
        H::Memory: 'p,
    {
        let mut contexts = pdis.clone().map(|pdi| self.locate(pdi.number).map(|at| at.context));
        let Some(first) = contexts.next() else { return true };
        if first.is_none() || contexts.any(|context| context != first) {
            return false;
        }
        self.round += 1;
        self.apart = None;
        pdis.for_each(|pdi| self.refresh(pdi));
        true
    }

    /// Whether `plan`, different PDIs, can run with the contexts that there are, as well as it can run now. They are located in
    /// one then where one has all of them.
    pub fn settle(&mut self, plan: &[&PdiOf<H>]) -> bool {
        self.round += 1;
        match self.next(plan) {
            Next::Run(context) => {
                self.locate_in(context, plan);
                self.apart = None;
            }
            Next::Stay if self.since(plan).is_some() => {}
            Next::Stay => self.apart = Some((plan.iter().map(|pdi| pdi.number).collect(), self.round)),
            Next::Extend(_) | Next::Create(_) | Next::Scatter => return false,
        }
        plan.iter().for_each(|pdi| self.refresh(pdi));
        true
    }

    /// Puts all of `plan`, different PDIs, into one context, or into several as far as they fit into the NPU at one time; the first
    /// ones win. The others are found with [`ContextPlanner::require`]. Each of `more`, plans that are expected, is put into a
    /// context that is created anyway, when it has room. This may destroy any context: nothing may be in flight.
    ///
    /// # Errors
    /// The host's, when not one context could be made for `plan`, or one could not be destroyed.
    pub fn prepare(&mut self, host: &H, plan: &[&PdiOf<H>], more: &[Vec<&PdiOf<H>>]) -> Result<(), H::Error> {
        if self.settle(plan) {
            return Ok(());
        }
        let whole = || plan.iter().map(|pdi| Arc::clone(pdi)).collect::<Vec<_>>();
        match self.next(plan) {
            Next::Extend(context) => {
                let mut pdis = self.retire(host, context)?;
                pdis.extend(
                    whole()
                        .into_iter()
                        .filter(|pdi| pdis.iter().all(|other| other.number != pdi.number))
                        .collect::<Vec<_>>(),
                );
                self.add(&mut pdis, more);
                return self.create_for(host, &pdis, Evict::Earlier).map(drop);
            }
            Next::Create(idle) => {
                if let Some(idle) = idle {
                    self.retire(host, idle)?;
                }
                let mut pdis = whole();
                self.add(&mut pdis, more);
                match self.create(host, &pdis) {
                    Err(error) if host.is_exhausted(&error) => {}
                    result => return result.map(drop),
                }
            }
            Next::Run(_) | Next::Stay | Next::Scatter => {}
        }
        self.scatter(host, plan, more)
    }

    /// Puts those of `plan` that are in no context into some.
    fn scatter(&mut self, host: &H, plan: &[&PdiOf<H>], more: &[Vec<&PdiOf<H>>]) -> Result<(), H::Error> {
        let mut missing: Vec<PdiOf<H>> = Vec::new();
        for pdi in plan {
            match self.locate(pdi.number) {
                Some(_) => self.refresh(pdi),
                None => missing.push(Arc::clone(pdi)),
            }
        }
        missing.truncate(self.capacity.saturating_mul(self.most));
        while !missing.is_empty() {
            if let Err(error) = self.place(host, &mut missing, more, Evict::Earlier) {
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
                self.refresh(pdi);
                Ok(at)
            }
            None => self.place(host, &mut vec![Arc::clone(pdi)], &[], Evict::Any),
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

    /// What becomes of a plan.
    fn next(&self, plan: &[&PdiOf<H>]) -> Next<H::Context> {
        let placed = plan.iter().all(|pdi| self.locate(pdi.number).is_some());
        let otherwise = if placed { Next::Stay } else { Next::Scatter };
        if plan.is_empty() || plan.len() > self.capacity {
            return otherwise;
        }
        // The context used last is the one that these PDIs will alternate with.
        let whole = self.contexts.iter().filter(|c| c.is_whole(plan)).max_by_key(|c| c.last_used);
        if let Some(whole) = whole {
            return Next::Run(whole.id);
        }
        let with_room = self.contexts.iter().filter(|c| c.others(plan) + plan.len() <= self.capacity);
        let shared = |c: &Planned<_, _>| plan.iter().filter(|pdi| c.slot(pdi.number).is_some()).count();
        if let Some(extended) = with_room.max_by_key(|c| (shared(c), c.last_used)) {
            return Next::Extend(extended.id);
        }
        let limit = match self.rejected {
            Some((contexts, round)) if self.round < round + IDLE => contexts,
            _ => self.most,
        };
        if self.contexts.len() < limit {
            return Next::Create(None);
        }
        // The only plan that runs may take any.
        let is_only = self.since(plan).is_some_and(|since| since + IDLE <= self.round);
        let idle = self.contexts.iter().filter(|c| is_only || c.last_used + IDLE <= self.round);
        let idle = idle.min_by_key(|c| (c.last_used, shared(c)));
        idle.map_or(otherwise, |idle| Next::Create(Some(idle.id)))
    }

    /// Since which round only this plan ran, in several contexts.
    fn since(&self, plan: &[&PdiOf<H>]) -> Option<u64> {
        let (numbers, since) = self.apart.as_ref()?;
        plan.iter().map(|pdi| &pdi.number).eq(numbers).then_some(*since)
    }

    /// Has the PDIs of a plan located in a context that has all of them.
    fn locate_in(&mut self, context: H::Context, plan: &[&PdiOf<H>]) {
        let Some(planned) = self.contexts.iter().find(|c| c.id == context) else { return };
        for pdi in plan {
            let at = planned.slot(pdi.number).map(|slot| Residence { context, slot });
            if let Some(residence) = self.residences.get_mut(pdi.number) {
                *residence = at.or(*residence);
            }
        }
    }

    /// Adds each of `more` to the PDIs of a context that is to be created, where it fits as a whole and no context has it.
    fn add(&self, pdis: &mut Vec<PdiOf<H>>, more: &[Vec<&PdiOf<H>>]) {
        for plan in more.iter().filter(|plan| self.contexts.iter().all(|c| !c.is_whole(plan))) {
            let is_new = |pdi: &&&PdiOf<H>| pdis.iter().all(|other| other.number != pdi.number);
            let new: Vec<_> = plan.iter().filter(is_new).map(|pdi| Arc::clone(pdi)).collect();
            if pdis.len() + new.len() <= self.capacity {
                pdis.extend(new);
            }
        }
    }

    /// Marks the context where the PDI is located as used, and the PDI in it as loaded.
    fn refresh(&mut self, pdi: &PdiOf<H>) {
        let (round, Some(at)) = (self.round, self.locate(pdi.number)) else { return };
        if let Some(planned) = self.contexts.iter_mut().find(|c| c.id == at.context) {
            planned.last_used = round;
            if let Some(member) = planned.pdis.get_mut(at.slot).filter(|m| m.loaded.strong_count() == 0) {
                member.loaded = Arc::downgrade(pdi);
            }
        }
    }

    /// Takes as many of `missing` from the front as one context has room for and creates that context; returns the residence
    /// of the first. `missing` is not empty. What is left of the room is for `more`.
    fn place(
        &mut self,
        host: &H,
        missing: &mut Vec<PdiOf<H>>,
        more: &[Vec<&PdiOf<H>>],
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
        self.add(&mut pdis, more);
        let context = self.create_for(host, &pdis, evict)?;
        Ok(Residence { context, slot })
    }

    /// Creates a context; others go as long as the host cannot make it.
    fn create_for(&mut self, host: &H, pdis: &[PdiOf<H>], evict: Evict) -> Result<H::Context, H::Error> {
        loop {
            match self.create(host, pdis) {
                Err(error) if host.is_exhausted(&error) => match self.oldest(evict) {
                    Some(oldest) => drop(self.retire(host, oldest)?),
                    None => return Err(error),
                },
                result => return result,
            }
        }
    }

    /// The least recently used context.
    fn oldest(&self, evict: Evict) -> Option<H::Context> {
        let may_go = |c: &&Planned<_, _>| evict == Evict::Any || c.last_used < self.round;
        self.contexts.iter().filter(may_go).min_by_key(|c| c.last_used).map(|c| c.id)
    }

    fn create(&mut self, host: &H, pdis: &[PdiOf<H>]) -> Result<H::Context, H::Error> {
        let id = host.create(pdis).inspect_err(|error| {
            if host.is_exhausted(error) {
                self.rejected = Some((self.contexts.len(), self.round));
            }
        })?;
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
        for number in planned.pdis.iter().map(|member| member.number) {
            if self.locate(number).is_some_and(|at| at.context == context) {
                let others = self.contexts.iter().filter_map(|c| Some((c, c.slot(number)?)));
                let other = others.max_by_key(|(c, _)| c.last_used);
                self.residences[number] = other.map(|(c, slot)| Residence { context: c.id, slot });
            }
        }
        host.destroy(context)?;
        Ok(planned.pdis.iter().filter_map(|member| member.loaded.upgrade()).collect())
    }
}

/// What becomes of a plan.
enum Next<C> {
    /// This context has all of it.
    Run(C),
    /// This one has room for what it lacks.
    Extend(C),
    /// It gets a context of its own, for which this one goes.
    Create(Option<C>),
    /// It is in several contexts, and stays there.
    Stay,
    /// Some of it is in no context, and none can be made for all of it.
    Scatter,
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
