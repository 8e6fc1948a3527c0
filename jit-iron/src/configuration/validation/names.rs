//! Which kernel has which name.
//!
//! A kernel has the name of its files, which a configuration may choose, and the name that the backend looks for. Within a
//! generation both must lead to one kernel: two kernels under one name would overwrite each other, and a kernel under the name
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
    /// First kernel by generation and name that the backend looks for.
    looked_for: HashMap<(String, String), usize>,
}

impl NameTable {
    /// Adds a kernel. One that is there already is noted and left out.
    ///
    /// # Errors
    /// When one of its names leads to another kernel.
    pub fn add(&mut self, kernel: KernelRequest) -> Result<(), Problem> {
        let key = |name: &str| (kernel.arch.name.clone(), name.to_owned());
        let (exported, looked_for) = (key(&kernel.exported_name), key(&kernel.lookup_name));
        if let Some(other) = self.find(&self.exported, &exported) {
            if other.node == kernel.node {
                let message = format!("the same kernel as {}; it is made once", other.place);
                self.result.notes.push(Problem::new(&kernel.place, message));
                return Ok(());
            }
            let message = format!(
                "'{}' of {} is also the name of {} ({}), which is another kernel; choose another 'exported_name'",
                kernel.exported_name, kernel.arch.name, other.place, other.lookup_name
            );
            return Err(Problem::new(&kernel.place, message));
        }
        if let Some(other) = self.find(&self.looked_for, &looked_for)
            && other.node != kernel.node
        {
            let message = format!(
                "the backend looks for this kernel and for {} under one name, {}, because the names of {} leave out \
                 parameters; put one of them into another output directory",
                other.place, kernel.lookup_name, kernel.node.op
            );
            return Err(Problem::new(&kernel.place, message));
        }
        let taken = self.find(&self.looked_for, &exported).map(|other| (&kernel, other));
        let takes = self.find(&self.exported, &looked_for).map(|other| (other, &kernel));
        for (named, other) in taken.into_iter().chain(takes) {
            if named.lookup_name != other.lookup_name {
                let message = format!(
                    "the 'exported_name' of {} is the name under which the backend looks for {}; choose another one",
                    named.place, other.place
                );
                return Err(Problem::new(&kernel.place, message));
            }
        }
        let index = self.result.kernels.len();
        self.exported.insert(exported, index);
        self.looked_for.entry(looked_for).or_insert(index);
        self.result.kernels.push(kernel);
        Ok(())
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
