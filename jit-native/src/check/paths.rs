//! All paths through a program, bundle by bundle, with what is on its way at each point.
//!
//! A *point* is a bundle together with everything that decides where control goes from it: the branch whose delay slots it is
//! in, the zero-overhead loop that is set, the place of the call that is open. Points are found by going along paths; each has a
//! [`State`], which grows until nothing new reaches any point.

use super::code::{Branch, BundleId, Code, DELAY_SLOTS, Lock, MemoryAccess, Target};
use super::finding::{Finding, Problem};
use super::hash::FastMap;
use super::history::{Histories, History, Read, SetId, Sighting, Source, Write};
use super::intent::Intent;
use aie_isa::Register;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// The most points that are followed; programs of 16 KB have some thousands.
const MOST_POINTS: usize = 100_000;
/// The most histories of one register at one point.
const MOST_HISTORIES: usize = 2_000;
/// Bundles from the setting of a loop register to the last bundle of the loop (LLVM's rule).
pub const LOOP_DISTANCE: u8 = 7;
/// The cycle in which a lock is taken or given, and the one in which the core has certainly gone on after waiting for it
/// (LLVM's model).
const LOCK_USED: u8 = 2;
const LOCK_DONE: u8 = 8;

/// A branch that has been taken, in its delay slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Taken {
    left: u8,
    target: u32,
    /// The call that is open once it has arrived.
    call: u32,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Point {
    bundle: BundleId,
    taken: Option<Taken>,
    loop_start: Option<u32>,
    loop_end: Option<u32>,
    /// The call that is open, by its number; 0 if there is none.
    call: u32,
}

/// A place that calls, which tells apart what it calls from the same code called from elsewhere.
#[derive(Debug)]
struct Call {
    /// Where it returns to.
    back: u32,
    /// The calls within which it has been made.
    within: BTreeSet<u32>,
}

/// Something that is held or accessed in a cycle to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    unit: u16,
    /// Cycles from now.
    left: u8,
    weak: bool,
    doubtful: bool,
    bundle: BundleId,
    slot: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    left: u8,
    write: bool,
    bundle: BundleId,
}

/// What can be the case when a path is at a point.
#[derive(Clone, Debug)]
struct State {
    /// For each register without parts.
    registers: Vec<SetId>,
    held: Vec<Held>,
    accesses: Vec<InFlight>,
    /// Acquires, and how many bundles ago they were.
    acquires: Vec<(u8, BundleId)>,
    /// Bundles since `ls`, `le` and `lc` were set.
    loop_age: [u8; 3],
}

/// Two instructions that need a unit in the same cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clash {
    pub unit: u16,
    pub cycle: u8,
    pub certain: bool,
    pub bundle: BundleId,
    pub other: BundleId,
}

/// What a bundle writes and reads, register by register.
type Actions = BTreeMap<u16, (Vec<Write>, Vec<Read>)>;

/// What was found along all paths.
#[derive(Debug)]
pub struct Paths<'p> {
    pub code: Code<'p>,
    intent: Option<&'p Intent>,
    points: Vec<Point>,
    point_ids: FastMap<Point, usize>,
    states: Vec<State>,
    /// The worklists of this round and of the next.
    waiting: BTreeSet<usize>,
    later: BTreeSet<usize>,
    /// The point that was gone on from last.
    last: usize,
    /// The first is no call: what the program begins with.
    calls: Vec<Call>,
    histories: Histories,
    steps: FastMap<(SetId, u16, BundleId), SetId>,
    /// By bundle; it issues at many points, and again whenever something new reaches one of them.
    actions: FastMap<BundleId, Rc<Actions>>,
    /// Registers without parts get a place in [`State::registers`].
    leaves: Vec<Register>,
    leaf_of: HashMap<Register, u16>,
    /// Targets of branches through registers.
    pub resolved: BTreeMap<u32, BTreeSet<u32>>,
    pub sightings: HashSet<Sighting>,
    pub collisions: BTreeSet<(u16, Source, Source)>,
    pub clashes: BTreeSet<Clash>,
    findings: BTreeMap<(u32, String), Finding>,
}

