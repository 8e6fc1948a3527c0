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

/// How far scores of distant tokens are lowered (ALiBi).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Alibi {
    /// Not at all.
    None,
    /// By as much as llama.cpp has in its code.
    Fixed(f32),
    /// By as much as the file says, if it does.
    InFile,
}

/// How the branches of a layer with attention and the feed-forward part beside each other come back to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// The feed-forward part and the stream, then attention.
    FeedStreamAttention,
    /// The feed-forward part and attention, then the stream.
    FeedAttentionStream,
    /// Attention and the feed-forward part, then the stream.
    AttentionFeedStream,
}

/// Layers that see only the last tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Windows {
    /// Of so many layers the last one sees all tokens, when the file does not say it otherwise.
    pub every: usize,
    /// Whether layers that see all tokens rotate as well.
    pub all_rotate: bool,
    /// Base of the rotation in layers with a window, when it is another one and the file does not say it.
    pub base: Option<f32>,
}

/// What is particular about an architecture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conventions {
    /// Whether the architecture is listed here.
    pub known: bool,
    /// Whether its graph was checked against llama.cpp's.
    pub checked: bool,
    /// How positions are rotated.
    pub rotation: Rotation,
    /// The activation.
    pub activation: Activation,
    /// Whether norms subtract the mean; `None`: as the file says.
    pub mean: Option<bool>,
    /// Whether the embedding is multiplied with the root of its width.
    pub embedding_by_width: bool,
    /// Whether each token's embedding has a factor of its own: pictures among the words have another one.
    pub scale_by_token: bool,
    /// Whether `logit_scale` divides.
    pub logits_divided: bool,
    /// Whether the bound of scores that a file may have is used.
    pub bounded_scores: bool,
    /// Whether the bound of logits that a file may have is used.
    pub bounded_logits: bool,
    /// Whether queries are scaled before they meet the keys.
    pub scaled_queries: bool,
    /// Whether norms have no weights.
    pub bare_norms: bool,
    /// Whether queries, keys and values are kept between the bounds that a file may have.
    pub clamped: bool,
    /// Whether scores are divided by the size of a head and not by its root.
    pub divided_by_size: bool,
    /// How far scores of distant tokens are lowered.
    pub alibi: Alibi,
    /// Layers that see only the last tokens.
    pub windows: Option<Windows>,
    /// The order of sums where attention and the feed-forward part are beside each other.
    pub sum: Sum,
    /// Numbers of layers of the models whose scores are scaled by width and heads instead of a head's size.
    pub scaled_by_width: Option<usize>,
}

const NEIGHBOURS: &[&str] = &[
    "llama",
    "llada",
    "llama4",
    "deci",
    "baichuan",
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
const UNROTATED: &[&str] = &["gpt2", "bloom", "mpt", "refact", "jais", "starcoder"];
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
const BOUNDED_SCORES: &[&str] = &["gemma2"];
const BOUNDED_LOGITS: &[&str] = &["gemma2", "gemma3"];
const FEED_AND_ATTENTION: &[&str] = &["falcon"];
const FEED_AND_STREAM: &[&str] = &["command-r", "cohere2"];
/// Families whose graphs are llama.cpp's: the tests have a model of each, and `cargo xtask explain` compares them with runs.
pub const CHECKED: &[&str] = &[
    "llama",
    "qwen2",
    "qwen3",
    "baichuan",
    "bloom",
    "falcon",
    "jais",
    "olmo",
    "refact",
    "starcoder",
    "cohere2",
    "gemma3",
];
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
            scale_by_token: architecture == "gemma3",
            logits_divided: among(DIVIDED),
            checked: among(CHECKED),
            bounded_scores: rotation.is_none() || among(BOUNDED_SCORES),
            bounded_logits: rotation.is_none() || among(BOUNDED_LOGITS),
            scaled_queries: among(SCALED_QUERIES),
            bare_norms: architecture == "olmo",
            clamped: ["olmo", "mpt"].contains(&architecture),
            divided_by_size: architecture == "jais",
            alibi: match architecture {
                "bloom" | "refact" => Alibi::Fixed(8.0),
                "jais" | "mpt" => Alibi::InFile,
                _ => Alibi::None,
            },
            windows: match architecture {
                "cohere2" => Some(Windows { every: 4, all_rotate: false, base: None }),
                "gemma2" => Some(Windows { every: 2, all_rotate: true, base: None }),
                "gemma3" => Some(Windows { every: 6, all_rotate: true, base: Some(10_000.0) }),
                _ => None,
            },
            sum: match () {
                () if among(FEED_AND_STREAM) => Sum::FeedStreamAttention,
                () if among(FEED_AND_ATTENTION) => Sum::FeedAttentionStream,
                () => Sum::AttentionFeedStream,
            },
            scaled_by_width: match architecture {
                "gemma2" => Some(46),
                "gemma3" => Some(62),
                _ => None,
            },
        }
    }

    /// Those of `architecture` with `layers` layers: llama.cpp tells Baichuan's two models apart by them.
    ///
    /// # Errors
    /// Why llama.cpp has no graph of it.
    pub fn of_model(architecture: &str, layers: usize) -> Result<Self, String> {
        let conventions = Self::of(architecture);
        match (architecture, layers) {
            ("baichuan", 40) => Ok(Self { rotation: Rotation::None, alibi: Alibi::Fixed(8.0), ..conventions }),
            ("baichuan", 32) => Ok(conventions),
            ("baichuan", _) => {
                Err(format!("it has {layers} layers, and llama.cpp has graphs of this family for 32 (7B) and 40 (13B)"))
            }
            _ => Ok(conventions),
        }
    }
}
