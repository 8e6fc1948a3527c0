use super::*;
use crate::arch::ArchRegistry;
use crate::artifact::Digest;
use std::cell::{Cell, RefCell};

type Pdi = LoadedPdi<()>;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum Rejection {
    #[error("exhausted")]
    Exhausted,
    #[error("broken")]
    Broken,
}

/// Four PDIs in each of two contexts, less what others hold.
#[derive(Default)]
struct Host {
    live: RefCell<Vec<(u32, Vec<usize>)>>,
    created: Cell<u32>,
    others: Cell<usize>,
    broken: Cell<bool>,
}

impl ContextHost for Host {
    type Memory = ();
    type Context = u32;
    type Error = Rejection;

    fn create(&self, pdis: &[Arc<Pdi>]) -> Result<u32, Rejection> {
        assert!((1..=4).contains(&pdis.len()), "{pdis:?}");
        if self.broken.get() {
            return Err(Rejection::Broken);
        }
        if self.live.borrow().len() + self.others.get() >= 2 {
            return Err(Rejection::Exhausted);
        }
        self.created.set(self.created.get() + 1);
        self.live.borrow_mut().push((self.created.get(), pdis.iter().map(|pdi| pdi.number).collect()));
        Ok(self.created.get())
    }

    fn destroy(&self, context: u32) -> Result<(), Rejection> {
        let mut live = self.live.borrow_mut();
        let index = live.iter().position(|(id, _)| *id == context).expect("a context that exists");
        live.remove(index);
        if self.broken.get() { Err(Rejection::Broken) } else { Ok(()) }
    }

    fn is_exhausted(&self, error: &Rejection) -> bool {
        *error == Rejection::Exhausted
    }
}

struct Rig {
    host: Host,
    planner: ContextPlanner<Host>,
}

impl Default for Rig {
    fn default() -> Self {
        let limits = ArchRegistry::builtin().get("aie2p").unwrap().limits;
        let planner = ContextPlanner::new(&Limits { pdis_per_context: 4, contexts: 2, ..limits });
        Self { host: Host::default(), planner }
    }
}

impl Rig {
    /// Prepares; returns the number of contexts that were created.
    fn prepare(&mut self, pdis: &[Arc<Pdi>]) -> u32 {
        let before = self.host.created.get();
        self.planner.prepare(&self.host, &pdis.iter().collect::<Vec<_>>(), &[]).unwrap();
        self.check(pdis);
        self.host.created.get() - before
    }

    fn context(&self, pdi: &Pdi) -> Option<u32> {
        self.planner.locate(pdi.number).map(|at| at.context)
    }

    /// What the planner says is what the host has.
    fn check(&self, pdis: &[Arc<Pdi>]) {
        let live = self.host.live.borrow();
        assert_eq!(self.planner.contexts().count(), live.len());
        for pdi in pdis {
            if let Some(at) = self.planner.locate(pdi.number) {
                let (_, slots) = live.iter().find(|(id, _)| *id == at.context).unwrap();
                assert_eq!(slots[at.slot], pdi.number);
            }
        }
    }
}

fn pdis(count: usize) -> Vec<Arc<Pdi>> {
    let pdi = |number| Pdi { number, digest: Digest::of(&[]), bytes: 0, memory: () };
    (0..count).map(|number| Arc::new(pdi(number))).collect()
}

#[test]
fn a_context_with_room_takes_more_pdis() {
    let (mut rig, pdis) = (Rig::default(), pdis(4));
    assert_eq!(rig.prepare(&pdis[..2]), 1);
    assert_eq!(rig.prepare(&pdis[..2]), 0);
    assert_eq!(rig.prepare(&pdis[1..]), 1);
    let all: Vec<_> = pdis.iter().map(|pdi| rig.context(pdi)).collect();
    assert_eq!(all, [Some(2); 4]);
}

#[test]
fn the_least_recently_used_context_goes() {
    let (mut rig, pdis) = (Rig::default(), pdis(12));
    rig.prepare(&pdis[..4]);
    rig.prepare(&pdis[4..8]);
    rig.prepare(&pdis[..1]);
    assert_eq!(rig.prepare(&pdis[8..]), 1);
    assert!(rig.context(&pdis[0]).is_some());
    assert_eq!(rig.context(&pdis[4]), None);
    assert_eq!(rig.prepare(&pdis[8..]), 0);
}

#[test]
fn a_context_that_is_used_again_stays() {
    let (mut rig, pdis) = (Rig::default(), pdis(12));
    rig.prepare(&pdis[..4]);
    rig.prepare(&pdis[4..8]);
    rig.prepare(&pdis[4..8]);
    let first = rig.context(&pdis[0]).unwrap();
    rig.prepare(&[]);
    rig.planner.require(&rig.host, &pdis[0]).unwrap();
    rig.prepare(&pdis[8..]);
    assert_eq!((rig.context(&pdis[0]), rig.context(&pdis[4])), (Some(first), None));
}