impl<'p> Paths<'p> {
    /// Follows all paths from the entries of a program.
    pub fn of(code: Code<'p>, intent: Option<&'p Intent>) -> Self {
        let isa = code.isa();
        let mut paths = Self {
            intent,
            points: Vec::new(),
            point_ids: FastMap::default(),
            states: Vec::new(),
            waiting: BTreeSet::new(),
            later: BTreeSet::new(),
            last: 0,
            calls: vec![Call { back: 0, within: BTreeSet::new() }],
            histories: Histories::default(),
            steps: FastMap::default(),
            actions: FastMap::default(),
            leaves: Vec::new(),
            leaf_of: HashMap::new(),
            resolved: code.program.targets.iter().map(|(at, to)| (*at, to.iter().copied().collect())).collect(),
            sightings: HashSet::new(),
            collisions: BTreeSet::new(),
            clashes: BTreeSet::new(),
            findings: BTreeMap::new(),
            code,
        };
        for info in isa.registers() {
            for leaf in &info.leaves {
                if !paths.leaf_of.contains_key(leaf) {
                    paths.leaf_of.insert(*leaf, paths.leaves.len() as u16);
                    paths.leaves.push(*leaf);
                }
            }
        }
        let (nothing, reset) = (paths.histories.quiet(Source::Nothing), paths.histories.quiet(Source::Reset));
        let registers =
            paths.leaves.iter().map(|leaf| if is_general(isa.register(*leaf).name) { nothing } else { reset });
        let state = State {
            registers: registers.collect(),
            held: Vec::new(),
            accesses: Vec::new(),
            acquires: Vec::new(),
            loop_age: [u8::MAX; 3],
        };
        for entry in paths.code.program.entries.clone() {
            match paths.code.bundle_at(entry) {
                Ok(bundle) => {
                    let point = Point { bundle, taken: None, loop_start: None, loop_end: None, call: 0 };
                    paths.reach(point, &state);
                }
                Err(problem) => paths.report_at(entry, String::new(), problem),
            }
        }
        paths.follow();
        paths
    }

    /// Goes on until nothing new reaches any point: in rounds, so that what all ways back to a loop bring is taken together.
    fn follow(&mut self) {
        loop {
            while let Some(point) = self.waiting.pop_first() {
                self.last = point;
                self.step(point);
            }
            if self.later.is_empty() {
                break;
            }
            std::mem::swap(&mut self.waiting, &mut self.later);
        }
    }

    fn wait(&mut self, point: usize) {
        if point > self.last {
            self.waiting.insert(point)
        } else {
            self.later.insert(point)
        };
    }

    /// Follows a branch through a register to a further target. False if it was known.
    pub fn resolve(&mut self, branch: u32, target: u32) -> bool {
        let new = self.resolved.entry(branch).or_default().insert(target);
        if new {
            let code = &self.code;
            let at_branch = |point: &Point| code.bundles[point.bundle as usize].address == branch;
            let points = self.points.iter().enumerate().filter(|(_, point)| at_branch(point)).map(|(index, _)| index);
            self.later.extend(points);
            self.follow();
        }
        new
    }

    pub fn leaf(&self, leaf: u16) -> Register {
        self.leaves[usize::from(leaf)]
    }

