//! Embeddings from llama-server.

use super::llama::{Started, post};
use super::{Setup, on_the_array};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

const TEXTS: [&str; 3] =
    ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose by two percent."];
/// Least cosine between what the CPU and the device say of a text.
const LEAST_COSINE: f64 = 0.999;

/// Each text's embedding is that of the CPU, and two texts of one meaning are nearer to each other than to a third.
pub fn serve(setup: &Setup) -> Result<String> {
    let arguments = ["--embeddings", "--pooling", "mean", "-c", "512"];
    let embed = |started: Started| -> Result<Vec<Vec<f64>>> {
        let answer = post(&started, "/v1/embeddings", &json!({ "input": TEXTS }))?;
        started.end()?;
        embeddings(&answer)
    };
    let expected = embed(Started::on_cpu(setup, "embeddings-cpu", &arguments)?)?;
    let started = Started::on_device(setup, "embeddings", &arguments)?;
    let stats = started.stats.clone();
    let found = embed(started)?;
    let pairs = expected.iter().zip(&found).map(|(left, right)| cosine(left, right));
    let least = pairs.fold(1.0, f64::min);
    ensure!(least >= LEAST_COSINE, "a cosine of {least:.4} with the embedding of the CPU, at least {LEAST_COSINE}");
    let [near, far] = [1, 2].map(|other| cosine(&found[0], &found[other]));
    ensure!(near > far, "{:?} is as far from {:?} ({near:.3}) as from {:?} ({far:.3})", TEXTS[0], TEXTS[1], TEXTS[2]);
    Ok(format!("cosine with the CPU's at least {least:.5}, {}", on_the_array(&stats)?))
}

fn embeddings(answer: &Value) -> Result<Vec<Vec<f64>>> {
    let data = answer["data"].as_array().with_context(|| format!("no embeddings in {answer}"))?;
    ensure!(data.len() == TEXTS.len(), "{} embeddings of {} texts", data.len(), TEXTS.len());
    let numbers = |entry: &Value| -> Option<Vec<f64>> {
        entry["embedding"]
            .as_array()?
            .iter()
            .map(Value::as_f64)
            .collect::<Option<Vec<_>>>()
            .filter(|found| !found.is_empty())
    };
    data.iter().map(|entry| numbers(entry).with_context(|| format!("no embedding in {entry}"))).collect()
}

/// Of vectors that are not zero; others have none, which is no number.
fn cosine(left: &[f64], right: &[f64]) -> f64 {
    let product = |left: &[f64], right: &[f64]| left.iter().zip(right).map(|(left, right)| left * right).sum::<f64>();
    if left.len() != right.len() {
        return f64::NAN;
    }
    product(left, right) / (product(left, left) * product(right, right)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosine_tells_directions() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert!(cosine(&[1.0], &[1.0, 2.0]).is_nan() && cosine(&[0.0], &[0.0]).is_nan());
    }

    #[test]
    fn answers_without_all_embeddings_are_errors() {
        let entry = json!({"embedding": [0.5, 1]});
        assert_eq!(embeddings(&json!({"data": [entry, entry, entry]})).unwrap()[2], [0.5, 1.0]);
        assert!(embeddings(&json!({"data": [entry]})).is_err());
        assert!(embeddings(&json!({"data": [entry, entry, {"embedding": []}]})).is_err());
        assert!(embeddings(&json!({"error": "no"})).is_err());
    }
}
