//! Models as lists of kernels for one token.

use aie_ops::{DataType, Node, OpParams, Tensor};

/// A model of the Llama family.
pub struct Model {
    pub name: &'static str,
    pub layers: u64,
    /// Elements of a token, heads, heads of keys, elements of a head, of the feed-forward part, words.
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head: usize,
    pub forward: usize,
    pub words: usize,
    pub weights: DataType,
    pub rope_base: f32,
}

/// From the models' `config.json`. Of q4_K files most weights have about as many bytes as with q4_1.
pub static ALL: &[Model] = &[
    Model {
        name: "SmolLM2-135M",
        layers: 30,
        width: 576,
        heads: 9,
        kv_heads: 3,
        head: 64,
        forward: 1536,
        words: 49_152,
        weights: DataType::Q4_1,
        rope_base: 100_000.0,
    },
    Model {
        name: "Llama-3.2-1B",
        layers: 16,
        width: 2048,
        heads: 32,
        kv_heads: 8,
        head: 64,
        forward: 8192,
        words: 128_256,
        weights: DataType::Q4_0,
        rope_base: 500_000.0,
    },
    Model {
        name: "Llama-3.1-8B",
        layers: 32,
        width: 4096,
        heads: 32,
        kv_heads: 8,
        head: 128,
        forward: 14_336,
        words: 128_256,
        weights: DataType::Q4_0,
        rope_base: 500_000.0,
    },
];

/// What a kernel waits for, by which its time is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Weights, each read once.
    Product,
    /// Keys and values.
    Attention,
    /// Vectors of a token: norms, sums, gates, rotations.
    Small,
}

/// A kernel and how often a token needs it.
pub struct Kernel {
    pub name: String,
    pub kind: Kind,
    pub times: u64,
    /// Bytes of weights or of the cache that it reads.
    pub bytes: u64,
    /// Its size: rows of a product, keys of attention; of others nothing.
    pub size: usize,
    /// The node of another size, with so many columns if it is a product.
    pub node: Box<dyn Fn(usize, usize) -> Node>,
}

fn f32s(ne: [usize; 4]) -> Tensor {
    Tensor::contiguous(DataType::F32, ne)
}

fn params(words: &[(usize, f32)]) -> OpParams {
    let mut params = OpParams::default();
    for (index, value) in words {
        params.0[*index] = value.to_bits().cast_signed();
    }
    params
}

fn kernel(name: &str, times: u64, node: Node) -> Kernel {
    let kind = Kind::Small;
    Kernel { name: name.into(), kind, times, bytes: 0, size: 0, node: Box::new(move |_, _| node.clone()) }
}

impl Model {
    fn product(&self, name: &str, times: u64, rows: usize, depth: usize) -> Kernel {
        let dtype = self.weights;
        let node = move |rows, columns| {
            let weights = Tensor::contiguous(dtype, [depth, rows, 1, 1]);
            let sources = vec![Some(weights), Some(f32s([depth, columns, 1, 1]))];
            Node::new("MUL_MAT", OpParams::default(), f32s([rows, columns, 1, 1]), sources)
        };
        Kernel {
            name: format!("MUL_MAT {name} {rows} x {depth}"),
            kind: Kind::Product,
            times,
            bytes: (rows * dtype.row_bytes(depth)) as u64,
            size: rows,
            node: Box::new(node),
        }
    }

    fn attention(&self, times: u64, keys: usize) -> Kernel {
        let Self { heads, kv_heads, head, .. } = *self;
        let node = move |keys, _| {
            let cache = Tensor::contiguous(DataType::F16, [head, keys, kv_heads, 1]);
            let mask = Tensor::contiguous(DataType::F16, [keys, 1, 1, 1]);
            let sources = vec![Some(f32s([head, 1, heads, 1])), Some(cache), Some(cache), Some(mask)];
            let scale = 1.0 / (head as f32).sqrt();
            Node::new("FLASH_ATTN_EXT", params(&[(0, scale)]), f32s([head, heads, 1, 1]), sources)
        };
        Kernel {
            name: format!("FLASH_ATTN_EXT {keys} keys"),
            kind: Kind::Attention,
            times,
            bytes: (2 * 2 * head * keys * kv_heads) as u64,
            size: keys,
            node: Box::new(node),
        }
    }

