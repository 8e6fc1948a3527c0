//! Links under the names that backends look for.
//!
//! A configuration may call a kernel's files as it likes, and the documents of the C++ tool do, with names like
//! `add_f32_1024`. No backend ever looks for such a name. So a kernel's files are written under the name that was asked for, and
//! links with the names that are looked for lead to them: the C++ backend takes links as it takes files. Links are
//! relative and stay in their folder, so a directory can be moved or packed.

use crate::configuration::{KernelRequest, Problem};
use crate::kernel_files::{KernelFiles, UNFINISHED};
use crate::stem::LONGEST;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Which kernels have links with which names.
#[derive(Debug, Default)]
pub struct Links {
    /// Names of links, by index of the kernel.
    pub names: Vec<Vec<String>>,
    /// Names that could not be given.
    pub notes: Vec<Problem>,
}

/// Decides on the links of `kernels`, whose own names are distinct.
pub fn plan_links(kernels: &[KernelRequest]) -> Links {
    let mut taken: HashSet<(&str, &str)> =
        kernels.iter().map(|kernel| (kernel.arch.name.as_str(), kernel.exported_name.as_str())).collect();
    let mut by_name: HashMap<(&str, &str), Vec<&KernelRequest>> = HashMap::new();
    for kernel in kernels {
        by_name.entry((&kernel.arch.name, &kernel.name)).or_default().push(kernel);
    }
    let mut links = Links::default();
    for kernel in kernels {
        let mut names = Vec::new();
        if taken.insert((&kernel.arch.name, &kernel.stem)) {
            names.push(kernel.stem.clone());
        }
        // Several kernels can have one name where names leave out parameters. A link could lead to one of them only.
        let namesakes = by_name.get(&(kernel.arch.name.as_str(), kernel.name.as_str())).map_or(&[][..], Vec::as_slice);
        if kernel.name.len() > LONGEST {
            let message =
                format!("the name {} is longer than file names; the C++ backend will not find it", kernel.name);
            links.notes.push(Problem::new(&kernel.place, message));
        } else if let Some(other) = namesakes.iter().find(|other| !other.same_kernel(kernel)) {
            let message = format!(
                "{} has the name {} too, because names of {} leave out parameters; the C++ backend will find neither",
                other.place, kernel.name, kernel.node.op
            );
            links.notes.push(Problem::new(&kernel.place, message));
        } else if taken.insert((&kernel.arch.name, &kernel.name)) {
            names.push(kernel.name.clone());
        }
        links.names.push(names);
    }
    links
}

/// Makes the links of a kernel under `name` to the files `stem` in the same folder, the PDI's last.
///
/// # Errors
/// What the file system said, or that something else than a link is in the way.
pub(super) fn make_links(folder: &Path, name: &str, stem: &str) -> Result<(), String> {
    let (links, files) = (KernelFiles::new(folder, name), KernelFiles::new(folder, stem));
    let pairs = links.all().into_iter().zip(files.all()).rev();
    let mut missing = Vec::new();
    for (link, file) in pairs {
        let target = Path::new(file.file_name().unwrap_or_default());
        match fs::symlink_metadata(&link) {
            Ok(there) if !there.is_symlink() => {
                return Err(format!(
                    "{} is there and is no link; remove it, or leave out 'exported_name'",
                    link.display()
                ));
            }
            Ok(_) if fs::read_link(&link).is_ok_and(|found| found == target) => {}
            _ => missing.push((link, target.to_owned())),
        }
    }
    for (link, target) in missing {
        replace(folder, &link, &target).map_err(|error| format!("link {}: {error}", link.display()))?;
    }
    Ok(())
}

/// Puts a link in place at once, also where there is another one.
fn replace(folder: &Path, link: &Path, target: &Path) -> io::Result<()> {
    let made = tempfile::Builder::new().prefix(UNFINISHED).make_in(folder, |path| symlink(target, path))?;
    made.into_temp_path().persist(link).map_err(|error| error.error)
}
