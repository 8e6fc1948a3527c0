//! Which kernel has which name.
//!
//! A kernel has the name of its files, which a configuration may choose, and the names that backends look for. Within a
//! generation all must lead to one kernel: two kernels under one name would overwrite each other, and a kernel under the name
//! of another would compute the wrong thing without anybody noticing.

use super::{KernelRequest, Validated};
use crate::configuration::place::Problem;
use std::collections::HashMap;

/// Collects kernels and keeps their names apart.
#[derive(Debug, Default)]
pub struct NameTable {
    result: Validated,
    /// Kernel by generation and name of the files.
    exported: HashMap<(String, String), usize>,
    /// First kernel by generation and name that a backend looks for.
    looked_for: HashMap<(String, String), usize>,
}

impl NameTable {
    /// Adds a kernel. One that is there already is noted and left out.
    ///
    /// # Errors
    /// When its name leads to another kernel.
    pub fn add(&mut self, kernel: KernelRequest) -> Result<(), Problem> {
        let key = |name: &str| (kernel.arch.name.clone(), name.to_owned());
        let exported = key(&kernel.exported_name);
        if let Some(other) = self.find(&self.exported, &exported) {
            if other.same_kernel(&kernel) {
                let message = format!("the same kernel as {}; it is made once", other.place);
                self.result.notes.push(Problem::new(&kernel.place, message));
                return Ok(());
            }
            let message = format!(
                "'{}' of {} is also the name of {} ({}), which is another kernel; choose another 'exported_name'",
                kernel.exported_name, kernel.arch.name, other.place, other.name
            );
            return Err(Problem::new(&kernel.place, message));
        }
        let looked_for = [key(&kernel.stem), key(&kernel.name)];
        let taken = self.find(&self.looked_for, &exported).map(|other| (&kernel, other));
        let takes = looked_for.iter().filter_map(|name| self.find(&self.exported, name)).map(|other| (other, &kernel));
        if let Some((named, other)) = taken.into_iter().chain(takes).find(|(named, other)| named.name != other.name) {
            let message = format!(
                "the 'exported_name' of {} is the name under which the backend looks for {}; choose another one",
                named.place, other.place
            );
            return Err(Problem::new(&kernel.place, message));
        }
        let index = self.result.kernels.len();
        self.exported.insert(exported, index);
        for name in looked_for {
            self.looked_for.entry(name).or_insert(index);
        }
        self.result.kernels.push(kernel);
        Ok(())
    }

    /// The kernel in here that does what `kernel` does, under whatever name.
    pub fn same_as(&self, kernel: &KernelRequest) -> Option<&KernelRequest> {
        let key = (kernel.arch.name.clone(), kernel.stem.clone());
        self.find(&self.looked_for, &key).filter(|other| other.same_kernel(kernel))
    }

    /// Says something about what was added.
    pub fn note(&mut self, note: Problem) {
        self.result.notes.push(note);
    }

    /// All kernels, in the order in which they were added.
    pub fn finish(self) -> Validated {
        self.result
    }

    fn find(&self, names: &HashMap<(String, String), usize>, name: &(String, String)) -> Option<&KernelRequest> {
        names.get(name).and_then(|index| self.result.kernels.get(*index))
    }
}

impl From<Validated> for NameTable {
    /// Continues with the kernels of a configuration.
    fn from(validated: Validated) -> Self {
        let mut names = Self::default();
        names.result.notes = validated.notes;
        for kernel in validated.kernels {
            if let Err(problem) = names.add(kernel) {
                names.note(problem);
            }
        }
        names
    }
}
