//! The checker finds what is wrong, and nothing in what is right: pairs of programs that differ in one mistake.

use aie_isa::Isa;
use aie_jit_native::check::{Program, Report, Severity, Stack, check};
use rstest::rstest;

fn report(text: &str) -> Report {
    let isa = Isa::aie2();
    check(&Program::new(isa, &isa.assemble(text).unwrap()))
}

/// The rules that a program breaks.
fn rules(text: &str) -> Vec<&'static str> {
    let mut rules: Vec<_> = report(text).findings.iter().map(|finding| finding.problem.rule()).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

fn nops(count: usize) -> String {
    "nop\n".repeat(count)
}

/// A loop of `body`, whose last bundle is `last`, far enough behind the setting of its registers.
fn hardware_loop(body: &str, last: &str) -> String {
    let start = "mova r1, #0\nmova r2, #0\nmova r3, #0\nmova r4, #0\nmovxm p0, #0x70000";
    format!(
        "{start}\nmovxm ls, #body\nmovxm le, #last\nmova lc, #4\n{}.align 16\nbody: {body}\n.align 16\nlast: .128 {last}\n\
         st r1, [p0, #0]\nst r4, [p0, #0]\ndone",
        nops(8)
    )
}

const POINTER: &str = "movxm p0, #0x70000\n";

