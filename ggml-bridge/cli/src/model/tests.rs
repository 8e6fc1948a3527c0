//! Models of made-up files.

use super::arena::Place;
use super::file::{ModelError, ModelFile};
use super::graph::{Batch, Cache, build};
use super::parts::{Model, Projections};
use aie_ops::DataType::{F32, Q8_0};
use aie_ops::{DataType, Tensor};
use gguf_rs_lib::format::Metadata;
use gguf_rs_lib::format::metadata::MetadataValue;
use rstest::rstest;
use std::collections::BTreeMap;

const WIDTH: usize = 64;
const WORDS: usize = 96;

/// A file with one layer of the Llama family, which a test may change.
pub struct Made {
    pub tensors: BTreeMap<String, Tensor>,
    metadata: Metadata,
    architecture: &'static str,
}

impl Made {
    pub fn new(architecture: &'static str) -> Self {
        let mut made = Self { tensors: BTreeMap::new(), metadata: Metadata::new(), architecture };
        made.metadata.insert("general.architecture".into(), MetadataValue::String(architecture.into()));
        for (key, value) in [
            ("block_count", 1),
            ("context_length", 512),
            ("embedding_length", WIDTH as u32),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
        ] {
            made.number(key, MetadataValue::U32(value));
        }
        made.number("attention.layer_norm_rms_epsilon", MetadataValue::F32(1e-5));
        made.tensor("token_embd.weight", Q8_0, WIDTH, WORDS);
        made.tensor("output_norm.weight", F32, WIDTH, 1);
        for (part, rows) in [("attn_q", 64), ("attn_k", 32), ("attn_v", 32), ("attn_output", 64)] {
            made.tensor(&format!("blk.0.{part}.weight"), Q8_0, WIDTH, rows);
        }
        for part in ["ffn_gate", "ffn_up"] {
            made.tensor(&format!("blk.0.{part}.weight"), Q8_0, WIDTH, 128);
        }
        made.tensor("blk.0.ffn_down.weight", Q8_0, 128, WIDTH);
        for part in ["attn_norm", "ffn_norm"] {
            made.tensor(&format!("blk.0.{part}.weight"), F32, WIDTH, 1);
        }
        made
    }

    pub fn tensor(&mut self, name: &str, dtype: DataType, columns: usize, rows: usize) {
        self.tensors.insert(name.into(), Tensor::contiguous(dtype, [columns, rows, 1, 1]));
    }

    pub fn number(&mut self, key: &str, value: MetadataValue) {
        self.metadata.insert(format!("{}.{key}", self.architecture), value);
    }

    pub fn file(self) -> ModelFile {
        ModelFile::new(self.tensors, self.metadata).unwrap()
    }

    pub fn model(self) -> Model {
        Model::find(&self.file()).unwrap()
    }
}

/// A file of a real model's shapes, without layers at first.
pub struct Blank {
    made: Made,
    layers: usize,
    width: usize,
    heads: [usize; 2],
}

impl Blank {
    pub fn new(architecture: &'static str, layers: usize, width: usize, heads: [usize; 2], words: usize) -> Self {
        let mut made = Made::new(architecture);
        made.tensors.clear();
        made.tensor("token_embd.weight", Q8_0, width, words);
        made.metadata.insert(format!("{architecture}.attention.layer_norm_epsilon"), MetadataValue::F32(1e-5));
        let mut blank = Self { made, layers, width, heads };
        for (key, value) in [
            ("block_count", layers),
            ("context_length", 16_384),
            ("embedding_length", width),
            ("attention.head_count", heads[0]),
            ("attention.head_count_kv", heads[1]),
        ] {
            blank.number(key, value);
        }
        match ["bloom", "falcon", "jais", "starcoder", "stablelm"].contains(&architecture) {
            true => blank.vector("output_norm", width),
            false => {
                blank.made.tensor("output_norm.weight", F32, width, 1);
                &mut blank
            }
        };
        blank
    }

    pub fn number(&mut self, key: &str, value: usize) -> &mut Self {
        self.made.number(key, MetadataValue::U32(value as u32));
        self
    }

    pub fn real(&mut self, key: &str, value: f32) -> &mut Self {
        self.made.number(key, MetadataValue::F32(value));
        self
    }