    pub fn leaf_name(&self, leaf: u16) -> &'static str {
        self.code.isa().register(self.leaf(leaf)).name
    }

    /// Adds a finding about a bundle.
    pub fn report(&mut self, bundle: BundleId, problem: Problem) {
        let (address, text) = (self.code.bundles[bundle as usize].address, self.code.text(bundle));
        self.report_at(address, text, problem);
    }

    /// Adds a finding about an address.
    pub fn report_at(&mut self, address: u32, bundle: String, problem: Problem) {
        let finding = Finding { address, bundle, problem };
        self.findings.entry((address, finding.problem.to_string())).or_insert(finding);
    }

    pub fn into_findings(self) -> Vec<Finding> {
        self.findings.into_values().collect()
    }

    fn reach(&mut self, point: Point, state: &State) {
        let Some(id) = self.point_ids.get(&point).copied() else {
            if self.points.len() >= MOST_POINTS {
                return self.report(point.bundle, Problem::TooMany { of: "points of paths", limit: MOST_POINTS });
            }
            self.point_ids.insert(point, self.points.len());
            self.wait(self.points.len());
            self.points.push(point);
            return self.states.push(state.clone());
        };
        let (known, mut changed) = (&mut self.states[id], false);
        for (known, new) in known.registers.iter_mut().zip(&state.registers) {
            if known != new {
                let both = self.histories.union(*known, *new);
                changed |= both != *known;
                *known = both;
            }
        }
        changed |= merge(&mut known.held, &state.held);
        changed |= merge(&mut known.accesses, &state.accesses);
        changed |= merge(&mut known.acquires, &state.acquires);
        for (known, new) in known.loop_age.iter_mut().zip(state.loop_age) {
            changed |= new < *known;
            *known = new.min(*known);
        }
        if changed {
            self.wait(id);
        }
    }

    fn step(&mut self, id: usize) {
        let (point, mut state) = (self.points[id], self.states[id].clone());
        self.issue(point.bundle, &mut state);
        let placed = &self.code.bundles[point.bundle as usize];
        let mut point = point;
        for (place, set) in [&mut point.loop_start, &mut point.loop_end].into_iter().zip(placed.sets) {
            match set {
                Some(Some(address)) => *place = Some(address),
                Some(None) => *place = None,
                None => {}
            }
        }
        if placed.done {
            return;
        }
        let (address, next, branch) = (placed.address, placed.address + placed.bytes, placed.branch);
        match (point.taken, branch) {
            (Some(Taken { left: 1, target, call }), _) => self.go(point, target, None, call, &state),
            (Some(taken), _) => {
                let taken = Taken { left: taken.left - 1, ..taken };
                self.go(point, next, Some(taken), point.call, &state);
            }
            (None, Some(branch)) => {
                if branch.conditional {
                    self.go(point, next, None, point.call, &state);
                }
                for (target, call) in self.targets(&point, branch) {
                    let taken = Taken { left: DELAY_SLOTS, target, call };
                    self.go(point, next, Some(taken), point.call, &state);
                }
            }
            (None, None) => self.go(point, next, None, point.call, &state),
        }
        if let (Some(start), true) = (point.loop_start, point.loop_end == Some(address)) {
            self.go(point, start, point.taken, point.call, &state);
        }
    }

    /// Continues a path from a point to an address.
    fn go(&mut self, from: Point, address: u32, taken: Option<Taken>, call: u32, state: &State) {
        let bundle = match self.code.bundle_at(address) {
            Ok(bundle) => bundle,
            Err(problem @ (Problem::Decode(_) | Problem::WithinBundle { .. })) => {
                return self.report_at(address, String::new(), problem);
            }
            Err(problem) => return self.report(from.bundle, problem),
        };
        let left = self.code.bundles[from.bundle as usize].address;
        let Some(shifts) = self.intent.map(|intent| intent.edge(left, address)).filter(|shifts| !shifts.is_empty())
        else {
            return self.reach(Point { bundle, taken, call, ..from }, state);
        };
        let mut state = state.clone();
        let code = &self.code;
        let intent = self.intent;
        let of_loop = |port: u32| intent.and_then(|intent| intent.loop_of(code, port));
        for set in &mut state.registers {
            let shifted: Vec<History> =
                self.histories.get(*set).iter().map(|history| history.shifted(&shifts, of_loop)).collect();
            *set = self.histories.set(shifted);
        }
        self.reach(Point { bundle, taken, call, ..from }, &state);
    }

    /// Where a taken branch can go, with the call that is open then.
    fn targets(&mut self, point: &Point, branch: Branch) -> Vec<(u32, u32)> {
        let address = self.code.bundles[point.bundle as usize].address;
        let targets: Vec<u32> = match branch.target {
            Target::Return => {
                if point.call == 0 {
                    self.report(point.bundle, Problem::ReturnWithoutCall);
                    return Vec::new();
                }
                let call = &self.calls[point.call as usize];
                return call.within.iter().map(|within| (call.back, *within)).collect();
            }
            Target::Address(target) => vec![target],
            Target::Register(_) => self.resolved.get(&address).into_iter().flatten().copied().collect(),
        };
        let mut call = point.call;
        if branch.call {
            match self.after_delay_slots(point.bundle) {
                Ok(back) => call = self.call(back, point.call),
                Err(problem) => {
                    self.report(point.bundle, problem);
                    return Vec::new();
                }
            }
        }
        targets.into_iter().map(|target| (target, call)).collect()
    }

    /// The number of the call that returns to `back`, which is made within another.
    fn call(&mut self, back: u32, within: u32) -> u32 {
        let known = self.calls.iter().skip(1).position(|call| call.back == back).map(|index| index + 1);
        let id = known.unwrap_or_else(|| {
            self.calls.push(Call { back, within: BTreeSet::new() });
            self.calls.len() - 1
        });
        if self.calls[id].within.insert(within) {
            // What has returned from it already returns to one more place.
            let returns = |point: &Point| {
                let branch = self.code.bundles[point.bundle as usize].branch;
                point.call as usize == id && branch.is_some_and(|branch| branch.target == Target::Return)
            };
            let points = self.points.iter().enumerate().filter(|(_, point)| returns(point)).map(|(index, _)| index);
            self.later.extend(points);
        }
        id as u32
    }

    fn after_delay_slots(&mut self, branch: BundleId) -> Result<u32, Problem> {
        let mut id = branch;
        for _ in 0..DELAY_SLOTS {
            let placed = &self.code.bundles[id as usize];
            id = self.code.bundle_at(placed.address + placed.bytes)?;
        }
        let last = &self.code.bundles[id as usize];
        Ok(last.address + last.bytes)
    }

    /// What a bundle does to the state, and a cycle.
    fn issue(&mut self, id: BundleId, state: &mut State) {
        self.issue_registers(id, state);
        let placed = &self.code.bundles[id as usize];
        let mut problems = Vec::new();
        for hold in &placed.holds {
            let clashing =
                |held: &&Held| held.unit == hold.unit && held.left == hold.cycle && !(held.weak && hold.weak);
            self.clashes.extend(state.held.iter().filter(clashing).map(|held| Clash {
                unit: hold.unit,
                cycle: hold.cycle,
                certain: !held.doubtful && !hold.doubtful,
                bundle: id,
                other: held.bundle,
            }));
        }
        for (index, a) in placed.holds.iter().enumerate() {
            let same = |b: &&super::code::Hold| {
                b.unit == a.unit && b.cycle == a.cycle && b.slot != a.slot && !(b.weak && a.weak)
            };
            self.clashes.extend(placed.holds[index + 1..].iter().filter(same).map(|b| Clash {
                unit: a.unit,
                cycle: a.cycle,
                certain: !a.doubtful && !b.doubtful,
                bundle: id,
                other: id,
            }));
        }
        let new = placed.holds.iter().map(|hold| Held {
            unit: hold.unit,
            left: hold.cycle,
            weak: hold.weak,
            doubtful: hold.doubtful,
            bundle: id,
            slot: hold.slot,
        });
        state.held.extend(new);
        pass(&mut state.held, |held| &mut held.left);
        let address = |bundle: BundleId| self.code.bundles[bundle as usize].address;
        let new = |access: &MemoryAccess| InFlight { left: access.last, write: access.write, bundle: id };
        state.accesses.extend(placed.accesses.iter().map(new));
        if placed.lock.is_some() {
            for access in state.accesses.iter().filter(|access| access.left >= LOCK_USED) {
                let kind = if access.write { "store" } else { "load" };
                problems.push(Problem::LockTooEarly { access: kind, other: address(access.bundle) });
            }
        }
        for MemoryAccess { first, .. } in &placed.accesses {
            for (age, bundle) in state.acquires.iter().filter(|(age, _)| age + first <= LOCK_DONE) {
                let (bundles, needed) = (u32::from(*age), u32::from(LOCK_DONE + 1 - first));
                problems.push(Problem::AccessTooEarly { bundles, needed, other: address(*bundle) });
            }
        }
        pass(&mut state.accesses, |access| &mut access.left);
        if placed.lock == Some(Lock::Acquire) {
            state.acquires.push((0, id));
        }
        state.acquires.retain_mut(|(age, _)| {
            *age += 1;
            *age <= LOCK_DONE
        });
        for (age, set) in state.loop_age.iter_mut().zip(placed.sets) {
            *age = if set.is_some() { 1 } else { age.saturating_add(1).min(LOOP_DISTANCE + 1) };
        }
        state.held.sort();
        state.held.dedup();
        state.accesses.sort();
        state.accesses.dedup();
        state.acquires.sort();
        state.acquires.dedup();
        for problem in problems {
            self.report(id, problem);
        }
    }

    /// What a bundle does to registers.
    fn actions(&mut self, id: BundleId) -> Rc<Actions> {
        if let Some(known) = self.actions.get(&id) {
            return Rc::clone(known);
        }
        let placed = &self.code.bundles[id as usize];
        let mut actions = Actions::new();
        for port_id in placed.ports.clone() {
            let port = &self.code.ports[port_id as usize];
            let iteration = self.intent.map_or(0, |intent| intent.iteration(&self.code, port));
            let (left, bypass) = (port.cycle, port.bypass.map(Into::into));
            for leaf in &self.code.isa().register(port.register).leaves {
                let (writes, reads) = actions.entry(self.leaf_of[leaf]).or_default();
                if port.write {
                    writes.push(Write { left, bypass, source: Source::Port(port_id, iteration) });
                } else {
                    reads.push(Read { left, bypass, port: port_id, iteration, missed: None });
                }
            }
        }
        let actions = Rc::new(actions);
        self.actions.insert(id, Rc::clone(&actions));
        actions
    }

    fn issue_registers(&mut self, id: BundleId, state: &mut State) {
        let actions = self.actions(id);
        let mut sightings = Vec::new();
        for leaf in 0..state.registers.len() as u16 {
            let set = state.registers[usize::from(leaf)];
            let action = actions.get(&leaf);
            if action.is_none() && !self.histories.busy(set) {
                continue;
            }
            let by = if action.is_some() { id } else { BundleId::MAX };
            if let Some(next) = self.steps.get(&(set, leaf, by)) {
                state.registers[usize::from(leaf)] = *next;
                continue;
            }
            let mut histories = self.histories.get(set).to_vec();
            let mut collisions = Vec::new();
            for history in &mut histories {
                if let Some((writes, reads)) = action {
                    history.issue(writes, reads, &mut collisions);
                }
                history.advance(leaf, &mut sightings);
            }
            self.collisions.extend(collisions.into_iter().map(|(first, second)| (leaf, first, second)));
            if histories.len() > MOST_HISTORIES {
                histories.truncate(MOST_HISTORIES);
                self.report(id, Problem::TooMany { of: "histories of a register", limit: MOST_HISTORIES });
            }
            let next = self.histories.set(histories);
            self.steps.insert((set, leaf, by), next);
            state.registers[usize::from(leaf)] = next;
        }
        self.sightings.extend(sightings);
    }

    /// For each point at the end of a zero-overhead loop: its bundle, and how long ago the registers of the loop were set.
    pub fn loop_ends(&self) -> Vec<(BundleId, [u8; 3])> {
        let at_end = |(point, state): (&Point, &State)| {
            let address = self.code.bundles[point.bundle as usize].address;
            (point.loop_end == Some(address)).then_some((point.bundle, state.loop_age))
        };
        self.points.iter().zip(&self.states).filter_map(at_end).collect()
    }
}

/// Adds what is new; true if there was something. Both are sorted.
fn merge<T: Ord + Copy>(known: &mut Vec<T>, new: &[T]) -> bool {
    let before = known.len();
    let missing: Vec<T> = new.iter().filter(|item| known.binary_search(item).is_err()).copied().collect();
    known.extend(missing);
    known.sort();
    known.len() != before
}

/// Lets a cycle pass for things that happen in cycles to come.
fn pass<T>(things: &mut Vec<T>, left: impl Fn(&mut T) -> &mut u8) {
    things.retain_mut(|thing| {
        let left = left(thing);
        *left = left.saturating_sub(1);
        *left > 0
    });
}

/// Whether only a program gives a register its value: `r0`, `wl3`, `sp`, but not `crSat` and `srCarry`.
fn is_general(name: &str) -> bool {
    matches!(name, "lr" | "sp")
        || name.chars().all(|c| !c.is_ascii_uppercase()) && name.ends_with(|c: char| c.is_ascii_digit())
}