#[rstest]
#[case::latency(
    &format!("{POINTER}lda r1, [p0, #0]\n{}add r2, r1, r1\nst r2, [p0, #4]\ndone", nops(6)),
    &format!("{POINTER}lda r1, [p0, #0]\n{}add r2, r1, r1\nst r2, [p0, #4]\ndone", nops(5)),
    &["never seen", "undefined"]
)]
#[case::latency_of_a_product(
    &format!("{POINTER}mova r1, #3\nmul r2, r1, r1\nnop\nst r2, [p0, #0]\ndone"),
    &format!("{POINTER}mova r1, #3\nmul r2, r1, r1\nst r2, [p0, #0]\ndone"),
    &["never seen", "undefined"]
)]
#[case::latency_on_one_path(
    &format!("{POINTER}mova r0, #1\nmova r1, #0\nlda r1, [p0, #0]; jz r0, #join\n{}.align 16\njoin: nop\nadd r2, r1, r1\nst r2, [p0, #4]\ndone", nops(5)),
    &format!("{POINTER}mova r0, #1\nmova r1, #0\nlda r1, [p0, #0]; jz r0, #join\n{}nop\n.align 16\njoin: add r2, r1, r1\nst r2, [p0, #4]\ndone", nops(5)),
    &["depends on path"]
)]
#[case::two_values_in_one_cycle(
    &format!("{POINTER}mova r2, #0\nlda r1, [p0, #0]\n{}add r1, r2, r2\nst r1, [p0, #4]\ndone", nops(6)),
    &format!("{POINTER}mova r2, #0\nlda r1, [p0, #0]\n{}add r1, r2, r2\nst r1, [p0, #4]\ndone", nops(5)),
    &["written twice"]
)]
#[case::write_port(
    "mova r2, #0\nmul r1, r2, r2\nnop\nadd r3, r2, r2\ndone",
    "mova r2, #0\nmul r1, r2, r2\nadd r3, r2, r2\ndone",
    &["unit"]
)]
#[case::part_of_a_word(
    &format!("{POINTER}mova r2, #0\nst.s8 r2, [p0, #0]\n{}lda r1, [p0, #4]\ndone", nops(6)),
    &format!("{POINTER}mova r2, #0\nst.s8 r2, [p0, #0]\n{}lda r1, [p0, #4]\ndone", nops(5)),
    &["unit"]
)]
#[case::undefined("mova r1, #0\nadd r2, r1, r1\ndone", "mova r1, #0\nadd r2, r1, r3\ndone", &["undefined"])]
#[case::undefined_on_a_path(
    &format!("mova r0, #0\nmova r1, #0\njz r0, #over\n{}mova r1, #2\n.align 16\nover: add r2, r1, r1\ndone", nops(5)),
    &format!("mova r0, #0\njz r0, #over\n{}mova r1, #2\n.align 16\nover: add r2, r1, r1\ndone", nops(5)),
    &["undefined on a path"]
)]
#[case::end_without_branch("mova r1, #0\ndone", "mova r1, #0", &["no code"])]
#[case::delay_slots_that_are_missing(&format!("j #0\n{}", nops(5)), &format!("j #0\n{}", nops(4)), &["no code"])]
#[case::branch_in_delay_slots(
    &format!("j #16\n{}.align 16\nj #0\n{}", nops(5), nops(5)),
    &format!("j #0\n{}j #0\n{}", nops(4), nops(5)),
    &["branch in delay slots"]
)]
#[case::branch_in_delay_slots_of_one_not_taken(
    &format!("mova r0, #0\njnz r0, #0\n{}jnz r0, #0\n{}done", nops(5), nops(5)),
    &format!("mova r0, #0\njnz r0, #0\n{}jnz r0, #0\n{}done", nops(4), nops(5)),
    &["branch in delay slots"]
)]
#[case::target_within_a_bundle(
    &format!("j #16\n{}.align 16\ndone", nops(5)),
    &format!("nop\nj #4\n{}done", nops(5)),
    &["target alignment", "within a bundle"]
)]
#[case::target_alignment(
    &format!("j #16\n{}.align 16\ndone", nops(5)),
    &format!("j #there\n{}.align 16\nnop\nthere: done", nops(5)),
    &["target alignment"]
)]
#[case::target_without_code(&format!("j #0\n{}", nops(5)), &format!("j #0x400\n{}", nops(5)), &["no code"])]
#[case::store_before_release(
    &format!("{POINTER}mova r1, #1\nst r1, [p0, #0]\n{}rel #48, r1\ndone", nops(3)),
    &format!("{POINTER}mova r1, #1\nst r1, [p0, #0]\n{}rel #48, r1\ndone", nops(2)),
    &["lock too early"]
)]
#[case::load_behind_acquire(
    &format!("{POINTER}mova r1, #-1\nacq #48, r1\n{}lda r1, [p0, #0]\ndone", nops(3)),
    &format!("{POINTER}mova r1, #-1\nacq #48, r1\n{}lda r1, [p0, #0]\ndone", nops(2)),
    &["access too early"]
)]
#[case::two_locks(
    &format!("mova r1, #-1\nacq #48, r1\n{}acq #49, r1\ndone", nops(3)),
    &format!("mova r1, #-1\nacq #48, r1\n{}acq #49, r1\ndone", nops(2)),
    &["unit"]
)]
#[case::address_outside(
    "movxm p0, #0x7fffc\nlda r1, [p0, #0]\ndone",
    "movxm p0, #0x7fffc\nlda r1, [p0, #4]\ndone",
    &["address"]
)]
#[case::address_after_a_step(
    "movxm p0, #0x70000\nlda r1, [p0], #4\nlda r1, [p0, #0]\ndone",
    "movxm p0, #0x40000\nlda r1, [p0], #-4\nlda r1, [p0, #0]\ndone",
    &["address"]
)]
#[case::unaligned(
    "movxm p0, #0x70020\nvlda wl0, [p0, #0]\ndone",
    "movxm p0, #0x70010\nvlda wl0, [p0, #0]\ndone",
    &["unaligned"]
)]
#[case::loop_end(
    &hardware_loop("nop", "nop"),
    &hardware_loop("nop", "nop").replace(".128 nop", "nop"),
    &["loop end"]
)]
#[case::loop_end_not_aligned(
    &hardware_loop("nop", "nop"),
    &hardware_loop("nop", "nop").replace("last:", "nop\nlast:"),
    &["loop end"]
)]
#[case::loop_start_not_aligned(
    &hardware_loop("nop", "nop"),
    &hardware_loop("nop", "nop").replace("body:", "nop\nbody:"),
    &["loop start"]
)]
#[case::two_values_in_one_cycle_across_iterations(
    &hardware_loop(".128 add r1, r2, r3\n.128 add r4, r1, r1", "lda r1, [p0, #0]").replace("st r1", &format!("{}st r1", nops(6))),
    &hardware_loop(".128 add r1, r2, r3\n.128 add r4, r1, r1\n.128 nop\n.128 nop", "lda r1, [p0, #0]")
        .replace("st r1", &format!("{}st r1", nops(6))),
    &["written twice"]
)]
#[case::write_port_across_iterations(
    &hardware_loop(".128 nop\n.128 add r4, r2, r2", "mul r1, r2, r3").replace("st r1", "nop\nst r1"),
    &hardware_loop(".128 add r4, r2, r2\n.128 nop", "mul r1, r2, r3").replace("st r1", "nop\nst r1"),
    &["unit"]
)]
#[case::loop_end_in_delay_slots(
    &hardware_loop(&format!("jz r2, #body\n{}", nops(5)), "nop"),
    &hardware_loop(".128 jz r2, #body\n.128 nop", "nop"),
    &["loop end in delay slots"]
)]
#[case::part_word_store_in_the_last_bundle(
    &hardware_loop(&format!("st.s16 r1, [p0, #0]\n{}", nops(8)), "nop"),
    &hardware_loop(&nops(8), "st.s16 r1, [p0, #0]").replace("\nst r1", &format!("\n{}st r1", nops(8))),
    &["part word store at loop end"]
)]
#[case::part_word_store_in_the_last_bundle_but_one(
    &hardware_loop(&format!(".128 st.s16 r1, [p0, #0]\n{}", ".128 nop\n".repeat(8)), "nop"),
    &hardware_loop(&format!("{}.128 st.s16 r1, [p0, #0]", ".128 nop\n".repeat(8)), "nop")
        .replace("\nst r1", &format!("\n{}st r1", nops(8))),
    &["part word store at loop end"]
)]
fn a_mistake_is_found(#[case] right: &str, #[case] wrong: &str, #[case] expected: &[&str]) {
    assert_eq!(rules(right), [""; 0], "{:#?}", report(right).findings);
    assert_eq!(rules(wrong), expected, "{:#?}", report(wrong).findings);
}

