//! Rules about addresses, as far as they are constants.
//!
//! A pointer is constant where all paths give it the value of an instruction that has the number in it, moved, copied and
//! incremented by other constants. That is enough for what a program's author places in memory by its address: parameters,
//! locks' buffers, tables.

use super::code::{Port, PortId, Target, constant, uses_stack};
use super::finding::Problem;
use super::history::Source;
use super::paths::Paths;
use aie_isa::{Access, Decoded, Instruction, Value, share_bank};
use std::collections::{BTreeSet, HashMap};

/// Addresses of data memory have 20 bits.
const ADDRESS: u32 = 0xf_ffff;
/// Values of a register that are distinguished; with more it is no constant.
const MOST_VALUES: usize = 16;

/// Constants in registers, from what reads get.
pub struct Constants {
    sources: HashMap<PortId, BTreeSet<(u16, Source)>>,
    known: HashMap<PortId, Option<BTreeSet<u32>>>,
}

impl Constants {
    /// Collects what reads get.
    pub fn of(paths: &Paths<'_>) -> Self {
        let mut sources: HashMap<PortId, BTreeSet<(u16, Source)>> = HashMap::new();
        for sighting in &paths.sightings {
            sources.entry(sighting.port).or_default().insert((sighting.leaf, sighting.source));
        }
        Self { sources, known: HashMap::new() }
    }

    /// All values that a read of a register without parts can get, if they are constants.
    pub fn values(&mut self, paths: &Paths<'_>, read: PortId) -> Option<BTreeSet<u32>> {
        if let Some(known) = self.known.get(&read) {
            return known.clone();
        }
        // A value that depends on itself is none, until this is known.
        self.known.insert(read, None);
        let mut values = Some(BTreeSet::new());
        for (_, source) in self.sources.get(&read).cloned().unwrap_or_default() {
            let Source::Port(writer, _) = source else {
                values = None;
                break;
            };
            let written = self.written(paths, writer);
            values = values.zip(written).map(|(mut all, more)| {
                all.extend(more);
                all
            });
        }
        let values = values.filter(|values| !values.is_empty() && values.len() <= MOST_VALUES);
        self.known.insert(read, values.clone());
        values
    }

    fn written(&mut self, paths: &Paths<'_>, writer: PortId) -> Option<BTreeSet<u32>> {
        let port = &paths.code.ports[writer as usize];
        let decoded = paths.code.instruction(port);
        if let Some(value) = constant(decoded) {
            return Some(BTreeSet::from([value]));
        }
        let name = port.operand.map(|operand| decoded.instruction.operands[usize::from(operand)].name);
        let mut read = |name: &str| {
            let port = port_of(paths, port, name)?;
            self.values(paths, port)
        };
        if name == Some("ptr_out") {
            let step = match immediate(decoded, "imm") {
                Some(step) => BTreeSet::from([step as u32]),
                None => read("mod").filter(|_| {
                    !decoded.instruction.syntax.contains("2d") && !decoded.instruction.syntax.contains("3d")
                })?,
            };
            return Some(sums(&read("ptr")?, &step));
        }
        if matches!(decoded.instruction.mnemonic, "mov" | "mova" | "movs" | "movx") {
            let reads: Vec<PortId> = ports_of(paths, port).filter(|id| !paths.code.ports[*id as usize].write).collect();
            if let [only] = reads[..] {
                return self.values(paths, only);
            }
        }
        None
    }
}

fn sums(a: &BTreeSet<u32>, b: &BTreeSet<u32>) -> BTreeSet<u32> {
    a.iter().flat_map(|a| b.iter().map(|b| a.wrapping_add(*b) & ADDRESS)).collect()
}

/// The number that a named operand is.
pub fn immediate(decoded: &Decoded<'_>, name: &str) -> Option<i64> {
    match decoded.values.get(decoded.instruction.operand(name)?)? {
        Value::Immediate(number) => Some(*number),
        Value::Register(_) => None,
    }
}

/// The ports of the instruction that a port belongs to.
fn ports_of<'a>(paths: &'a Paths<'_>, port: &'a Port) -> impl Iterator<Item = PortId> + 'a {
    let ports = paths.code.bundles[port.bundle as usize].ports.clone();
    ports.filter(|id| paths.code.ports[*id as usize].slot == port.slot)
}

/// The read of a named operand of the instruction that a port belongs to.
fn port_of(paths: &Paths<'_>, port: &Port, name: &str) -> Option<PortId> {
    let operand = paths.code.instruction(port).instruction.operand(name)?;
    ports_of(paths, port).find(|id| {
        let port = &paths.code.ports[*id as usize];
        !port.write && port.operand == Some(operand as u8)
    })
}

