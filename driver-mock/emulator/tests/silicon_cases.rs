//! Single instructions beside what silicon gave: every case of `data/silicon-cases`, executed as machine code.

use aie_emulator::core::{Core, Fault, Layout, Stop, Surroundings};
use aie_isa::{Isa, Register};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Where the buffers of the cases lie here.
const BUFFERS: [(&str, usize); 2] = [("in+", 0x1_0000), ("out+", 0x2_0000)];

struct Memory(Vec<u8>);

impl Surroundings for Memory {
    fn load(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        let range = address as usize..address as usize + bytes.len();
        bytes.copy_from_slice(self.0.get(range).ok_or(Fault::Memory { address, bytes: bytes.len() })?);
        Ok(())
    }
    fn store(&mut self, address: u32, bytes: &[u8]) -> Result<(), Fault> {
        let range = address as usize..address as usize + bytes.len();
        self.0.get_mut(range).ok_or(Fault::Memory { address, bytes: bytes.len() })?.copy_from_slice(bytes);
        Ok(())
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The place of `in+N` or `out+N`.
fn place(text: &str) -> Option<usize> {
    BUFFERS.iter().find_map(|(name, base)| Some(base + text.strip_prefix(name)?.parse::<usize>().unwrap()))
}

/// A core and its memory, from case to case of a program.
struct Rig {
    isa: &'static Isa,
    layout: Arc<Layout>,
    memory: Memory,
    /// What passes from case to case.
    passed: BTreeMap<&'static str, Vec<u8>>,
}

impl Rig {
    fn new(isa: &'static Isa) -> Self {
        let memory = Memory(vec![0xA5; 1 << 20]);
        Self { isa, layout: Arc::new(Layout::new(isa)), memory, passed: BTreeMap::new() }
    }

    /// A register, or neighbours such as `r19:r18`, lowest first.
    fn registers(&self, name: &str) -> Vec<Register> {
        let named = |name: &str| self.isa.register_named(name);
        match named(name) {
            Some(register) => vec![register],
            None => name.split(':').rev().map(|part| named(part).unwrap_or_else(|| panic!("{name}"))).collect(),
        }
    }

    /// Runs the steps of a case. The error says what silicon had and what we have.
    fn run(&mut self, steps: &[&str]) -> Result<(), String> {
        let mut core = Core::new(self.isa, Arc::clone(&self.layout), 16 << 10, 0);
        for (name, value) in &self.passed {
            core.set_register(self.isa.register_named(name).unwrap(), value);
        }
        let mut address = 0;
        let mut problem = Ok(());
        for step in steps {
            if let Some((what, expected)) = step.split_once('?') {
                let (what, range) = what.split_once('[').unwrap_or((what, ""));
                let found = match place(what) {
                    Some(at) => self.memory.0[at..at + expected.len() / 2].to_vec(),
                    None => self.registers(what).iter().flat_map(|register| core.register(*register)).collect(),
                };
                let range: Range<usize> = match range.trim_end_matches(']').split_once(':') {
                    Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
                    None => 0..expected.len() / 2,
                };
                let found: String = found[range].iter().map(|byte| format!("{byte:02x}")).collect();
                if found != expected && problem.is_ok() {
                    problem = Err(format!("{step}, we {found}"));
                }
            } else if let Some((what, value)) = step.split_once('=') {
                match (place(what), place(value)) {
                    (Some(at), _) => {
                        let value = bytes(value);
                        self.memory.0[at..at + value.len()].copy_from_slice(&value);
                    }
                    (None, Some(at)) => core.set_register(self.registers(what)[0], &(at as u32).to_le_bytes()),
                    (None, None) => self.set(&mut core, what, &bytes(value)),
                }
            } else {
                address = self.execute(&mut core, step, address)?;
            }
        }
        for name in ["srCarry", "r31"] {
            if let Some(register) = self.isa.register_named(name) {
                self.passed.insert(name, core.register(register));
            }
        }
        problem
    }

    fn set(&self, core: &mut Core, name: &str, value: &[u8]) {
        let mut rest = value;
        for register in self.registers(name) {
            let (bytes, more) = rest.split_at(core.register(register).len().min(rest.len()));
            core.set_register(register, bytes);
            rest = more;
        }
    }

    /// Executes one instruction and waits for its results. Gives the address behind it.
    fn execute(&mut self, core: &mut Core, instruction: &str, address: usize) -> Result<usize, String> {
        const WAIT: usize = 16;
        let text = format!("{instruction}\n{}", "nop\n".repeat(WAIT));
        let code = self.isa.assemble(&text).map_err(|error| error.to_string())?;
        assert!(core.write_program(address, &code));
        match core.run(1 + WAIT as u64, &mut self.memory) {
            Stop::Ran => Ok(address + code.len()),
            stop => Err(format!("{stop:?}")),
        }
    }
}

/// What became of the cases of a file, in numbers of cases.
#[derive(Debug, Default)]
struct Judgement {
    equal: usize,
    /// A register that no step has set is a condition or a bit: one of its two values gives what silicon had.
    equal_either_way: usize,
    /// A register that no step has set names a lane or a mode: these say nothing.
    unknown: usize,
    /// What the file says has no model, and stops the core.
    unmodelled: usize,
    different: Vec<String>,
}

fn judge(isa: &'static Isa, cases: &str) -> Judgement {
    let mut judged = Judgement::default();
    let mut rig = Rig::new(isa);
    for (number, line) in cases.lines().enumerate() {
        if line.is_empty() {
            rig = Rig::new(isa);
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut cells = line.split('\t');
        let key = cells.next().unwrap();
        let steps: Vec<&str> = cells.collect();
        let problem = match key.split_once(' ') {
            None => rig.run(&steps).map(|()| judged.equal += 1).err(),
            Some((_, "unmodelled")) => match rig.run(&steps) {
                Err(problem) if problem.contains("Unmodelled") => {
                    judged.unmodelled += 1;
                    None
                }
                other => Some(format!("it has a model now: {other:?}")),
            },
            Some(("DIVS" | "SELEQZ" | "SELNEZ", unset)) => {
                let register = unset.trim_start_matches("unset ");
                let values = ["00000000", "ffffffff"].map(|value| format!("{register}={value}"));
                let fits = values.iter().any(|value| rig.run(&[&[value.as_str()], &steps[..]].concat()).is_ok());
                judged.equal_either_way += usize::from(fits);
                (!fits).then(|| format!("with neither value of {register}"))
            }
            Some(_) => {
                judged.unknown += 1;
                None
            }
        };
        judged
            .different
            .extend(problem.map(|text| format!("line {}, {key}: {text}; {}", number + 1, steps.join("; "))));
    }
    judged
}

#[test]
fn aie2_computes_what_silicon_did() {
    let judged = judge(Isa::aie2(), include_str!("data/silicon-cases/aie2.tsv"));
    assert_eq!(judged.different, Vec::<String>::new());
    assert_eq!((judged.equal, judged.equal_either_way), (3992, 75));
    assert_eq!((judged.unknown, judged.unmodelled), (28, 357));
}

#[test]
fn aie2p_computes_what_silicon_did() {
    let judged = judge(Isa::aie2p(), include_str!("data/silicon-cases/aie2p.tsv"));
    assert_eq!(judged.different, Vec::<String>::new());
    assert_eq!((judged.equal, judged.equal_either_way, judged.unknown, judged.unmodelled), (412, 0, 0, 0));
}

#[test]
fn aie2_shuffles_in_every_mode_as_silicon_did() {
    let counting: Vec<String> = (0..128).map(|byte| format!("{byte:02x}")).collect();
    let sources = [format!("x0={}", counting[..64].concat()), format!("x2={}", counting[64..].concat())];
    let permutations =
        include_str!("data/silicon-cases/aie2-shuffle.tsv").lines().filter(|line| !line.starts_with('#'));
    let permutations = permutations.map(|line| {
        let (mode, from) = line.split_once('\t').unwrap();
        let result: String = from.split(' ').map(|byte| counting[byte.parse::<usize>().unwrap()].as_str()).collect();
        (mode.parse::<u32>().unwrap(), result)
    });
    // Seen for seven of these sixteen: the first byte of the first source, and zeros.
    let others = (48..64).map(|mode| (mode, "00".repeat(64)));
    let mut count = 0;
    for (mode, result) in permutations.chain(others) {
        // Only six bits of a mode count.
        let mode = format!("r0={}", (mode | 0xabcd_0000).to_le_bytes().map(|byte| format!("{byte:02x}")).concat());
        let expected = format!("x4?{result}");
        let steps = [&sources[0], &sources[1], &mode, "vshuffle x4, x0, x2, r0", &expected];
        assert_eq!(Rig::new(Isa::aie2()).run(&steps), Ok(()));
        count += 1;
    }
    assert_eq!(count, 64);
}