    pub fn matrix(&mut self, name: &str, columns: usize, rows: usize) -> &mut Self {
        self.made.tensor(&format!("{name}.weight"), Q8_0, columns, rows);
        self
    }

    /// Factors and addends.
    pub fn vector(&mut self, name: &str, elements: usize) -> &mut Self {
        self.made.tensor(&format!("{name}.weight"), F32, elements, 1);
        self.bias(name, elements)
    }

    pub fn bias(&mut self, name: &str, elements: usize) -> &mut Self {
        self.made.tensor(&format!("{name}.bias"), F32, elements, 1);
        self
    }

    pub fn remove(&mut self, name: &str) {
        self.made.tensors.remove(name);
    }

    fn blocks(&self) -> Vec<String> {
        (0..self.layers).map(|layer| format!("blk.{layer}")).collect()
    }

    /// A matrix each for queries, keys and values.
    pub fn separate(&mut self) -> &mut Self {
        self.separate_sized(self.width / self.heads[0])
    }

    pub fn separate_sized(&mut self, size: usize) -> &mut Self {
        let ([queries, keys], width) = (self.heads, self.width);
        for block in self.blocks() {
            for (part, heads) in [("q", queries), ("k", keys), ("v", keys)] {
                self.matrix(&format!("{block}.attn_{part}"), width, heads * size);
            }
            self.matrix(&format!("{block}.attn_output"), queries * size, width);
        }
        self
    }

    /// One matrix for queries, keys and values.
    pub fn joined(&mut self, rows: usize, biases: bool) -> &mut Self {
        let width = self.width;
        for block in self.blocks() {
            for (part, rows) in [("qkv", rows), ("output", width)] {
                let name = format!("{block}.attn_{part}");
                self.matrix(&name, width, rows);
                if biases {
                    self.bias(&name, rows);
                }
            }
        }
        self
    }

    pub fn gated(&mut self, inner: usize) -> &mut Self {
        let width = self.width;
        for block in self.blocks() {
            self.matrix(&format!("{block}.ffn_gate"), width, inner);
        }
        self.plain(inner, false)
    }

    /// A feed-forward part without a gate.
    pub fn plain(&mut self, inner: usize, biases: bool) -> &mut Self {
        // Jais' inner size is not whole blocks.
        let dtype = if inner.is_multiple_of(32) { Q8_0 } else { F32 };
        let width = self.width;
        for block in self.blocks() {
            self.matrix(&format!("{block}.ffn_up"), width, inner);
            self.made.tensor(&format!("{block}.ffn_down.weight"), dtype, inner, width);
            if biases {
                self.bias(&format!("{block}.ffn_up"), inner).bias(&format!("{block}.ffn_down"), width);
            }
        }
        self
    }

    /// Addends of all three matrices of a gated part.
    pub fn feed_biases(&mut self) -> &mut Self {
        for block in self.blocks() {
            for part in ["gate", "up", "down"] {
                let name = format!("{block}.ffn_{part}");
                let rows = self.made.tensors[&format!("{name}.weight")].ne[1];
                self.bias(&name, rows);
            }
        }
        self
    }

    pub fn norms(&mut self, names: &[&str], biases: bool) -> &mut Self {
        let width = self.width;
        for block in self.blocks() {
            for name in names {
                let name = format!("{block}.{name}");
                self.made.tensor(&format!("{name}.weight"), F32, width, 1);
                if biases {
                    self.bias(&name, width);
                }
            }
        }
        self
    }

    /// Norms of queries and keys.
    pub fn heads_norms(&mut self, size: usize) -> &mut Self {
        for block in self.blocks() {
            for part in ["q", "k"] {
                self.made.tensor(&format!("{block}.attn_{part}_norm.weight"), F32, size, 1);
            }
        }
        self
    }

    /// A last product of its own.
    pub fn output(&mut self) -> &mut Self {
        let (width, words) = (self.width, self.made.tensors["token_embd.weight"].ne[1]);
        self.matrix("output", width, words)
    }

    pub fn file(self) -> ModelFile {
        self.made.file()
    }

    pub fn model(self) -> Model {
        self.made.model()
    }
}

fn operations(model: &Model, flash: bool) -> Vec<&'static str> {
    let (graph, _) = build(model, Batch::new(2, 0, Cache::new(512, 512, flash)));
    graph.nodes.iter().map(|node| node.op).collect()
}

