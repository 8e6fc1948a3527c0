//! An ordinary run: a prompt, and tokens behind it, in one process. What a graph costs depends on what ran before it, because kernels
//! of both share the hardware contexts.

use super::contexts::Contexts;
use super::planning::Planned;
use super::sequence::Sequence;
use serde::Serialize;

/// A prompt and the tokens behind it.
#[derive(Debug, Clone, Serialize)]
pub struct OrdinaryRun {
    /// The prompt's first batch, the first token behind it, and each further token with as many keys. Of a model that continues no text
    /// the batch alone.
    pub steps: Vec<Step>,
    /// Hardware contexts made for all of them.
    pub contexts_made: u64,
}

/// A graph of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// `prompt`, `first token` or `token`.
    pub name: &'static str,
    /// Tokens computed.
    pub tokens: usize,
    /// Tokens before them.
    pub past: usize,
    /// Different configurations of the array.
    pub pdis: usize,
    /// Command lists given to the queue.
    pub submissions: u64,
    /// Chains of dispatches: a host call, a full one and another context end one.
    pub chains: usize,
    /// Hardware contexts made before it can run.
    pub contexts_made: u64,
    /// Times the array changes from a context to another.
    pub context_switches: u64,
}

impl OrdinaryRun {
    /// That of the graphs of a prompt and those of a token behind it.
    pub fn of(prompt: &Planned, token: Option<&Planned>) -> Self {
        let mut contexts = Contexts::new(prompt.context.hal.limits());
        let steps = [("prompt", Some(prompt)), ("first token", token), ("token", token)];
        let step = |(name, planned): (_, Option<&Planned>)| Some(Step::of(name, planned?, &mut contexts));
        let steps = steps.into_iter().filter_map(step).collect();
        Self { steps, contexts_made: contexts.made() }
    }
}

impl Step {
    fn of(name: &'static str, planned: &Planned, contexts: &mut Contexts) -> Self {
        let Planned { batch, context, .. } = planned;
        let made = contexts.made();
        let lists = planned.lists();
        let sequence = Sequence::of(&lists, contexts, context.hal.limits(), context.hal.arch());
        Self {
            name,
            tokens: batch.tokens,
            past: batch.past,
            pdis: sequence.configurations.len(),
            submissions: lists.len() as u64,
            chains: sequence.chains,
            contexts_made: contexts.made() - made,
            context_switches: sequence.context_switches,
        }
    }
}