    fn rope(&self, name: &str, times: u64, heads: usize) -> Kernel {
        let rows = f32s([self.head, heads, 1, 1]);
        let mut params = params(&[(5, self.rope_base), (6, 1.0), (8, 1.0), (9, 32.0), (10, 1.0)]);
        params.0[1] = self.head as i32;
        params.0[4] = 8192;
        let positions = Tensor::contiguous(DataType::I32, [1, 1, 1, 1]);
        kernel(&format!("ROPE {name}"), times, Node::new("ROPE", params, rows, vec![Some(rows), Some(positions)]))
    }

    fn cache_rows(&self, times: u64, keys: usize) -> Kernel {
        let width = self.kv_heads * self.head;
        let cache = Tensor::contiguous(DataType::F16, [width, keys, 1, 1]);
        let place = Tensor::contiguous(DataType::I64, [1, 1, 1, 1]);
        let sources = vec![Some(f32s([width, 1, 1, 1])), Some(place), Some(cache)];
        kernel("SET_ROWS of k, of v", times, Node::new("SET_ROWS", OpParams::default(), cache, sources))
    }

    /// The row of a token among those of a batch.
    fn chosen_rows(&self, times: u64) -> Kernel {
        let rows = f32s([self.width, 1, 1, 1]);
        let number = Tensor::contiguous(DataType::I32, [1, 1, 1, 1]);
        kernel("GET_ROWS", times, Node::new("GET_ROWS", OpParams::default(), rows, vec![Some(rows), Some(number)]))
    }

    /// The products of a layer, with the multiply-accumulates of a column.
    pub fn products(&self) -> Vec<(Kernel, u64)> {
        let Self { layers, width, heads, kv_heads, head, forward, .. } = *self;
        let all = [
            ("q, o", 2 * layers, heads * head, width),
            ("k, v", 2 * layers, kv_heads * head, width),
            ("gate, up", 2 * layers, forward, width),
            ("down", layers, width, forward),
        ];
        all.map(|(name, times, rows, depth)| (self.product(name, times, rows, depth), (rows * depth) as u64)).into()
    }

    /// The kernels of a token with a context of `keys` keys. Node by node, but for the norms and their weights.
    pub fn kernels(&self, keys: usize) -> Vec<Kernel> {
        let Self { layers, width, heads, kv_heads, head, forward, .. } = *self;
        let token = f32s([width, 1, 1, 1]);
        let inner = f32s([forward, 1, 1, 1]);
        let (of_heads, of_keys) = (heads * head, kv_heads * head);
        vec![
            kernel(
                "RMS_NORM_MUL",
                2 * layers + 1,
                Node::new("RMS_NORM_MUL", params(&[(0, 1e-5)]), token, vec![Some(token), Some(token)]),
            ),
            self.product("q", layers, of_heads, width),
            self.product("k, v", 2 * layers, of_keys, width),
            self.rope("q", layers, heads),
            self.rope("k", layers, kv_heads),
            self.cache_rows(2 * layers, keys),
            self.attention(layers, keys),
            self.product("o", layers, width, of_heads),
            kernel("ADD", 2 * layers, Node::new("ADD", OpParams::default(), token, vec![Some(token), Some(token)])),
            self.product("gate, up", 2 * layers, forward, width),
            kernel("SWIGLU", layers, Node::new("SWIGLU", OpParams::default(), inner, vec![Some(inner), Some(inner)])),
            self.product("down", layers, width, forward),
            self.product("words", 1, self.words, width),
            self.chosen_rows(2),
        ]
    }
}

/// Kernels of a token by their place in [`Model::kernels`], in the order in which a graph has them.
pub struct Order;

impl Order {
    const NORM: usize = 0;
    const OUTPUT: usize = 7;
    const LAYER: [usize; 17] = [Self::NORM, 1, 2, 2, 3, 4, 5, 5, 6, Self::OUTPUT, 8, Self::NORM, 9, 9, 10, 11, 8];
    const WORDS: usize = 12;
    const CHOSEN_ROWS: usize = 13;

    /// A token of so many layers. Of the last layer's attention and of its input the rows are chosen of which words are wanted.
    pub fn token(layers: usize) -> Vec<usize> {
        let mut order = Self::LAYER.repeat(layers);
        let output = order.iter().rposition(|kernel| *kernel == Self::OUTPUT).map_or(0, |at| at + 1);
        order.splice(output..output, [Self::CHOSEN_ROWS; 2]);
        order.extend([Self::NORM, Self::WORDS]);
        order
    }
}
