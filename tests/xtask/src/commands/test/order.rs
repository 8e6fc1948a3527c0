//! Which stage starts next: the first in the list that nothing forbids.
//!
//! A stage waits for those named in [`Stage::after`] as long as they run or wait themselves, and for company that it does not bear.

use super::stage::{Company, Stage};

/// Stages that run side by side. What one stage leaves idle another uses; with more of them, each only takes longer.
pub const LANES: usize = 2;

/// The place in `waiting` of the stage to start beside `running`; none if one of these has to end first. There is one if nothing runs,
/// as stages wait for earlier ones only.
pub fn next(waiting: &[&Stage], running: &[&Stage]) -> Option<usize> {
    let is_unfinished = |name: &&str| waiting.iter().chain(running).any(|stage| stage.name == *name);
    waiting.iter().position(|stage| {
        !stage.after.iter().any(is_unfinished) && running.iter().all(|other| bears(stage.company, other.company))
    })
}

/// Whether two stages may run side by side.
const fn bears(one: Company, other: Company) -> bool {
    match (one, other) {
        (Company::None, _) | (_, Company::None) | (Company::GivesWay, Company::GivesWay) => false,
        (Company::Any | Company::GivesWay, Company::Any) | (Company::Any, Company::GivesWay) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::tests::trial;
    use super::super::stage::{STAGES, choose};
    use super::*;

    /// The names in the order in which they start and end, where the one that runs longest ends first.
    fn run(stages: &[&Stage], lanes: usize) -> Vec<String> {
        let (mut waiting, mut running, mut log) = (stages.to_vec(), Vec::new(), Vec::new());
        loop {
            while running.len() < lanes
                && let Some(place) = next(&waiting, &running)
            {
                log.push(format!("+{}", waiting[place].name));
                running.push(waiting.remove(place));
            }
            if running.is_empty() {
                assert!(waiting.is_empty(), "nothing starts");
                return log;
            }
            log.push(format!("-{}", running.remove(0).name));
        }
    }

    #[test]
    fn the_first_that_may_start_does() {
        let [a, b] = [trial("a", &[], Company::Any), trial("b", &["a"], Company::Any)];
        let [c, d] = [trial("c", &[], Company::Any), trial("d", &["b", "c"], Company::Any)];
        let stages = [&a, &b, &c, &d];
        assert_eq!(run(&stages, 2), ["+a", "+c", "-a", "+b", "-c", "-b", "+d", "-d"]);
        assert_eq!(run(&stages, 1), ["+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"]);
        // Stages that do not run are not waited for.
        assert_eq!(run(&[&d, &b], 2), ["+b", "-b", "+d", "-d"]);
    }

    #[test]
    fn what_bears_no_company_is_alone() {
        let [a, b] = [trial("a", &[], Company::Any), trial("b", &[], Company::Any)];
        let [alone, clock] = [trial("alone", &[], Company::None), trial("clock", &[], Company::GivesWay)];
        let other = trial("other", &[], Company::GivesWay);
        assert_eq!(run(&[&a, &alone, &b], 2), ["+a", "+b", "-a", "-b", "+alone", "-alone"]);
        assert_eq!(run(&[&alone, &a], 2), ["+alone", "-alone", "+a", "-a"]);
        assert_eq!(run(&[&clock, &other, &a], 2), ["+clock", "+a", "-clock", "+other", "-a", "-other"]);
    }

    #[test]
    fn all_stages_run_whatever_is_left_out() {
        for lanes in 1..4 {
            assert_eq!(run(&choose(&[], &[]), lanes).len(), 2 * STAGES.len());
            for stage in STAGES {
                let some = choose(&[], &[stage.name.to_owned()]);
                assert_eq!(run(&some, lanes).len(), 2 * STAGES.len() - 2, "without {}", stage.name);
            }
        }
    }
}