#[test]
fn unloaded_pdis_make_room() {
    let (mut rig, mut pdis) = (Rig::default(), pdis(8));
    let rest = pdis.split_off(4);
    rig.prepare(&pdis);
    pdis.truncate(1);
    rig.prepare(&rest[..3]);
    assert_eq!(rig.context(&pdis[0]), rig.context(&rest[0]));
    assert_eq!(rig.host.live.borrow()[0].1, [0, 4, 5, 6]);
}

#[test]
fn a_pdi_that_is_loaded_again_is_still_there() {
    let (mut rig, mut first) = (Rig::default(), pdis(2));
    rig.prepare(&first);
    first.clear();
    let again = pdis(5);
    assert_eq!(rig.prepare(&again[..2]), 0);
    // They count as loaded: the union has all.
    assert_eq!(rig.prepare(&again[2..4]), 1);
    assert_eq!(rig.host.live.borrow()[0].1, [0, 1, 2, 3]);
    let at = rig.planner.require(&rig.host, &again[1]).unwrap();
    assert_eq!(at, Residence { context: 2, slot: 1 });
}

#[test]
fn too_many_for_all_contexts_are_found_one_by_one() {
    let (mut rig, pdis) = (Rig::default(), pdis(11));
    assert_eq!(rig.prepare(&pdis), 2);
    for pdi in pdis.iter().chain(&pdis) {
        let at = rig.planner.require(&rig.host, pdi).unwrap();
        assert_eq!(rig.planner.locate(pdi.number), Some(at));
        rig.check(&pdis);
    }
}

#[test]
fn contexts_that_others_hold_are_done_without() {
    let (mut rig, pdis) = (Rig::default(), pdis(11));
    rig.prepare(&pdis[..4]);
    rig.host.others.set(1);
    assert_eq!(rig.prepare(&pdis[4..8]), 1);
    assert_eq!((rig.context(&pdis[0]), rig.context(&pdis[4])), (None, Some(2)));
    // What was made in this round does not go for the rest of the round.
    assert_eq!(rig.prepare(&pdis), 0);
    for pdi in &pdis {
        rig.planner.require(&rig.host, pdi).unwrap();
        rig.check(&pdis);
    }
}

#[test]
fn a_list_that_needs_more_than_is_left_is_prepared_in_part() {
    let (mut rig, pdis) = (Rig::default(), pdis(8));
    rig.host.others.set(1);
    assert_eq!(rig.prepare(&pdis), 1);
    assert!(rig.context(&pdis[3]).is_some() && rig.context(&pdis[4]).is_none());
}

#[test]
fn without_a_single_context_the_hosts_error_is_reported() {
    let (mut rig, pdis) = (Rig::default(), pdis(5));
    rig.host.others.set(2);
    assert_eq!(rig.planner.prepare(&rig.host, &[&pdis[0]], &[]), Err(Rejection::Exhausted));
    assert_eq!(rig.planner.require(&rig.host, &pdis[0]), Err(Rejection::Exhausted));
    rig.host.others.set(0);
    rig.prepare(&pdis[..4]);
    // Now there is one to destroy, and it does not help.
    rig.host.others.set(2);
    assert_eq!(rig.planner.require(&rig.host, &pdis[4]), Err(Rejection::Exhausted));
    assert_eq!(rig.planner.contexts().count(), 0);
    rig.check(&pdis);
}

#[test]
fn other_errors_of_the_host_retire_nothing() {
    let (mut rig, pdis) = (Rig::default(), pdis(8));
    rig.prepare(&pdis[..4]);
    rig.host.broken.set(true);
    assert_eq!(rig.planner.require(&rig.host, &pdis[4]), Err(Rejection::Broken));
    assert!(rig.context(&pdis[0]).is_some());
    assert_eq!(rig.planner.clear(&rig.host), Err(Rejection::Broken));
    assert_eq!((rig.planner.contexts().count(), rig.context(&pdis[0])), (0, None));
}

#[test]
fn a_discarded_context_is_made_anew() {
    let (mut rig, pdis) = (Rig::default(), pdis(2));
    rig.prepare(&pdis);
    let broken = rig.context(&pdis[0]).unwrap();
    rig.planner.discard(&rig.host, broken).unwrap();
    rig.planner.discard(&rig.host, broken).unwrap();
    assert_eq!((rig.context(&pdis[0]), rig.context(&pdis[1])), (None, None));
    assert_eq!(rig.prepare(&pdis), 1);
    assert_ne!(rig.context(&pdis[0]), Some(broken));
}