/// AIE2P goes on at the beginning of the 16 bytes: that is harmless only where nothing is in front of the target.
#[test]
fn aie2p_does_not_jump_into_16_bytes_of_instructions() {
    for (isa, front, expected) in [
        (Isa::aie2p(), "mova r1, #0", Severity::Error),
        (Isa::aie2p(), "nop", Severity::Warning),
        (Isa::aie2(), "mova r1, #0", Severity::Warning),
    ] {
        let code = isa.assemble(&format!("j #there\n{}.align 16\n{front}\nthere: done", nops(5))).unwrap();
        let report = check(&Program::new(isa, &code));
        let found: Vec<_> = report.findings.iter().map(|finding| finding.problem.severity()).collect();
        assert_eq!(found, [expected], "{:#?}", report.findings);
    }
}

/// LLVM asks for seven bundles: six between the last setting and the last bundle of the loop.
#[test]
fn loop_registers_are_set_seven_bundles_before_the_end() {
    for between in 0..10 {
        let text = format!(
            "movxm ls, #last\nmovxm le, #last\n.align 16\n.128 mova lc, #4\n{}last: .128 nop\ndone",
            ".128 nop\n".repeat(between)
        );
        let late = rules(&text).contains(&"loop set late");
        assert_eq!(late, between < 6, "{between} bundles between");
    }
}

#[test]
fn what_a_callee_leaves_in_flight_arrives_at_its_caller() {
    let program = |between: usize| {
        format!(
            "{POINTER}jl #load\n{}{}add r2, r1, r1\nst r2, [p0, #4]\ndone\n.align 16\nload: ret lr\n{}lda r1, [p0, #0]",
            nops(5),
            nops(between),
            nops(4)
        )
    };
    assert_eq!(rules(&program(6)), [""; 0]);
    assert_eq!(rules(&program(5)), ["never seen", "undefined"]);
}

