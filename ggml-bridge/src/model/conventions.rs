//! What an architecture does that neither the names of its tensors nor the numbers in its file say.
//!
//! Facts of llama.cpp's model files. An architecture that is not listed gets what most newer ones do, and the explanation says that
//! this was assumed.

/// How positions rotate queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// Not at all.
    None,
    /// Pairs of neighbours (ggml's mode 0).
    Neighbours,
    /// The first half with the second (NeoX, mode 2).
    Halves,
}

/// What is applied to the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x * sigmoid(x).
    Silu,
    /// The Gaussian one, by its approximation with tanh.
    Gelu,
    /// The square of what is above 0.
    ReluSquared,
}

/// What is particular about an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conventions {
    /// Whether the architecture is listed here.
    pub known: bool,
    /// How positions are rotated.
    pub rotation: Rotation,
    /// The activation.
    pub activation: Activation,
    /// Whether norms subtract the mean; `None`: as the file says.
    pub mean: Option<bool>,
    /// Whether the embedding is multiplied with the root of its width.
    pub embedding_by_width: bool,
    /// Whether `logit_scale` divides.
    pub logits_divided: bool,
    /// Whether the bounds of scores and logits that a file may have are used.
    pub bounded: bool,
    /// Whether queries are scaled before they meet the keys.
    pub scaled_queries: bool,
}

const NEIGHBOURS: &[&str] = &[
    "llama",
    "llada",
    "llama4",
    "deci",
    "baichuan",
    "starcoder",
    "internlm2",
    "minicpm",
    "xverse",
    "command-r",
    "cohere2",
    "olmo",
    "arctic",
    "deepseek",
    "deepseek2",
    "plm",
    "chatglm",
    "glm4",
    "granite",
    "granitemoe",
    "granitehybrid",
    "chameleon",
    "bailingmoe",
    "smollm3",
    "arcee",
    "ernie4_5",
    "ernie4_5-moe",
    "mistral3",
];
const HALVES: &[&str] = &[
    "qwen",
    "qwen2",
    "qwen3",
    "qwen2moe",
    "qwen3moe",
    "gemma",
    "gemma2",
    "gemma3",
    "phi2",
    "phi3",
    "falcon",
    "gptneox",
    "stablelm",
    "starcoder2",
    "olmo2",
    "exaone",
    "nemotron",
    "seed_oss",
    "orion",
    "codeshell",
    "gpt-oss",
];
const UNROTATED: &[&str] = &["gpt2", "bloom", "mpt", "refact", "jais"];
const MEAN: &[&str] = &[
    "gpt2",
    "bloom",
    "mpt",
    "falcon",
    "gptneox",
    "phi2",
    "stablelm",
    "starcoder",
    "starcoder2",
    "command-r",
    "cohere2",
    "nemotron",
    "orion",
    "codeshell",
    "jais",
    "olmo",
];
const GELU: &[&str] = &[
    "gemma",
    "gemma2",
    "gemma3",
    "phi2",
    "gpt2",
    "bloom",
    "mpt",
    "falcon",
    "gptneox",
    "starcoder",
    "starcoder2",
    "codeshell",
];
const SQUARED: &[&str] = &["nemotron", "arcee"];
const BY_WIDTH: &[&str] = &["gemma", "gemma2", "gemma3"];
const BOUNDED: &[&str] = &["gemma2"];
const SCALED_QUERIES: &[&str] = &["gemma", "gemma2", "gemma3", "phi2", "phi3"];
const DIVIDED: &[&str] = &["granite", "granitemoe", "minicpm"];

impl Conventions {
    /// Those of `architecture`.
    pub fn of(architecture: &str) -> Self {
        let among = |list: &[&str]| list.contains(&architecture);
        let rotation = match () {
            () if among(NEIGHBOURS) => Some(Rotation::Neighbours),
            () if among(HALVES) => Some(Rotation::Halves),
            () if among(UNROTATED) => Some(Rotation::None),
            () => None,
        };
        Self {
            known: rotation.is_some(),
            rotation: rotation.unwrap_or(Rotation::Halves),
            activation: match () {
                () if among(GELU) => Activation::Gelu,
                () if among(SQUARED) => Activation::ReluSquared,
                () => Activation::Silu,
            },
            mean: rotation.map(|_| among(MEAN)),
            embedding_by_width: among(BY_WIDTH),
            logits_divided: among(DIVIDED),
            bounded: rotation.is_none() || among(BOUNDED),
            scaled_queries: among(SCALED_QUERIES),
        }
    }
}
