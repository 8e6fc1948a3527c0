//! How deep the stack of a program gets.
//!
//! Nothing guards a stack: if it outgrows the room that was left for it, it overwrites the buffers behind it, and one more spilled
//! register is enough for that. So the stack pointer is followed as a number, from the constant that the program sets it to, through
//! its increments on all paths and into all calls. A function is walked once for each value that it is called with, and its caller
//! continues with the values that it returns with. The stack grows upwards and the pointer is behind its last byte, so the stack
//! takes the bytes between the lowest and the highest value.
//!
//! The body of a zero-overhead loop is walked once: compilers leave the pointer as it was there.

use super::code::{BundleId, DELAY_SLOTS, Placed, Target, constant, uses_stack};
use super::memory::immediate;
use super::paths::Paths;
use aie_isa::Register;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// The most bundles that are walked, repetitions included; programs of 16 KB have some thousands.
const MOST_STEPS: usize = 200_000;

/// The bytes that the stack of a program takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stack {
    /// From the first to behind the last, as the core addresses them. Empty if the stack is never used.
    Bytes(Range<u32>),
    /// They are not known, for this reason.
    Unknown(String),
}

/// The stack pointer; None before it has a value.
type Pointer = Option<i64>;

/// Where a branch goes once its delay slots are over.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Goal {
    Jump(u32),
    Call(u32),
    Return,
}

/// The stack of a program; None if it never sets the stack pointer.
pub(super) fn of(paths: &Paths<'_>) -> Option<Stack> {
    let pointer = paths.code.isa().register_named("sp")?;
    if !paths.code.ports.iter().any(|port| port.write && port.register == pointer) {
        return None;
    }
    let mut walk = Walk { paths, pointer, returned: HashMap::new(), open: Vec::new(), values: None, steps: 0 };
    for entry in &paths.code.program.entries {
        if let Err(reason) = walk.function(*entry, None) {
            return Some(Stack::Unknown(reason));
        }
    }
    let bound = |value: i64| u32::try_from(value.max(0)).unwrap_or(u32::MAX);
    walk.values.map(|(lowest, highest)| Stack::Bytes(bound(lowest)..bound(highest)))
}

struct Walk<'a, 'p> {
    paths: &'a Paths<'p>,
    /// The register.
    pointer: Register,
    /// What functions return with, by their address and what they are called with.
    returned: HashMap<(u32, Pointer), BTreeSet<Pointer>>,
    /// Functions that are being walked.
    open: Vec<u32>,
    /// The lowest and the highest value of the pointer.
    values: Option<(i64, i64)>,
    steps: usize,
}

impl Walk<'_, '_> {
    /// Walks a function, and gives the values that it returns with.
    fn function(&mut self, entry: u32, called_with: Pointer) -> Result<BTreeSet<Pointer>, String> {
        if let Some(known) = self.returned.get(&(entry, called_with)) {
            return Ok(known.clone());
        }
        if self.open.contains(&entry) {
            return Err(format!("the function at {entry:#x} is recursive, directly or through others"));
        }
        self.open.push(entry);
        let paths = self.paths;
        let mut returns = BTreeSet::new();
        let (mut seen, mut waiting) = (HashSet::new(), vec![(entry, None, called_with)]);
        while let Some(state) = waiting.pop() {
            if !seen.insert(state) {
                continue;
            }
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(format!("the function at {entry:#x} has too many paths, or moves sp in a loop"));
            }
            let (address, taken, pointer) = state;
            let id = paths
                .code
                .known(address)
                .ok_or_else(|| format!("the code at {address:#x} is not on any path that could be followed"))?;
            let placed = &paths.code.bundles[id as usize];
            let pointer = self.behind(id, pointer)?;
            let next = placed.address + placed.bytes;
            match (taken, placed.branch) {
                _ if placed.done => {}
                (Some((1, Goal::Return)), _) => {
                    returns.insert(pointer);
                }
                (Some((1, Goal::Jump(target))), _) => waiting.push((target, None, pointer)),
                (Some((1, Goal::Call(target))), _) => {
                    let with = self.function(target, pointer)?;
                    waiting.extend(with.into_iter().map(|pointer| (next, None, pointer)));
                }
                (Some((left, goal)), _) => waiting.push((next, Some((left - 1, goal)), pointer)),
                (None, Some(branch)) => {
                    if branch.conditional {
                        waiting.push((next, None, pointer));
                    }
                    let goals = self.goals(placed)?;
                    waiting.extend(goals.into_iter().map(|goal| (next, Some((DELAY_SLOTS, goal)), pointer)));
                }
                (None, None) => waiting.push((next, None, pointer)),
            }
        }
        self.open.pop();
        self.returned.insert((entry, called_with), returns.clone());
        Ok(returns)
    }

    /// The pointer behind a bundle.
    fn behind(&mut self, id: BundleId, mut pointer: Pointer) -> Result<Pointer, String> {
        let code = &self.paths.code;
        let Placed { address, ports, .. } = &code.bundles[id as usize];
        for port in ports.clone().map(|port| &code.ports[port as usize]) {
            if !port.write || port.register != self.pointer {
                continue;
            }
            let decoded = code.instruction(port);
            let step = if uses_stack(decoded) { immediate(decoded, "imm") } else { None };
            let value = match (step, constant(decoded), pointer) {
                (Some(step), _, Some(before)) => before + step,
                (Some(_), _, None) => return Err(format!("sp is moved at {address:#x} before it is set")),
                (None, Some(value), _) => value.into(),
                (None, None, _) => return Err(format!("sp is set at {address:#x} to a value that is not constant")),
            };
            let (lowest, highest) = self.values.unwrap_or((value, value));
            self.values = Some((lowest.min(value), highest.max(value)));
            pointer = Some(value);
        }
        Ok(pointer)
    }

    /// Where a bundle's branch can go.
    fn goals(&self, placed: &Placed) -> Result<Vec<Goal>, String> {
        let Some(branch) = placed.branch else { return Ok(Vec::new()) };
        let goal = if branch.call { Goal::Call } else { Goal::Jump };
        match branch.target {
            Target::Return => Ok(vec![Goal::Return]),
            Target::Address(target) => Ok(vec![goal(target)]),
            Target::Register(_) => match self.paths.resolved.get(&placed.address) {
                Some(targets) if !targets.is_empty() => Ok(targets.iter().copied().map(goal).collect()),
                _ => Err(format!("the target of the branch at {:#x} is in a register and not known", placed.address)),
            },
        }
    }
}
