//! Rounds of dispatches and their times.

use anyhow::Result;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How much to run.
pub struct Rounds {
    /// Dispatches of a round.
    pub chain: usize,
    /// Rounds that are not timed.
    pub warm_up: u32,
    pub timed: u32,
}

pub struct Measured {
    total: Duration,
    fastest: Duration,
}

impl Rounds {
    /// All dispatches, those of the warm-up included.
    pub fn dispatches(&self) -> usize {
        (self.warm_up as usize + self.timed as usize) * self.chain
    }

    /// Runs all rounds and times those after the warm-up, each alone.
    pub fn run(&self, mut round: impl FnMut() -> Result<()>) -> Result<Measured> {
        for _ in 0..self.warm_up {
            round()?;
        }
        let mut measured = Measured { total: Duration::ZERO, fastest: Duration::MAX };
        for _ in 0..self.timed {
            let started = Instant::now();
            round()?;
            let elapsed = started.elapsed();
            measured.total += elapsed;
            measured.fastest = measured.fastest.min(elapsed);
        }
        Ok(measured)
    }
}

impl Measured {
    pub fn json(&self, rounds: &Rounds) -> Value {
        let per_dispatch =
            |time: Duration, rounds_in: u32| time.as_nanos() as f64 / f64::from(rounds_in) / rounds.chain as f64;
        json!({
            "chain": rounds.chain,
            "rounds": rounds.timed,
            "ns_per_dispatch": per_dispatch(self.total, rounds.timed),
            "fastest_ns_per_dispatch": per_dispatch(self.fastest, 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_runs_and_the_fastest_is_not_above_the_mean() {
        let rounds = Rounds { chain: 4, warm_up: 2, timed: 3 };
        let mut seen = 0;
        let measured = rounds
            .run(|| {
                seen += 1;
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            })
            .unwrap();
        assert_eq!((seen, rounds.dispatches()), (5, 20));
        let json = measured.json(&rounds);
        let number = |name: &str| json[name].as_f64().unwrap();
        assert!(number("fastest_ns_per_dispatch") >= 250_000.0, "{json}");
        assert!(number("ns_per_dispatch") >= number("fastest_ns_per_dispatch"), "{json}");
    }
}