#[test]
fn contexts_with_unloaded_pdis_go_when_asked() {
    let (mut rig, mut pdis) = (Rig::default(), pdis(8));
    rig.prepare(&pdis[..4]);
    rig.prepare(&pdis[4..]);
    pdis.remove(2);
    rig.planner.discard_unloaded(&rig.host).unwrap();
    assert_eq!((rig.context(&pdis[0]), rig.context(&pdis[6])), (None, Some(2)));
    rig.planner.clear(&rig.host).unwrap();
    rig.check(&pdis);
    assert_eq!(rig.planner.contexts().count(), 0);
}

/// The one context where all of them are located.
fn together(rig: &Rig, pdis: &[Arc<Pdi>]) -> Option<u32> {
    let first = rig.context(&pdis[0]);
    pdis.iter().all(|pdi| rig.context(pdi) == first).then_some(first).flatten()
}

#[test]
fn plans_that_share_pdis_have_a_context_each() {
    let (mut rig, pdis) = (Rig::default(), pdis(5));
    let (prompt, token) = (&pdis[..3], &pdis[2..]);
    assert_eq!((rig.prepare(prompt), together(&rig, prompt)), (1, Some(1)));
    assert_eq!((rig.prepare(token), together(&rig, token)), (1, Some(2)));
    for _ in 0..3 {
        assert_eq!((rig.prepare(prompt), together(&rig, prompt)), (0, Some(1)));
        assert_eq!((rig.prepare(token), together(&rig, token)), (0, Some(2)));
        assert!(rig.planner.continues(token.iter()) && !rig.planner.continues(prompt.iter()));
    }
    // A shared PDI is found in the other context when its own is gone.
    rig.planner.discard(&rig.host, 2).unwrap();
    assert_eq!((rig.context(&pdis[2]), rig.context(&pdis[3])), (Some(1), None));
    rig.check(&pdis);
}

#[test]
fn a_plan_in_two_contexts_is_put_together_where_one_has_room() {
    let (mut rig, pdis) = (Rig::default(), pdis(7));
    rig.prepare(&pdis[..4]);
    rig.prepare(&pdis[4..]);
    let plan = &pdis[3..6];
    assert!(!rig.planner.settle(&plan.iter().collect::<Vec<_>>()));
    assert_eq!((rig.prepare(plan), together(&rig, plan)), (1, Some(3)));
    assert_eq!(rig.host.live.borrow()[1].1, [4, 5, 6, 3]);
    assert_eq!((rig.prepare(&pdis[..4]), together(&rig, &pdis[..4])), (0, Some(1)));
}

/// Plans that cannot all have a context of their own settle instead of replacing each other's.
#[test]
fn plans_that_take_turns_settle() {
    let (mut rig, pdis) = (Rig::default(), pdis(7));
    let plan = |of: [usize; 3]| of.map(|number| Arc::clone(&pdis[number]));
    let plans = [plan([0, 1, 2]), plan([0, 3, 4]), plan([0, 5, 6])];
    for _ in 0..3 {
        for plan in &plans {
            rig.prepare(plan);
        }
    }
    let created: u32 = (0..100).map(|turn| rig.prepare(&plans[turn % 3])).sum();
    assert_eq!(created, 0);
    // When the others are not used any more, the one that is gets a context.
    for plan in &plans {
        let created: u32 = (0..100).map(|_| rig.prepare(plan)).sum();
        assert!(created <= 1 && together(&rig, plan).is_some(), "{created} {:?}", rig.planner);
    }
}

/// A host that makes no context for a plan in two is not asked each time.
#[test]
fn a_rejected_context_is_not_tried_for_each_list() {
    let (mut rig, pdis) = (Rig::default(), pdis(8));
    rig.planner.most = 3;
    rig.prepare(&pdis[..4]);
    rig.prepare(&pdis[4..]);
    let plan: Vec<_> = pdis[3..5].iter().collect();
    assert!(!rig.planner.settle(&plan));
    assert_eq!(rig.prepare(&pdis[3..5]), 0);
    let mut tried = 0;
    for _ in 0..10 {
        tried += u32::from(!rig.planner.settle(&plan));
    }
    assert_eq!((tried, rig.planner.contexts().count()), (0, 2));
}

#[test]
fn expected_plans_come_along_where_they_fit() {
    let (mut rig, pdis) = (Rig::default(), pdis(8));
    let more = [vec![&pdis[2], &pdis[3], &pdis[4]], vec![&pdis[5]], vec![&pdis[6], &pdis[0]], vec![&pdis[7]]];
    rig.planner.prepare(&rig.host, &[&pdis[0], &pdis[1]], &more).unwrap();
    assert_eq!(rig.host.live.borrow()[0].1, [0, 1, 5, 6]);
}
