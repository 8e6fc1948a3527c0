//! Debian's lemonade-server, which starts Debian's llama-server for each model.

use super::llama::chats;
use super::{Setup, on_the_array};
use crate::files;
use crate::server::{Server, free_port};
use crate::testbed::clean_root::{CleanRoot, USER};
use anyhow::{Context, Result};
use serde_json::json;
use std::fs;

/// In a Debian root of its own: the daemon takes llama-server from there.
pub fn serve(setup: &Setup) -> Result<String> {
    let root = CleanRoot::new(&setup.options.testbed, setup.options.offline)?;
    root.install(&["lemonade-server", "llama.cpp-tools"])?;
    files::write(&root.path().join("etc/hosts"), "127.0.0.1 localhost\n")?;
    root.give(&setup.model)?;
    let program = root.give_library(setup.options.offline)?;
    // Models that are files, and nothing from the network.
    let settings = json!({
        "extra_models_dir": format!("/home/{USER}"), "offline": true, "broadcast": false, "ctx_size": 512
    });
    let folder = root.home().join(".config/lemonade");
    fs::create_dir_all(&folder)?;
    files::write(&folder.join("config.json"), &settings.to_string())?;
    root.own_home()?;

    let port = free_port()?;
    let words = [
        "env",
        "GGML_HSA_STATS=stats.json",
        &program,
        "run",
        "--device",
        &setup.session.device,
        "lemond",
        "--port",
        &port.to_string(),
    ];
    let mut server = Server::start("lemonade-server", root.command(Some(USER), &words), port, setup.work.path())?;
    let model = setup.model.file_stem().context("a model without a name")?.to_string_lossy();
    let arguments = ["--model", &model, "--chats", "2", "--unload"];
    let chats = chats(&format!("http://127.0.0.1:{port}/api/v1"), &arguments)
        .with_context(|| format!("lemonade-server said\n{}", server.said()))?;
    server.check_alive()?;
    // llama-server has ended, and has written its statistics.
    let array = on_the_array(&root.home().join("stats.json"))?;
    let seen = chats.iter().map(|chat| format!("{} {:?}", chat.question, chat.answer)).collect::<Vec<_>>();
    Ok(format!("{array}; {}", seen.join(" ")))
}
