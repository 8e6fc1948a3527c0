//! Speculative decoding in llama-server: a draft model proposes tokens, the model verifies several at once, both on the device.

use super::llama::{Started, post};
use super::{PROMPT, Setup, TOKENS, on_the_array};
use anyhow::{Context, Result, ensure};
use serde_json::json;

/// The model is its own draft, so that its tokens are accepted.
pub fn serve(setup: &Setup) -> Result<String> {
    let model = setup.model.to_string_lossy();
    let started = Started::on_device(setup, "draft", &["--spec-type", "draft-simple", "-md", &model, "-c", "512"])?;
    let body = json!({ "prompt": PROMPT, "n_predict": TOKENS, "temperature": 0, "seed": 1, "ignore_eos": true });
    let answer = post(&started, "/completion", &body)?;
    let stats = started.stats.clone();
    started.end()?;
    let text = answer["content"].as_str().with_context(|| format!("no text in {answer}"))?;
    setup.judge(text)?;
    let [drafted, accepted] = ["draft_n", "draft_n_accepted"].map(|name| answer["timings"][name].as_u64().unwrap_or(0));
    ensure!(accepted > 0, "{accepted} of {drafted} drafted tokens were accepted, of a model that is its own draft");
    Ok(format!("{text:?}, {accepted} of {drafted} drafted tokens accepted, {}", on_the_array(&stats)?))
}
