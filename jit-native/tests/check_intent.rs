//! Recorded dataflow: the checker tells a pipelined loop that gets the values of its own iterations from one that does not,
//! although both keep all rules of the core.

use aie_isa::{Isa, Slot};
use aie_jit_native::check::intent::{Intended, IntendedLoop, IntendedRead, Intent, Origin, ReadOperand};
use aie_jit_native::check::{Finding, Problem, Program, check, check_with};
use rstest::rstest;

/// Instructions of the source: `b[i] = 2 * a[i]`.
const LOAD: u32 = 0;
const ADD: u32 = 1;
const STORE: u32 = 2;

/// A bundle of 16 bytes, and what its instruction is.
struct Line {
    text: String,
    intended: Option<Intended>,
}

fn plain(text: &str) -> Line {
    Line { text: text.into(), intended: None }
}

/// An instruction of an iteration that reads a value of the same iteration.
fn of(text: &str, source: u32, iteration: i8, read: Option<(&str, u32)>) -> Line {
    let isa = Isa::aie2();
    let code = isa.assemble(text).unwrap();
    let bundle = isa.decode(&code).unwrap();
    let instruction = bundle.instructions().next().unwrap().instruction;
    let reads = read.map(|(operand, source)| IntendedRead {
        operand: ReadOperand::Operand(instruction.operand(operand).unwrap() as u8),
        from: vec![Origin { source, distance: Some(0) }],
    });
    let intended = Intended { source, iteration: Some((0, iteration)), reads: reads.into_iter().collect() };
    Line { text: text.into(), intended: Some(intended) }
}

/// The loop in two stages: it loads for the next iteration while it adds and stores for the current one.
///
/// `before`: bundles between the first load and the body. `within`: further bundles of the body.
fn pipelined(before: usize, within: usize) -> (Vec<u8>, Intent) {
    let load = |iteration| of("lda r1, [p0], #4", LOAD, iteration, None);
    let add = |iteration| of("add r2, r1, r1", ADD, iteration, Some(("mRx0", LOAD)));
    let store = |iteration| of("st r2, [p1], #4", STORE, iteration, Some(("mSclSt", ADD)));
    let nops = |count: usize| (0..count).map(|_| plain("nop"));
    let mut lines = vec![plain("movxm p0, #0x70000"), plain("movxm p1, #0x70400")];
    lines.extend([plain("movxm ls, #body"), plain("movxm le, #last"), plain("mova lc, #4")]);
    let start = lines.len();
    lines.push(load(0));
    lines.extend(nops(before));
    let body = lines.len();
    lines.extend([add(0), load(1), store(0)]);
    lines.extend(nops(within));
    let last = lines.len();
    lines.push(plain("nop"));
    lines.extend(nops(6));
    lines.extend([add(1), store(1), plain("done")]);
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let label = if index == body {
            "body: "
        } else if index == last {
            "last: "
        } else {
            ""
        };
        text += &format!("{label}.128 {}\n", line.text);
    }
    let isa = Isa::aie2();
    let code = isa.assemble(&text).unwrap();
    let address = |index: usize| 16 * index as u32;
    let slot = |index: usize| -> Slot {
        let bundle = isa.decode(&code[16 * index..]).unwrap();
        bundle.instructions().next().unwrap().instruction.slot
    };
    let intended = lines.iter().enumerate().filter_map(|(index, line)| Some((index, line.intended.clone()?)));
    let instructions = intended.map(|(index, intended)| ((address(index), slot(index)), intended)).collect();
    let loops = vec![IntendedLoop { start: address(start), body: address(body), last: address(last) }];
    (code, Intent { instructions, loops })
}

fn wrong(code: &[u8], intent: &Intent) -> Vec<(Option<i16>, String)> {
    let report = check_with(&Program::new(Isa::aie2(), code), intent);
    let wrong = |finding: &Finding| match &finding.problem {
        Problem::WrongValue { distance, .. } => Some((*distance, finding.bundle.clone())),
        _ => None,
    };
    report.findings.iter().filter_map(wrong).collect()
}

#[test]
fn every_iteration_gets_its_own_values() {
    for within in 4..10 {
        let (code, intent) = pipelined(6, within);
        assert_eq!(wrong(&code, &intent), [], "{within} further bundles");
        assert_eq!(check(&Program::new(Isa::aie2(), &code)).rejections().count(), 0);
    }
}

/// The body is a bundle too short: a value arrives when the next iteration has already read, and the one after it gets it.
#[test]
fn a_value_of_another_iteration_is_wrong() {
    let (code, intent) = pipelined(6, 3);
    assert_eq!(
        check(&Program::new(Isa::aie2(), &code)).errors().count(),
        0,
        "the program alone does not say what is meant"
    );
    // The second iteration gets the value of the load in front of the loop, those after it that of the body's.
    let late = (Some(1), "add r2, r1, r1".to_owned());
    assert_eq!(wrong(&code, &intent), [late.clone(), late]);
}

#[test]
fn nothing_has_arrived_in_the_first_iteration() {
    let (code, intent) = pipelined(5, 4);
    assert_eq!(wrong(&code, &intent), [(None, "add r2, r1, r1".to_owned())]);
}

/// What is recorded decides: values of other instructions and of other iterations are wrong.
#[rstest]
#[case::instruction(Origin { source: STORE, distance: Some(0) })]
#[case::iteration(Origin { source: LOAD, distance: Some(1) })]
fn other_origins_are_wrong(#[case] origin: Origin) {
    let (code, mut intent) = pipelined(6, 4);
    for intended in intent.instructions.values_mut().filter(|intended| intended.source == ADD) {
        intended.reads[0].from = vec![origin];
    }
    // In the body, from the load in front of it and from its own, and behind it.
    assert_eq!(wrong(&code, &intent).len(), 3);
}

/// An outer loop runs the pipelined loop again: what the run before has left is not taken for the new one's.
#[test]
fn what_an_earlier_run_has_left_is_not_of_this_one() {
    let (code, intent) = pipelined(6, 4);
    let isa = Isa::aie2();
    let body = &code[..code.len() - 16];
    let again = format!(".128 j #0\n{}", ".128 nop\n".repeat(5));
    let code = [body, &isa.assemble(&again).unwrap()].concat();
    assert_eq!(wrong(&code, &intent), []);
    // Without the first load, the first iteration of each run gets what is left of the run before, or nothing.
    let nop = isa.assemble(".128 nop").unwrap();
    let without = [&code[..5 * 16], &nop, &code[6 * 16..]].concat();
    let mut intent = intent;
    intent.instructions.retain(|(address, _), _| *address != 5 * 16);
    assert!(!wrong(&without, &intent).is_empty());
}
