//! Broken machines: each one's report names the cause and a fix, and after the fix there is nothing left to report.
//!
//! A machine is a tree of files that a test process looks at. A row breaks a machine in order, and does to the tree
//! what the fix does to a machine.

mod broken;
mod broken_machines;
mod broken_setups;
mod rig;

use super::checks;
use super::finding::{Finding, Level};
use broken::Broken;
use broken_machines::MACHINES;
use broken_setups::SETUPS;
use rig::{DEVICE, Rig};

/// All rows.
fn broken() -> impl Iterator<Item = &'static Broken> {
    MACHINES.iter().chain(SETUPS)
}

fn problems(rig: &Rig) -> Vec<Finding> {
    checks::all(&rig.machine()).into_iter().filter(|finding| finding.level >= Level::Warning).collect()
}

#[test]
fn a_machine_in_order_has_no_problems() {
    let rig = Rig::new();
    assert_eq!(problems(&rig), []);
    let ok = checks::all(&rig.machine()).iter().filter(|finding| finding.level == Level::Ok).count();
    assert!(ok >= 10, "{ok} checks");
}

/// Some NPUs work so: only opening shows whether this one does.
#[test]
fn passing_addresses_through_is_a_note() {
    let breaks: [fn(&mut Rig); 2] =
        [|rig| rig.boot("iommu=pt"), |rig| rig.write(&format!("{DEVICE}/iommu_group/type"), "identity\n")];
    for breaks in breaks {
        let mut rig = Rig::new();
        breaks(&mut rig);
        assert_eq!(problems(&rig), []);
        let note = |finding: &Finding| finding.level == Level::Note && finding.text.contains("which opening shows");
        assert!(checks::all(&rig.machine()).iter().any(note), "{:#?}", checks::all(&rig.machine()));
    }
}

#[test]
fn every_broken_machine_is_named_with_a_fix_that_works() {
    let mut failures = Vec::new();
    for Broken { name, breaks, check, level, cause, fix, fixes } in broken() {
        let mut rig = Rig::new();
        breaks(&mut rig);
        let found = problems(&rig);
        let named = found.iter().find(|finding| finding.check == *check && finding.text.contains(cause));
        match named {
            None => failures.push(format!("{name}: no `{check}` with `{cause}` in {found:#?}")),
            Some(finding) if finding.level != *level => failures.push(format!("{name}: {finding:?}")),
            Some(finding) if !finding.fix.as_ref().is_some_and(|text| text.contains(fix)) => {
                failures.push(format!("{name}: `{fix}` is not in {finding:#?}"));
            }
            Some(_) => {}
        }
        fixes(&mut rig);
        let left = problems(&rig);
        if !left.is_empty() {
            failures.push(format!("{name}: after the fix there is {left:#?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(broken().count() >= 20, "{} machines", broken().count());
}

#[test]
fn names_of_the_user_are_in_no_finding() {
    for broken in broken() {
        let mut rig = Rig::new();
        (broken.breaks)(&mut rig);
        let machine = rig.machine();
        let redactor = super::privacy::Redactor::of(&machine);
        for finding in checks::all(&machine).into_iter().map(|finding| redactor.clean(finding)) {
            let text = format!("{} {}", finding.text, finding.fix.unwrap_or_default());
            assert!(!text.contains("/home/ada"), "{}: {text}", broken.name);
        }
    }
}