#[test]
fn branches_through_registers_go_where_constants_or_the_author_say() {
    let text = |target: &str| format!("{target}\n{}j p0\n{}.align 16\nthere: add r1, r2, r3\ndone", nops(6), nops(5));
    let loaded = text("lda p0, [sp, #-4]");
    assert_eq!(rules(&text("movxm p0, #there")), ["undefined"]);
    assert_eq!(rules(&loaded), ["unknown target"]);
    let isa = Isa::aie2();
    let code = isa.assemble(&loaded).unwrap();
    let at = |wanted: &str| {
        let found = isa.listing(&code).find(|line| line.bundle.as_ref().is_ok_and(|bundle| isa.text(bundle) == wanted));
        found.unwrap().address as u32
    };
    let program = Program::new(isa, &code).with_targets(at("j p0"), [at("add r1, r2, r3")]);
    let report = check(&program);
    assert_eq!(report.bytes, code.len() - (at("add r1, r2, r3") - at("j p0") - 14) as usize, "{report:#?}");
    assert!(report.rejections().all(|finding| finding.problem.rule() == "undefined"), "{report:#?}");
}

#[test]
fn one_bank_for_two_accesses_costs_time() {
    let notes = |second: u32| {
        let text = format!("movxm p0, #0x70000\nmovxm p1, #{second:#x}\nvlda wl0, [p0, #0]; vldb wl1, [p1, #0]\ndone");
        report(&text).findings.iter().filter(|finding| finding.problem.severity() == Severity::Note).count()
    };
    assert_eq!((notes(0x7_0020), notes(0x7_4000)), (1, 0));
}

/// Of what `vlda` has loaded, on npu1, by a register that is 0.
#[test]
fn element_0_is_not_extracted_by_a_register() {
    let found = |index: u8, load: &str| {
        rules(&format!(
            "movxm p0, #0x70000\nmova r16, #{index}\n{load} wl0, [p0, #0]\n{load} wh0, [p0, #32]\n{}vextract.s32 r1, x0, r16\n\
             {}st r1, [p0, #64]\ndone",
            nops(7),
            nops(3)
        ))
    };
    assert_eq!(found(0, "vlda"), ["extract first"]);
    assert_eq!(found(1, "vlda"), [""; 0]);
    assert_eq!(found(0, "vldb"), [""; 0]);
}

/// A start as compilers make it, which calls `main` with the stack pointer set in a delay slot, and functions behind it.
fn with_stack(main: &str) -> String {
    format!("jl #main\nmovxm sp, #0x70000\n{}done\n.align 16\n{main}", nops(4))
}

/// A function with a frame, whose body begins and ends with it; the return is in front of where the frame ends.
fn function(name: &str, frame: u32, body: &str) -> String {
    format!(".align 16\n{name}: paddb [sp], #{frame}\n{body}\nret lr\n{}paddb [sp], #-{frame}\n", nops(4))
}

fn call(name: &str) -> String {
    format!("jl #{name}\n{}", nops(5))
}

