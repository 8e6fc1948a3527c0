//! llama.cpp's own server and benchmark.

use super::{LIMIT, Setup, on_the_array, script};
use crate::process::{self, run_helper};
use crate::python::python;
use crate::server::{Server, free_port};
use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const SLOTS: usize = 4;
/// Chats that `chats.py` has.
const CHATS: usize = 16;

/// A chat as `chats.py` prints it.
#[derive(Debug, Deserialize)]
pub struct Chat {
    pub question: String,
    pub answer: String,
    capital: String,
}

/// Chats at once with the server at `url`; every answer has to name the capital that was asked for.
///
/// Whole texts are not compared: which chats share a batch depends on time, and so does how sums are rounded.
pub fn chats(url: &str, arguments: &[&str]) -> Result<Vec<Chat>> {
    let mut command = python();
    command.arg(script("chats.py")).arg(url).args(arguments);
    let chats: Vec<Chat> =
        serde_json::from_str(&run_helper(&mut command, LIMIT)?).context("chats.py printed no JSON")?;
    for Chat { question, answer, capital } in &chats {
        ensure!(answer.contains(capital), "{question} {answer:?}");
    }
    Ok(chats)
}

/// A llama-server that has been started for a client, and what it leaves.
pub struct Started {
    server: Server,
    /// What the device has to say; nothing comes there from the CPU.
    pub stats: PathBuf,
}

impl Started {
    /// With our device. `name` is that of its files.
    pub fn on_device(setup: &Setup, name: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = setup.session.on_cpu("llama-server")?;
        let stats = setup.prepare(&mut command, name);
        Self::start(setup, name, command, stats, arguments)
    }

    /// Without it.
    pub fn on_cpu(setup: &Setup, name: &str, arguments: &[&str]) -> Result<Self> {
        let command = setup.session.on_cpu("llama-server")?;
        Self::start(setup, name, command, PathBuf::new(), arguments)
    }

    fn start(setup: &Setup, name: &str, mut command: Command, stats: PathBuf, arguments: &[&str]) -> Result<Self> {
        let port = free_port()?;
        command.arg("-m").arg(&setup.model).args(["--host", "127.0.0.1", "--port", &port.to_string(), "--offline"]);
        command.args(arguments);
        Ok(Self { server: Server::start(name, command, port, setup.work.path())?, stats })
    }

    /// Ends it well, so that it writes what is written at the end.
    pub fn end(self) -> Result<()> {
        let status = self.server.interrupt()?;
        ensure!(status.success(), "llama-server ended with {status}");
        Ok(())
    }
}

/// What the server answers.
pub fn post(started: &Started, path: &str, body: &Value) -> Result<Value> {
    let url = format!("http://127.0.0.1:{}", started.server.port);
    let mut command = python();
    command.arg(script("post.py")).args([&url, path, &body.to_string()]);
    let answer = run_helper(&mut command, LIMIT);
    let answer = answer.with_context(|| format!("llama-server said\n{}", started.server.said()))?;
    serde_json::from_str(&answer).with_context(|| format!("llama-server answered no JSON: {answer}"))
}

/// Sixteen chats at once on four slots.
pub fn server(setup: &Setup) -> Result<String> {
    let arguments = ["--parallel", &SLOTS.to_string(), "-c", "2048"];
    let mut started = Started::on_device(setup, "llama-server", &arguments)?;
    let chats = chats(&format!("http://127.0.0.1:{}/v1", started.server.port), &[])
        .with_context(|| format!("llama-server said\n{}", started.server.said()))?;
    started.server.check_alive()?;
    ensure!(chats.len() == CHATS, "{} chats of {CHATS}", chats.len());
    fair(&uses(&started.server.said())?)?;
    let stats = started.stats.clone();
    started.end()?;
    let seen = chats.iter().take(2).map(|chat| format!("{} {:?}", chat.question, chat.answer));
    Ok(format!(
        "{CHATS} right answers, {} on each of {SLOTS} slots, {}; {}",
        CHATS / SLOTS,
        on_the_array(&stats)?,
        seen.collect::<Vec<_>>().join(" ")
    ))
}

/// All chats wait from the start and their answers are of one length: a slot that is served less often than another ends its
/// chats later, and has fewer of them.
fn fair(uses: &BTreeMap<u32, usize>) -> Result<()> {
    ensure!(uses.len() == SLOTS && uses.values().all(|chats| *chats == CHATS / SLOTS), "chats on the slots: {uses:?}");
    Ok(())
}

/// How many chats each slot has had, by what the server prints.
fn uses(said: &str) -> Result<BTreeMap<u32, usize>> {
    let mut uses = BTreeMap::new();
    for found in Regex::new(r"launch_slot_: id +(\d+) ")?.captures_iter(said) {
        *uses.entry(found[1].parse()?).or_default() += 1;
    }
    Ok(uses)
}

pub fn bench(setup: &Setup) -> Result<String> {
    let mut command = setup.session.on_cpu("llama-bench")?;
    let stats = setup.prepare(&mut command, "llama-bench");
    command.arg("-m").arg(&setup.model).args(["-p", "16", "-n", "4", "-r", "1", "-o", "json"]);
    let finished = process::run(&mut command, LIMIT)?;
    let rows: Vec<Value> = finished.json("llama-bench")?;
    ensure!(rows.len() == 2, "{} rows where a prompt and a generation were asked for", rows.len());
    let backends = rows.iter().map(|row| row["backends"].as_str().unwrap_or_default().to_owned());
    let backends = backends.collect::<Vec<_>>().join(", ");
    ensure!(
        rows.iter().all(|row| row["backends"].as_str().is_some_and(|names| names.contains("HSA"))),
        "ran on {backends}"
    );
    Ok(format!("{} rows with the backends {backends}, {}", rows.len(), on_the_array(&stats)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chats_are_counted_by_slot() {
        let said = "0.01 I slot launch_slot_: id  0 | task 0 | processing\n0.02 I slot launch_slot_: id  3 | task 1 | p\n\
                    0.03 I slot      release: id  0 | task 0\n0.04 I slot launch_slot_: id  0 | task 2 | p\n";
        assert_eq!(uses(said).unwrap(), BTreeMap::from([(0, 2), (3, 1)]));
    }

    #[test]
    fn a_slot_with_fewer_chats_is_named() {
        fair(&BTreeMap::from([(0, 4), (1, 4), (2, 4), (3, 4)])).unwrap();
        for unfair in [BTreeMap::from([(0, 5), (1, 4), (2, 4), (3, 3)]), BTreeMap::from([(0, 8), (1, 8)])] {
            assert!(fair(&unfair).unwrap_err().to_string().contains("chats on the slots"));
        }
    }
}
