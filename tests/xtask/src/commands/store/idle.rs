//! States in which the array does nothing: it is told, once, or it is an error.
//!
//! The first device looks like a real NPU: the driver for NPUs on the simulated kernel device, without leave to use reference
//! kernels. The others are simulated ones without a kernel.

use super::{CACHE, Rig, Row, text_of};
use crate::generation::{library_messages, require_success};
use crate::process::{self, Finished};
use crate::session::Session;

use anyhow::{Result, ensure};
use std::time::Duration;

/// The beginning of the warning about a device that is not offered.
const NOT_OFFERED: &str = "not offered, since everything would run on the host";
/// The beginning of the warning at the end of a run.
pub(super) const NOTHING_RAN: &str = "nothing ran on the NPU: dispatches 0, nodes on the host";
/// What an error names.
const FORBIDDEN: &str = "which GGML_HSA_REQUIRE_ARRAY forbids";

/// Whether exactly one message has `part`.
pub(super) fn once(messages: &[String], part: &str) -> Result<()> {
    let count = messages.iter().filter(|line| line.contains(part)).count();
    ensure!(count == 1, "`{part}` was told {count} times and not once: {messages:?}");
    Ok(())
}

/// Adds the states. `text` is what a run on the array generates.
pub(super) fn check(rig: &Rig, rows: &mut Vec<Row>, text: &str) -> Result<()> {
    let npu = rig.session.on_simulated_npu()?;
    let finished = run(rig, &npu, &[], "idle-1")?;
    judge(rows, "an NPU for which no kernel can come", || {
        require_success(&finished)?;
        let mut messages = library_messages(&finished.stderr);
        // About the machine that the test runs on.
        messages.retain(|line| !line.contains("ulimit -l"));
        once(&messages, NOT_OFFERED)?;
        ensure!(messages.len() == 1, "the library said more: {messages:?}");
        let advice = ["GGML_HSA_KERNEL_DIR", "ggml-hsa-gen-kernels", "GGML_HSA_JIT", "no compiler"];
        ensure!(advice.iter().all(|part| messages[0].contains(part)), "it should say {advice:?}: {}", messages[0]);
        Ok(())
    });
    let finished = run(rig, &npu, &[("GGML_HSA_REQUIRE_ARRAY", "1")], "idle-2")?;
    judge(rows, "the same, and the array is required", || forbidden(&finished));

    let required = ("GGML_HSA_REQUIRE_ARRAY", "1");
    let jit = "GGML_HSA_JIT";
    let fallback = "GGML_HSA_CPU_FALLBACK";
    for (state, environment, cache) in [
        ("the array required, no kernels", vec![required, (jit, "off")], "idle-3"),
        ("the same without work on the host", vec![required, (jit, "off"), (fallback, "off")], "idle-4"),
        ("the array required, kernels on their way", vec![required, (jit, "background")], "idle-5"),
    ] {
        let finished = run(rig, &rig.session, &environment, cache)?;
        judge(rows, state, || forbidden(&finished));
    }
    rig.check(rows, "the array required, and there", &[required], |run| {
        ensure!(run.text == *text && run.array() > 0, "the text is another: {}", run.text);
        ensure!(run.messages.is_empty(), "the library said {:?}", run.messages);
        Ok(())
    })?;

    // llama-bench drops what ggml logs.
    let mut command = rig.session.on_device("llama-bench", None)?;
    command.arg("-m").arg(&rig.request.model).args(["-p", "4", "-n", "2", "-r", "1"]);
    command.env(CACHE, rig.fresh("idle-6")?).env(jit, "off");
    let finished = process::run_watched(&mut command, Duration::from_secs(1800), |_| ())?;
    judge(rows, "no kernels, and a program that drops ggml's log", || {
        require_success(&finished)?;
        once(&library_messages(&finished.stderr), NOTHING_RAN)
    });
    Ok(())
}

fn run(rig: &Rig, session: &Session, environment: &[(&str, &str)], cache: &str) -> Result<Finished> {
    let mut command = session.on_device("llama-completion", None)?;
    command.env_remove("GGML_HSA_REFERENCE_KERNELS");
    command.env(CACHE, text_of(&rig.fresh(cache)?)?).envs(environment.iter().copied());
    rig.request.run(command, |_| ())
}

/// The program ends with an error, by itself, and the message names node, operation, types, extents and reason.
fn forbidden(finished: &Finished) -> Result<()> {
    let messages = library_messages(&finished.stderr);
    ensure!(finished.status.code().is_some_and(|code| code > 0), "it ended with {}: {messages:?}", finished.describe());
    let told = messages.iter().find(|line| line.contains(FORBIDDEN));
    let complete = told.is_some_and(|line| {
        let named = ["node \"", " of ", " to f32 ["].iter().all(|part| line.contains(part));
        named && ["no kernel ", "is being compiled"].iter().any(|part| line.contains(part))
    });
    ensure!(complete, "no message names the node and says why: {messages:?}");
    Ok(())
}

fn judge(rows: &mut Vec<Row>, state: &'static str, expect: impl FnOnce() -> Result<()>) {
    let problem = expect().err().map(|problem| problem.to_string());
    rows.push(Row { state, kernels: "none".into(), array: 0, host: 0, problem });
}