#[rstest]
#[case::none("movxm p0, #0x70000\ndone".into(), None)]
#[case::of_no_bytes(with_stack(&format!("main: ret lr\n{}", nops(5))), Some(Ok(0)))]
#[case::a_function(with_stack(&function("main", 64, "")), Some(Ok(64)))]
#[case::the_deepest_of_two(
    with_stack(&[function("main", 32, &[call("a"), call("b")].concat()), function("a", 96, ""), function("b", 64, &call("c")),
        function("c", 64, "")].concat()),
    Some(Ok(160))
)]
#[case::moved_in_a_delay_slot_of_the_call(
    with_stack(&[function("main", 32, &format!("jl #a\n{}paddb [sp], #64\npaddb [sp], #-64", nops(4))), function("a", 96, "")].concat()),
    Some(Ok(192))
)]
#[case::a_call_through_a_constant(
    with_stack(&[function("main", 32, &format!("movxm p0, #a\n{}jl p0\n{}", nops(6), nops(5))), function("a", 96, "")].concat()),
    Some(Ok(128))
)]
#[case::moved_on_one_way(
    with_stack(&function("main", 32, &format!("jz r0, #over\n{}paddb [sp], #64\npaddb [sp], #-64\n.align 16\nover: nop", nops(5)))),
    Some(Ok(96))
)]
#[case::recursion(
    with_stack(&[function("main", 32, &call("a")), function("a", 32, &call("main"))].concat()),
    Some(Err("is recursive"))
)]
#[case::a_call_through_a_register(
    with_stack(&function("main", 32, &format!("lda p0, [sp, #-4]\n{}jl p0\n{}", nops(6), nops(5)))),
    Some(Err("is in a register"))
)]
#[case::no_constant("mov sp, p0\npaddb [sp], #32\ndone".into(), Some(Err("that is not constant")))]
#[case::no_value("paddb [sp], #32\ndone".into(), Some(Err("before it is set")))]
#[case::a_loop_that_pushes(
    with_stack(&format!("main: nop\n.align 16\nagain: j #again\n{}paddb [sp], #32", nops(4))),
    Some(Err("in a loop"))
)]
fn the_stack_of_a_program(#[case] text: String, #[case] expected: Option<Result<u32, &str>>) {
    match (report(&text).stack, expected) {
        (None, None) => {}
        (Some(Stack::Bytes(bytes)), Some(Ok(expected))) => assert_eq!(bytes, 0x7_0000..0x7_0000 + expected),
        (Some(Stack::Unknown(why)), Some(Err(part))) => assert!(why.contains(part), "{why}"),
        (found, expected) => panic!("{found:?}, and not {expected:?}"),
    }
}

#[test]
fn aie2p_moves_the_stack_by_another_instruction() {
    let isa = Isa::aie2p();
    let code = isa.assemble("movxm sp, #0x70400\npaddxm [sp], #128\npaddxm [sp], #-128\ndone").unwrap();
    assert_eq!(check(&Program::new(isa, &code)).stack, Some(Stack::Bytes(0x7_0400..0x7_0480)));
}

#[test]
fn a_program_fits_into_program_memory() {
    let isa = Isa::aie2();
    let code = isa.assemble(&format!("j #0\n{}", nops(8188))).unwrap();
    let rules = |code: &[u8]| check(&Program::new(isa, code)).errors().map(|f| f.problem.rule()).collect::<Vec<_>>();
    assert_eq!((code.len() <= 16384, rules(&code)), (true, vec![]));
    assert_eq!(rules(&[&code[..], &[0; 4]].concat()), ["program size"]);
}

#[rstest]
fn random_bytes_never_panic(#[values("aie2", "aie2p")] arch: &str) {
    let isa = Isa::for_arch(arch).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    // Bundles that decode are rare in random bytes; two of three programs are words of random instructions.
    let formats: Vec<_> = isa.all_formats().collect();
    for round in 0..150 {
        let mut code = Vec::new();
        while code.len() < 400 {
            if round % 3 == 0 {
                code.extend(random.u64(..).to_le_bytes());
                continue;
            }
            let format = formats[random.usize(..formats.len())];
            let mut word = format.value;
            for (slot, high, low) in &format.slots {
                let rows: Vec<_> = isa.instructions_of(*slot).collect();
                let row = rows[random.usize(..rows.len())];
                let filler = row.mask | row.zero | row.ignored;
                let bits = (row.value | random.u64(..) & !filler) & ((1 << (high - low + 1)) - 1);
                word |= u128::from(bits) << low;
            }
            code.extend(&word.to_le_bytes()[..format.bytes()]);
        }
        let report = check(&Program::new(isa, &code));
        assert!(report.bytes <= code.len());
    }
}
