//! One program on the emulated array, and its outputs beside what they have to be.

use crate::containers;
use crate::manifest::{Argument, Program};
use crate::xrt::Xrt;
use aie_emulator::{Array, HostMemory, Outcome};
use aie_hal::ArchRegistry;
use aie_hal::format::instructions::{InstructionStream, from_text};
use aie_hal::format::pdi::Pdi;
use aie_isa::Isa;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// How a program's run ended.
#[derive(Debug, Serialize)]
pub struct Execution {
    pub name: String,
    pub arch: String,
    /// Elements compared.
    pub values: usize,
    /// Elements that are not as they have to be.
    pub mismatches: usize,
    /// The largest difference of one.
    pub largest_error: f64,
    /// Bundles that the cores executed; not known under XRT.
    pub bundles: u64,
    pub seconds: f64,
    pub problem: Option<String>,
    /// Rows of the instruction table that were executed; not known under XRT.
    #[serde(skip)]
    pub rows: BTreeSet<&'static str>,
}

/// The arguments, at addresses far from each other, so that an access beyond one is noticed.
struct Arguments(Vec<Vec<u8>>);

const APART: u64 = 1 << 32;

impl Arguments {
    fn place(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        let argument = self.0.get_mut(usize::try_from(address / APART).ok()?.checked_sub(1)?)?;
        let at = usize::try_from(address % APART).ok()?;
        argument.get_mut(at..at.checked_add(bytes)?)
    }

    fn addresses(&self) -> Vec<u64> {
        (1..=self.0.len() as u64).map(|index| index * APART).collect()
    }
}

impl HostMemory for Arguments {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.place(address, bytes.len()).map(|place| bytes.copy_from_slice(place)).is_some()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.place(address, bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
    }
}

/// Runs a program, directly on an array or with XRT. An error is one of the table or its files; what the program does wrong is its
/// row's problem.
pub fn run(program: &Program, folder: &Path, xrt: Option<&Xrt>) -> Result<Execution> {
    let read =
        |path: &Path| std::fs::read(folder.join(path)).with_context(|| format!("cannot read {}", path.display()));
    let isa = Isa::for_arch(&program.arch).with_context(|| format!("no instruction set of `{}`", program.arch))?;
    let arch =
        ArchRegistry::builtin().get(&program.arch).with_context(|| format!("no generation `{}`", program.arch))?;
    let image = read(&program.image)?;
    let pdi = Pdi::parse(containers::image(&image)?)?;
    let file = read(&program.instructions)?;
    let words = from_text(&file).transpose()?.unwrap_or(file);
    let stream = InstructionStream::for_firmware(&words)?;
    let stream = InstructionStream::parse(&stream)?;
    let mut host = Arguments(Vec::new());
    for argument in &program.arguments {
        host.0.push(match (&argument.input, argument.output) {
            (Some(input), _) => read(input)?,
            (None, bytes) => vec![0; bytes.unwrap_or(0)],
        });
    }
    let mut array = Array::new(isa, u8::try_from(arch.array.columns)?, u8::try_from(arch.array.rows)?);
    let started = Instant::now();
    let addresses = host.addresses();
    let problem = if let Some(xrt) = xrt {
        xrt.run(program, folder, &words, &mut host.0).err().map(|error| format!("{error:#}"))
    } else {
        match array.load(&pdi, &mut host).and_then(|()| array.execute(&stream, &addresses, &mut host)) {
            Ok(Outcome::Completed) => None,
            Ok(outcome) => Some(format!("{outcome:?}")),
            Err(error) => Some(error.to_string()),
        }
    };
    let mut execution = Execution {
        name: program.name.clone(),
        arch: program.arch.clone(),
        values: 0,
        mismatches: 0,
        largest_error: 0.0,
        bundles: array.bundles(),
        seconds: started.elapsed().as_secs_f64(),
        problem,
        rows: array.executed().map(|row| row.key).collect(),
    };
    for (index, (argument, found)) in program.arguments.iter().zip(&host.0).enumerate() {
        if let Some(expected) = &argument.expected {
            let expected = read(expected)?;
            ensure!(expected.len() <= found.len(), "argument {index} is shorter than what is expected of it");
            execution.compare(index, argument, found, &expected);
        }
    }
    Ok(execution)
}

impl Execution {
    fn compare(&mut self, index: usize, argument: &Argument, found: &[u8], expected: &[u8]) {
        let element = argument.element;
        let pairs = found.chunks_exact(element.bytes()).zip(expected.chunks_exact(element.bytes()));
        for (at, (found, expected)) in pairs.enumerate() {
            let (value, right) = (element.value(found), element.value(expected));
            let error = (value - right).abs();
            let close =
                error <= argument.absolute + argument.relative * right.abs() || value.is_nan() && right.is_nan();
            self.values += 1;
            if error > self.largest_error {
                self.largest_error = error;
            }
            if found == expected || !argument.is_exact() && close {
                continue;
            }
            self.mismatches += 1;
            self.problem.get_or_insert(format!("argument {index}, value {at} is {value} and has to be {right}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Element;

    fn compared(relative: f64, found: &[f32], expected: &[f32]) -> Execution {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let argument = Argument {
            input: None,
            output: Some(8),
            expected: Some("x".into()),
            element: Element::F32,
            absolute: 0.0,
            relative,
        };
        let mut execution = Execution {
            name: String::new(),
            arch: String::new(),
            values: 0,
            mismatches: 0,
            largest_error: 0.0,
            bundles: 0,
            seconds: 0.0,
            problem: None,
            rows: BTreeSet::new(),
        };
        execution.compare(2, &argument, &bytes(found), &bytes(expected));
        execution
    }

    #[test]
    fn outputs_are_compared_by_bits_or_with_a_tolerance() {
        let found = compared(0.0, &[1.0, 2.5], &[1.0, 2.0]);
        assert_eq!((found.values, found.mismatches, found.largest_error), (2, 1, 0.5));
        assert_eq!(found.problem.unwrap(), "argument 2, value 1 is 2.5 and has to be 2");
        assert_eq!(compared(0.25, &[1.0, 2.5], &[1.0, 2.0]).mismatches, 0);
        assert_eq!(compared(0.2, &[1.0, 2.5], &[1.0, 2.0]).mismatches, 1);
        // The zeros differ in a bit; NaN is close to nothing but NaN.
        assert_eq!(compared(0.0, &[0.0], &[-0.0]).mismatches, 1);
        assert_eq!(compared(9.0, &[f32::NAN, 1.0], &[1.0, 1.0]).mismatches, 1);
    }
}