/// As llama.cpp's scheduler lists them.
#[test]
fn a_layer_has_the_nodes_of_llama_cpp() {
    let model = Made::new("llama").model();
    assert!(model.is_whole() && model.reservations().is_empty());
    let before =
        ["GET_ROWS", "RMS_NORM", "MUL", "MUL_MAT", "ROPE", "MUL_MAT", "MUL_MAT", "ROPE", "SET_ROWS", "SET_ROWS"];
    let after =
        ["MUL_MAT", "GET_ROWS", "GET_ROWS", "ADD", "RMS_NORM", "MUL", "MUL_MAT", "MUL_MAT", "SWIGLU", "MUL_MAT", "ADD"];
    let end = ["RMS_NORM", "MUL", "MUL_MAT"];
    let with = |attention: &[&'static str]| [&before[..], attention, &after, &end].concat();
    assert_eq!(operations(&model, true), with(&["FLASH_ATTN_EXT"]));
    assert_eq!(operations(&model, false), with(&["MUL_MAT", "SOFT_MAX", "MUL_MAT", "CONT"]));
}

#[test]
fn shapes_follow_the_batch_and_the_cache() {
    let model = Made::new("llama").model();
    let (graph, arena) = build(&model, Batch::new(3, 300, Cache::new(1000, 512, true)));
    let attention = graph.nodes.iter().find(|node| node.op == "FLASH_ATTN_EXT").unwrap();
    let extents: Vec<_> = attention.inputs().map(|source| source.tensor.ne).collect();
    assert_eq!(extents, [[16, 3, 4, 1], [16, 512, 2, 1], [16, 512, 2, 1], [512, 3, 1, 1]]);
    assert_eq!(graph.nodes.last().unwrap().output.tensor.ne, [WORDS, 1, 1, 1]);
    // 1,024 tokens of two heads of 16 keys and values.
    assert_eq!(arena.bytes(Place::Cache), 2 * 1024 * 32 * 2);
    let query = graph.nodes.iter().find(|node| node.op == "ROPE").unwrap();
    assert!(query.sources[0].is_some_and(|source| source.view && source.read_once));
}

#[test]
fn parts_are_found_by_their_names() {
    let mut made = Made::new("qwen3");
    made.tensor("blk.0.attn_q_norm.weight", F32, 16, 1);
    made.tensor("blk.0.attn_q.bias", F32, 64, 1);
    made.tensor("output.weight", Q8_0, WIDTH, WORDS);
    let model = made.model();
    let attention = model.layers[0].attention.as_ref().unwrap();
    let Projections::Apart(apart) = &attention.projections else { panic!("joined") };
    assert_eq!([0, 1, 2].map(|part: usize| apart[part].bias.is_some()), [true, false, false]);
    assert!(attention.norms[0].is_some() && attention.norms[1].is_none());
    assert_eq!((model.output.weight.name.as_str(), model.is_whole()), ("output.weight", true));
}

#[test]
fn what_is_not_known_is_said() {
    let mut made = Made::new("newcomer");
    made.tensors.remove("blk.0.ffn_up.weight");
    made.tensor("blk.0.ffn_up_exps.weight", Q8_0, WIDTH, 1024);
    let model = made.model();
    assert!(!model.is_whole());
    let said = model.reservations().join("\n");
    for part in
        ["not checked for newcomer", "blk.*.ffn_up_exps.weight (1)", "blk.*.ffn_gate.weight (1)", "1 of 1 layers"]
    {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!operations(&model, true).contains(&"SWIGLU"));
}

#[rstest]
#[case("block_count", "newcomer.block_count")]
#[case("embedding_length", "newcomer.embedding_length")]
fn numbers_that_are_missing_are_named(#[case] key: &str, #[case] expected: &str) {
    let mut made = Made::new("newcomer");
    made.number(key, MetadataValue::Bool(true));
    let error = Model::find(&made.file()).unwrap_err();
    assert!(matches!(&error, ModelError::Missing(name) if name == expected), "{error}");
}

#[test]
fn a_model_without_any_known_layer_is_rejected() {
    let mut made = Made::new("newcomer");
    made.tensors.retain(|name, _| !name.contains("attn_output") && !name.contains("ffn_up"));
    assert!(Model::find(&made.file()).unwrap_err().to_string().contains("no layer has attn_q"));
}