/// Follows branches through registers with constants. Gives whether that led to something new.
pub fn resolve_branches(paths: &mut Paths<'_>) -> bool {
    let mut constants = Constants::of(paths);
    let mut found = Vec::new();
    for placed in &paths.code.bundles {
        if let Some(Target::Register(port)) = placed.branch.map(|branch| branch.target) {
            found.extend(constants.values(paths, port).into_iter().flatten().map(|target| (placed.address, target)));
        }
    }
    let mut new = false;
    for (branch, target) in found {
        new |= paths.resolve(branch, target);
    }
    new
}

/// Applies the rules.
pub fn check(paths: &mut Paths<'_>) {
    let mut constants = Constants::of(paths);
    let mut problems = Vec::new();
    for (id, placed) in paths.code.bundles.iter().enumerate() {
        let id = id as u32;
        let mut accesses: Vec<(BTreeSet<u32>, u32)> = Vec::new();
        for (slot, decoded) in placed.decoded.slots.iter().enumerate() {
            let Some(first) =
                placed.ports.clone().find(|port| usize::from(paths.code.ports[*port as usize].slot) == slot)
            else {
                continue;
            };
            if let Some(loaded) = extracted_first(paths, &mut constants, &paths.code.ports[first as usize]) {
                problems.push((id, Problem::ExtractFirst { loaded }));
            }
            let Some(bytes) = accessed_bytes(decoded.instruction) else { continue };
            let Some(addresses) = addresses(paths, &mut constants, &paths.code.ports[first as usize]) else { continue };
            for address in &addresses {
                let allowed = &paths.code.program.data;
                if !allowed.iter().any(|range| range.start <= *address && address + bytes <= range.end) {
                    problems.push((id, Problem::Address { address: *address, bytes }));
                } else if address % bytes.min(32) != 0 {
                    problems.push((id, Problem::Unaligned { address: *address, bytes }));
                }
            }
            accesses.push((addresses, bytes));
        }
        for (index, first) in accesses.iter().enumerate() {
            for second in &accesses[index + 1..] {
                let ((first, first_bytes), (second, second_bytes)) = (first, second);
                if let ([first], [second]) = (&Vec::from_iter(first)[..], &Vec::from_iter(second)[..])
                    && share_bank((**first, *first_bytes), (**second, *second_bytes))
                {
                    problems.push((id, Problem::Bank { first: **first, second: **second }));
                }
            }
        }
    }
    for (bundle, problem) in problems {
        paths.report(bundle, problem);
    }
}

/// Where the vector was loaded of which an instruction extracts element 0 by a register; see [`Problem::ExtractFirst`].
fn extracted_first(paths: &Paths<'_>, constants: &mut Constants, port: &Port) -> Option<u32> {
    let is_extract = paths.code.instruction(port).instruction.mnemonic.starts_with("vextract.");
    if !is_extract || !paths.code.isa().set().errata().first_of_loaded {
        return None;
    }
    let (index, vector) = (port_of(paths, port, "idx")?, port_of(paths, port, "s1")?);
    constants.values(paths, index).filter(|values| values.contains(&0))?;
    constants.sources.get(&vector)?.iter().find_map(|(_, source)| {
        let Source::Port(writer, _) = *source else { return None };
        let writer = &paths.code.ports[writer as usize];
        let is_load = paths.code.instruction(writer).instruction.mnemonic == "vlda";
        is_load.then(|| paths.code.bundles[writer.bundle as usize].address)
    })
}

fn accessed_bytes(instruction: &Instruction) -> Option<u32> {
    match instruction.access? {
        Access::Load { bytes, .. } | Access::Store { bytes } | Access::PartWordStore { bytes } => Some(bytes),
        _ => None,
    }
}

/// The addresses that an instruction accesses, if they are constants.
fn addresses(paths: &Paths<'_>, constants: &mut Constants, port: &Port) -> Option<BTreeSet<u32>> {
    let decoded = paths.code.instruction(port);
    if uses_stack(decoded) {
        return None;
    }
    let pointer = constants.values(paths, port_of(paths, port, "ptr")?)?;
    let syntax = decoded.instruction.syntax;
    let offset = if syntax.contains("[$ptr, $imm]") {
        BTreeSet::from([immediate(decoded, "imm")? as u32])
    } else if syntax.contains("[$ptr, $dj]") {
        constants.values(paths, port_of(paths, port, "dj")?)?
    } else {
        BTreeSet::from([0])
    };
    Some(sums(&pointer, &offset))
}
