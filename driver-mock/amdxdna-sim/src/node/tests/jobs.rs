//! Jobs behind the caller.

use super::rig::{context, rig_with};
use amdxdna_sys::ert::state;
use nix::errno::Errno;
use rstest::rstest;
use std::time::{Duration, Instant};

#[test]
fn four_jobs_of_a_context_wait_and_a_fifth_ends_the_wait_for_a_stuck_one() {
    let rig = rig_with("", "timeout@1");
    let (context, instructions) = rig.ready("add 1");
    let chains: Vec<u32> = (0..5).map(|_| rig.chain(&[rig.command(0, instructions, 0, 64, 4)])).collect();
    for (sequence, chain) in (0..4).zip(&chains) {
        assert_eq!(rig.file.exec_cmd(context, *chain, &[rig.data]), Ok(sequence));
    }
    let line = rig.file.state.lock().contexts[&context].line.clone();
    assert_eq!(line.wait(3, 50), Err(Errno::ETIME), "the first never signals");
    assert_eq!(line.counts(), (4, 0));
    assert_eq!(rig.file.exec_cmd(context, chains[4], &[rig.data]), Ok(4));
    rig.ended(context, 4);
    let states: Vec<_> = chains.iter().map(|chain| rig.state(*chain)).collect();
    assert_eq!(states, [[state::TIMEOUT; 4].as_slice(), &[state::COMPLETED]].concat());
}

#[rstest]
#[case::set_up_again("", state::COMPLETED)]
#[case::dead("hung=dead", state::ABORT)]
fn a_context_after_a_hang_is_as_the_machine_has_it(#[case] machine: &str, #[case] expected: u32) {
    let rig = rig_with(machine, "timeout@1");
    let (context, instructions) = rig.ready("add 1");
    let run = || rig.run(context, rig.chain(&[rig.command(0, instructions, 0, 64, 4)]), &[rig.data]);
    assert_eq!([run(), run(), run()], [state::TIMEOUT, expected, expected]);
    let (other, instructions) = rig.ready("add 1");
    let chain = rig.chain(&[rig.command(0, instructions, 0, 64, 4)]);
    assert_eq!(rig.run(other, chain, &[rig.data]), state::COMPLETED, "another context");
}

#[test]
fn pdis_that_a_machine_does_not_run_never_signal() {
    let rig = rig_with("pdis=1", "");
    let context = context(&rig.file, 32).unwrap();
    rig.configure(context, &[rig.pdi("add 1"), rig.pdi("add 2")]).unwrap();
    let instructions = rig.instructions();
    let run = |unit| rig.run(context, rig.chain(&[rig.command(unit, instructions, 0, 64, 4)]), &[rig.data]);
    assert_eq!([run(0), run(1), run(0)], [state::COMPLETED, state::TIMEOUT, state::COMPLETED]);
}

#[test]
fn a_stuck_job_ends_by_the_clock_too() {
    let rig = rig_with("", "timeout@1");
    let (context, instructions) = rig.ready("add 1");
    let chain = rig.chain(&[rig.command(0, instructions, 0, 64, 4)]);
    rig.file.exec_cmd(context, chain, &[rig.data]).unwrap();
    let line = rig.file.state.lock().contexts[&context].line.clone();
    let start = Instant::now();
    // Waits of a millisecond pass a millisecond each, and polling passes what the clock says.
    while line.wait(0, 1) == Err(Errno::ETIME) {
        std::thread::sleep(Duration::from_millis(20));
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(rig.state(chain), state::TIMEOUT);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_command_is_read_when_it_runs_and_keeps_its_bos() {
    let rig = rig_with("", "");
    let (context, instructions) = rig.ready("add 5");
    let command = rig.command(0, instructions, 0, 64, 4);
    let sequence = rig.file.exec_cmd(context, command, &[rig.data]).unwrap();
    let bo = rig.file.bo(command).unwrap();
    rig.file.gem_close(command).unwrap();
    rig.ended(context, sequence);
    assert_eq!(bo.word(0).unwrap() & 0xf, state::COMPLETED);
    assert_eq!(rig.data(64, 4), [5; 4]);
}

#[test]
fn the_node_settles_at_the_end() {
    let rig = rig_with("", "timeout@2");
    let first = context(&rig.file, 4).unwrap();
    let (second, instructions) = rig.ready("add 1");
    rig.configure(first, &[rig.pdi("add 1")]).unwrap();
    for context in [first, second] {
        let chain = rig.chain(&[rig.command(0, instructions, 0, 64, 4)]);
        rig.file.exec_cmd(context, chain, &[rig.data]).unwrap();
    }
    rig.file.drain(Instant::now() + Duration::from_secs(10));
    let lines: Vec<_> = rig.file.state.lock().contexts.values().map(|context| context.line.clone()).collect();
    assert!(lines.iter().all(|line| line.counts() == (1, 1)));
}
