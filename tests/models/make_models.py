"""Makes small language models with random weights as GGUF files, one for each family of operations.

`cargo xtask models` runs them through stock llama.cpp, `cargo xtask explain` compares their graphs. The sizes are the smallest that still use what the family is
known for: fewer K/V heads than Q heads, several experts of which two are used, a sliding window shorter than the text.
The weights come from a generator seeded with the model's name, so that a file is the same on every machine. A matrix
has the spread 1/sqrt(columns), which keeps the values of a layer near 1; a matrix that ends a branch beside the residual
stream has 1/sqrt(2*layers) of it, as GPT-2 was initialised; and the last one has more, so that the tokens' probabilities
differ.

Names of keys and tensors: gguf-py (`gguf/constants.py`) and the files `test-llama-archs -o` writes.

    make_models.py --list
    make_models.py FOLDER NAME...
"""

import argparse
import sys
import zlib
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, LlamaFileType, PoolingType, TokenType
from gguf.quants import dequantize, quantize

EMBEDDING = 256
HIDDEN = 512
CONTEXT = 512
VOCABULARY = 512
LOGIT_SPREAD = 3.0


class Model:
    """A GGUF file being written."""

    def __init__(self, path, architecture, layers):
        self.writer = GGUFWriter(path, architecture)
        self.architecture = architecture
        self.branch = 1.0 / np.sqrt(2.0 * layers)
        self.random = np.random.default_rng(zlib.crc32(path.stem.encode()))
        self.writer.add_file_type(LlamaFileType.MOSTLY_F16)
        self.writer.add_vocab_size(VOCABULARY)
        self.writer.add_context_length(CONTEXT)
        self.writer.add_embedding_length(EMBEDDING)
        self.writer.add_block_count(layers)
        self.writer.add_layer_norm_rms_eps(1e-6)
        self._vocabulary()

    def _vocabulary(self):
        """A sentencepiece vocabulary that knows letters and bytes: each character of a text is a token."""
        tokens = ["<unk>", "<s>", "</s>"]
        kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
        tokens += [f"<0x{byte:02X}>" for byte in range(256)]
        kinds += [TokenType.BYTE] * 256
        letters = ["\u2581"] + [chr(code) for code in range(ord("a"), ord("z") + 1)]
        rest = [f"[{index}]" for index in range(VOCABULARY - len(tokens) - len(letters))]
        tokens += letters + rest
        kinds += [TokenType.NORMAL] * len(letters) + [TokenType.UNUSED] * len(rest)
        self.writer.add_tokenizer_model("llama")
        self.writer.add_token_list(tokens)
        self.writer.add_token_scores([-float(index) for index in range(len(tokens))])
        self.writer.add_token_types(kinds)
        self.writer.add_bos_token_id(1)
        self.writer.add_eos_token_id(2)
        self.writer.add_unk_token_id(0)

    def number(self, key, value):
        """An integer or a real number, under the architecture's prefix."""
        add = self.writer.add_float32 if isinstance(value, float) else self.writer.add_uint32
        add(f"{self.architecture}.{key}", value)

    def matrix(self, name, rows, columns, kind, count=None, gain=1.0):
        """`rows` outputs of `columns` inputs; `count` of them behind each other for experts and heads."""
        shape = (rows, columns) if count is None else (count, rows, columns)
        spread = gain / np.sqrt(columns)
        if kind in (Type.Q4_K, Type.Q6_K):
            data = self._super_blocks(shape, kind, spread)
        else:
            data = quantize((self.random.standard_normal(shape) * spread).astype(np.float32), kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)

    def _super_blocks(self, shape, kind, spread):
        """Random blocks of a K type, for which gguf-py has no quantiser: every pattern of bytes is a valid block.

        Only the f16 scales must be set: Q4_K is d*scale*q - dmin*min with q in 0..15, hence dmin = 7.5 d for a mean of
        zero; Q6_K is d*scale*(q-32). Scales of 1 are tried first, and the spread they give is measured.
        """
        size, offsets = {Type.Q4_K: (144, {0: 1.0, 2: 7.5}), Type.Q6_K: (210, {208: 1.0})}[kind]
        blocks = self.random.integers(0, 256, (int(np.prod(shape)) // 256, size), dtype=np.uint8)

        def scaled(factor):
            for offset, part in offsets.items():
                blocks[:, offset : offset + 2] = np.frombuffer(np.float16(part * factor).tobytes(), np.uint8)
            return blocks.reshape(*shape[:-1], -1)

        measured = dequantize(scaled(1.0), kind).std()
        return scaled(spread / measured).copy()

    def vector(self, name, *shape, centre=0.0, spread=0.1):
        """f32 numbers around `centre`; the last of `shape` is the innermost dimension."""
        values = centre + spread * self.random.standard_normal(shape)
        self.writer.add_tensor(name, values.astype(np.float32))

    def between(self, name, *shape, low, high):
        """f32 numbers evenly between `low` and `high`."""
        self.writer.add_tensor(name, self.random.uniform(low, high, shape).astype(np.float32))

    def embeddings(self, kind, output=None):
        """The first and the last matrix; without `output` the first one is both.

        Then the residual stream begins smaller. The branches follow half the way (in decibels): with the whole of it a
        token would only predict itself.
        """
        first = LOGIT_SPREAD if output is None else np.sqrt(EMBEDDING)
        self.branch *= np.sqrt(first / np.sqrt(EMBEDDING))
        self.matrix("token_embd.weight", VOCABULARY, EMBEDDING, kind, gain=first)
        self.vector("output_norm.weight", EMBEDDING, centre=1.0)
        if output is not None:
            self.matrix("output.weight", VOCABULARY, EMBEDDING, output, gain=LOGIT_SPREAD)

    def heads(self, heads, groups, size, rotated=None, base=1e6):
        """Keys of grouped attention: `groups` K/V heads for `heads` Q heads of `size` values."""
        self.writer.add_head_count(heads)
        self.writer.add_head_count_kv(groups)
        self.writer.add_key_length(size)
        self.writer.add_value_length(size)
        self.writer.add_rope_dimension_count(rotated or size)
        self.writer.add_rope_freq_base(base)

    def attention(self, block, heads, groups, size, kind, biases=False, norms=False, gated=False):
        """The tensors of grouped attention. `gated`: Q comes with a gate of the same size."""
        rows = {"q": heads * size * (2 if gated else 1), "k": groups * size, "v": groups * size}
        for part, count in rows.items():
            self.matrix(f"{block}.attn_{part}.weight", count, EMBEDDING, kind)
            if biases:
                self.vector(f"{block}.attn_{part}.bias", count)
        for part in ("q", "k") if norms else ():
            self.vector(f"{block}.attn_{part}_norm.weight", size, centre=1.0)
        self.matrix(f"{block}.attn_output.weight", EMBEDDING, heads * size, kind, gain=self.branch)

    def feed_forward(self, block, kind):
        """Gate, up and down of one feed-forward layer."""
        for part in ("gate", "up"):
            self.matrix(f"{block}.ffn_{part}.weight", HIDDEN, EMBEDDING, kind)
        self.matrix(f"{block}.ffn_down.weight", EMBEDDING, HIDDEN, kind, gain=self.branch)

    def norm(self, name):
        """The weights of a norm over the embedding."""
        self.vector(name, EMBEDDING, centre=1.0)

    def full_norm(self, name):
        """A norm with factors and addends."""
        self.norm(f"{name}.weight")
        self.vector(f"{name}.bias", EMBEDDING, centre=0.0)

    def joined_attention(self, block, heads, groups, size, kind, biases):
        """Queries, keys and values in one matrix."""
        rows = (heads + 2 * groups) * size
        self.matrix(f"{block}.attn_qkv.weight", rows, EMBEDDING, kind)
        self.matrix(f"{block}.attn_output.weight", EMBEDDING, heads * size, kind, gain=self.branch)
        if biases:
            self.vector(f"{block}.attn_qkv.bias", rows)
            self.vector(f"{block}.attn_output.bias", EMBEDDING)

    def plain_feed_forward(self, block, kind, biases):
        """Up and down, without a gate."""
        self.matrix(f"{block}.ffn_up.weight", HIDDEN, EMBEDDING, kind)
        self.matrix(f"{block}.ffn_down.weight", EMBEDDING, HIDDEN, kind, gain=self.branch)
        if biases:
            self.vector(f"{block}.ffn_up.bias", HIDDEN)
            self.vector(f"{block}.ffn_down.bias", EMBEDDING)

    def mixture(self, experts, used, hidden):
        """Keys of a mixture of experts."""
        self.writer.add_expert_count(experts)
        self.writer.add_expert_used_count(used)
        self.writer.add_expert_feed_forward_length(hidden)

    def experts(self, block, experts, hidden, kind):
        """The router, and gate, up and down of all experts."""
        self.matrix(f"{block}.ffn_gate_inp.weight", experts, EMBEDDING, Type.F32, gain=2.0)
        for part in ("gate", "up"):
            self.matrix(f"{block}.ffn_{part}_exps.weight", hidden, EMBEDDING, kind, count=experts)
        self.matrix(f"{block}.ffn_down_exps.weight", EMBEDDING, hidden, kind, count=experts, gain=self.branch)

    def state_space(self, inner, heads, groups, state):
        """Keys of a Mamba-2 layer."""
        self.number("ssm.conv_kernel", 4)
        self.number("ssm.inner_size", inner)
        self.number("ssm.state_size", state)
        self.number("ssm.time_step_rank", heads)
        self.number("ssm.group_count", groups)

    def mamba(self, block, inner, heads, groups, state, kind):
        """The tensors of a Mamba-2 layer. Each head forgets at a pace of its own."""
        convolved = inner + 2 * groups * state
        self.matrix(f"{block}.ssm_in.weight", inner + convolved + heads, EMBEDDING, kind)
        self.vector(f"{block}.ssm_conv1d.weight", convolved, 4, spread=0.5)
        self.vector(f"{block}.ssm_conv1d.bias", convolved)
        self.between(f"{block}.ssm_a", heads, 1, low=-4.0, high=-0.5)
        self.between(f"{block}.ssm_d", heads, 1, low=0.5, high=1.5)
        self.between(f"{block}.ssm_dt.bias", heads, low=-3.0, high=0.0)
        self.vector(f"{block}.ssm_norm.weight", groups, inner // groups, centre=1.0)
        self.matrix(f"{block}.ssm_out.weight", EMBEDDING, inner, kind, gain=self.branch)

    def close(self):
        """Writes the file."""
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def qwen3(path):
    """Four Q heads for each K/V head, biases of Q, K and V, norms of Q and K."""
    model = Model(path, "qwen3", 3)
    model.heads(8, 2, 64)
    model.writer.add_feed_forward_length(HIDDEN)
    model.embeddings(Type.F16, Type.F16)
    for block in (f"blk.{layer}" for layer in range(3)):
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 8, 2, 64, Type.Q8_0, biases=True, norms=True)
        model.norm(f"{block}.ffn_norm.weight")
        model.feed_forward(block, Type.Q4_0)
    model.close()


def qwen2(path):
    """Biases of Q, K and V, one matrix for both ends, K types."""
    model = Model(path, "qwen2", 3)
    model.heads(4, 1, 64)
    model.writer.add_feed_forward_length(HIDDEN)
    model.embeddings(Type.Q6_K)
    for block in (f"blk.{layer}" for layer in range(3)):
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 4, 1, 64, Type.Q4_K, biases=True)
        model.norm(f"{block}.ffn_norm.weight")
        model.feed_forward(block, Type.Q4_K)
    model.close()


def qwen3moe(path):
    """Eight experts of which two are used, chosen by their probabilities."""
    model = Model(path, "qwen3moe", 3)
    model.heads(8, 2, 64)
    model.writer.add_feed_forward_length(HIDDEN)
    model.mixture(8, 2, 256)
    model.embeddings(Type.F16, Type.Q8_0)
    for block in (f"blk.{layer}" for layer in range(3)):
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 8, 2, 64, Type.F16, norms=True)
        model.norm(f"{block}.ffn_norm.weight")
        model.experts(block, 8, 256, Type.Q4_K)
    model.close()


def gpt_oss(path):
    """Experts with biases and a bounded gate, attention sinks, and every second layer with a sliding window."""
    model = Model(path, "gpt-oss", 4)
    model.heads(8, 2, 64, base=150000.0)
    model.writer.add_feed_forward_length(HIDDEN)
    model.writer.add_sliding_window(32)
    model.mixture(4, 2, 256)
    model.embeddings(Type.F16, Type.F16)
    for block in (f"blk.{layer}" for layer in range(4)):
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 8, 2, 64, Type.Q8_0, biases=True)
        model.vector(f"{block}.attn_output.bias", EMBEDDING)
        model.vector(f"{block}.attn_sinks.weight", 8, spread=1.0)
        model.norm(f"{block}.post_attention_norm.weight")
        model.experts(block, 4, 256, Type.MXFP4)
        model.vector(f"{block}.ffn_gate_inp.bias", 4)
        for part in ("gate", "up"):
            model.vector(f"{block}.ffn_{part}_exps.bias", 4, 256)
        model.vector(f"{block}.ffn_down_exps.bias", 4, EMBEDDING)
    model.close()


def mamba2(path):
    """Recurrent layers only: a convolution over four tokens and a state for each head."""
    model = Model(path, "mamba2", 3)
    model.writer.add_head_count(0)
    model.writer.add_feed_forward_length(0)
    model.state_space(512, 8, 2, 64)
    model.embeddings(Type.F16, Type.Q8_0)
    for block in (f"blk.{layer}" for layer in range(3)):
        model.norm(f"{block}.attn_norm.weight")
        model.mamba(block, 512, 8, 2, 64, Type.Q8_0)
    model.close()


def falcon_h1(path):
    """Attention and a Mamba-2 layer beside each other in every block."""
    model = Model(path, "falcon-h1", 3)
    model.heads(4, 2, 64)
    model.writer.add_feed_forward_length(HIDDEN)
    model.state_space(512, 8, 1, 64)
    model.embeddings(Type.F16, Type.F16)
    for block in (f"blk.{layer}" for layer in range(3)):
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 4, 2, 64, Type.Q4_0)
        model.mamba(block, 512, 8, 1, 64, Type.Q4_0)
        model.norm(f"{block}.ffn_norm")  # llama.cpp knows it without the suffix
        model.feed_forward(block, Type.Q8_0)
    model.close()


def qwen3next(path):
    """Gated delta nets and, in every second block, gated attention; experts and one that is always used."""
    model = Model(path, "qwen3next", 4)
    model.heads(4, 2, 64, rotated=16)
    model.writer.add_feed_forward_length(HIDDEN)
    model.number("full_attention_interval", 2)
    model.mixture(8, 2, 256)
    model.number("expert_shared_feed_forward_length", 256)
    keys, values, size = 2, 4, 64
    model.state_space(values * size, values, keys, size)
    model.embeddings(Type.F16, Type.Q8_0)
    for layer in range(4):
        block = f"blk.{layer}"
        model.norm(f"{block}.attn_norm.weight")
        if layer % 2 == 1:
            model.attention(block, 4, 2, 64, Type.Q8_0, norms=True, gated=True)
        else:
            convolved = (2 * keys + values) * size
            model.matrix(f"{block}.attn_qkv.weight", convolved, EMBEDDING, Type.Q8_0)
            model.matrix(f"{block}.attn_gate.weight", values * size, EMBEDDING, Type.Q8_0)
            model.matrix(f"{block}.ssm_ba.weight", 2 * values, EMBEDDING, Type.F16)
            model.vector(f"{block}.ssm_conv1d.weight", convolved, 4, spread=0.5)
            model.between(f"{block}.ssm_dt.bias", values, low=-3.0, high=0.0)
            model.between(f"{block}.ssm_a", values, low=-4.0, high=-0.5)
            model.vector(f"{block}.ssm_norm.weight", size, centre=1.0)
            model.matrix(f"{block}.ssm_out.weight", EMBEDDING, values * size, Type.Q8_0, gain=model.branch)
        model.norm(f"{block}.post_attention_norm.weight")
        model.experts(block, 8, 256, Type.Q4_K)
        model.vector(f"{block}.ffn_gate_inp_shexp.weight", EMBEDDING)
        for part in ("gate", "up"):
            model.matrix(f"{block}.ffn_{part}_shexp.weight", 256, EMBEDDING, Type.Q4_K)
        model.matrix(f"{block}.ffn_down_shexp.weight", EMBEDDING, 256, Type.Q4_K, gain=model.branch)
    model.close()


def dense(path, architecture, layers, heads, groups, size=32):
    """A model of dense layers, up to its embeddings."""
    model = Model(path, architecture, layers)
    model.writer.add_layer_norm_eps(1e-5)
    model.heads(heads, groups, size, base=1e4)
    model.writer.add_feed_forward_length(HIDDEN)
    return model, [f"blk.{layer}" for layer in range(layers)]


def baichuan(path):
    """As many layers as the 7B model: llama.cpp knows it by them."""
    model, blocks = dense(path, "baichuan", 32, 8, 8)
    model.embeddings(Type.F16, Type.F16)
    for block in blocks:
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 8, 8, 32, Type.Q8_0)
        model.norm(f"{block}.ffn_norm.weight")
        model.feed_forward(block, Type.Q4_0)
    model.close()


def bloom(path):
    """A norm behind the embedding, ALiBi, joined projections with biases."""
    model, blocks = dense(path, "bloom", 2, 8, 8)
    model.embeddings(Type.F16)
    model.full_norm("token_embd_norm")
    model.vector("output_norm.bias", EMBEDDING, centre=0.0)
    for block in blocks:
        model.full_norm(f"{block}.attn_norm")
        model.joined_attention(block, 8, 8, 32, Type.Q8_0, biases=True)
        model.full_norm(f"{block}.ffn_norm")
        model.plain_feed_forward(block, Type.Q4_0, biases=True)
    model.close()


def falcon(path):
    """Attention with a single head of keys, beside the feed-forward part; a norm for each of them as in the 40B model."""
    model, blocks = dense(path, "falcon", 2, 8, 1)
    model.embeddings(Type.F16, Type.F16)
    model.vector("output_norm.bias", EMBEDDING, centre=0.0)
    for index, block in enumerate(blocks):
        model.full_norm(f"{block}.attn_norm")
        if index > 0:
            model.full_norm(f"{block}.attn_norm_2")
        model.joined_attention(block, 8, 1, 32, Type.Q8_0, biases=False)
        model.plain_feed_forward(block, Type.Q4_0, biases=False)
    model.close()


def jais(path):
    """ALiBi of the file, scores divided by the size of a head, a gated part with biases."""
    model, blocks = dense(path, "jais", 2, 8, 8)
    model.writer.add_max_alibi_bias(8.0)
    model.embeddings(Type.F16, Type.F16)
    model.vector("output_norm.bias", EMBEDDING, centre=0.0)
    for block in blocks:
        model.full_norm(f"{block}.attn_norm")
        model.joined_attention(block, 8, 8, 32, Type.Q8_0, biases=True)
        model.full_norm(f"{block}.ffn_norm")
        model.feed_forward(block, Type.Q4_0)
        for part, rows in (("gate", HIDDEN), ("up", HIDDEN), ("down", EMBEDDING)):
            model.vector(f"{block}.ffn_{part}.bias", rows)
    model.close()


def olmo(path):
    """Norms without weights, and bounds of queries, keys and values."""
    model, blocks = dense(path, "olmo", 2, 8, 8)
    model.writer.add_clamp_kqv(2.0)
    model.matrix("token_embd.weight", VOCABULARY, EMBEDDING, Type.F16, gain=LOGIT_SPREAD)
    for block in blocks:
        model.attention(block, 8, 8, 32, Type.Q8_0)
        model.feed_forward(block, Type.Q4_0)
    model.close()


def refact(path):
    """ALiBi, and one head of keys."""
    model, blocks = dense(path, "refact", 2, 8, 1)
    model.embeddings(Type.F16, Type.F16)
    for block in blocks:
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 8, 1, 32, Type.Q8_0)
        model.norm(f"{block}.ffn_norm.weight")
        model.feed_forward(block, Type.Q4_0)
    model.close()


def starcoder(path):
    """Learned positions, one head of keys, biases everywhere."""
    model, blocks = dense(path, "starcoder", 2, 8, 1)
    model.embeddings(Type.F16)
    model.vector("output_norm.bias", EMBEDDING, centre=0.0)
    model.vector("position_embd.weight", CONTEXT, EMBEDDING)
    for block in blocks:
        model.full_norm(f"{block}.attn_norm")
        model.joined_attention(block, 8, 1, 32, Type.Q8_0, biases=True)
        model.full_norm(f"{block}.ffn_norm")
        model.plain_feed_forward(block, Type.Q4_0, biases=True)
    model.close()


def cohere2(path):
    """Attention beside a gated part; three layers of four with a window, the fourth without rotation; scaled logits."""
    model, blocks = dense(path, "cohere2", 4, 8, 2)
    model.writer.add_sliding_window(64)
    model.writer.add_logit_scale(0.25)
    model.embeddings(Type.F16)
    for block in blocks:
        model.norm(f"{block}.attn_norm.weight")
        model.attention(block, 8, 2, 32, Type.Q8_0)
        model.feed_forward(block, Type.Q4_0)
    model.close()


def gemma3(path):
    """Norms before and behind both parts and of queries and keys; five layers of six with a window."""
    model, blocks = dense(path, "gemma3", 6, 4, 1, size=64)
    model.writer.add_sliding_window(64)
    model.embeddings(Type.F16)
    for block in blocks:
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            model.norm(f"{block}.{name}.weight")
        model.attention(block, 4, 1, 64, Type.Q8_0, norms=True)
        model.feed_forward(block, Type.Q4_0)
    model.close()


def bert(path):
    """An encoder: attention to all of the text, learned positions, kinds of tokens, norms behind both parts."""
    model, blocks = dense(path, "bert", 2, 8, 8)
    model.writer.add_causal_attention(False)
    model.writer.add_pooling_type(PoolingType.MEAN)
    model.writer.add_token_type_count(2)
    model.matrix("token_embd.weight", VOCABULARY, EMBEDDING, Type.F16)
    model.vector("token_types.weight", 2, EMBEDDING)
    model.vector("position_embd.weight", CONTEXT, EMBEDDING)
    model.full_norm("token_embd_norm")
    for block in blocks:
        model.attention(block, 8, 8, 32, Type.Q8_0, biases=True)
        model.vector(f"{block}.attn_output.bias", EMBEDDING)
        model.full_norm(f"{block}.attn_output_norm")
        model.plain_feed_forward(block, Type.Q4_0, biases=True)
        model.full_norm(f"{block}.layer_output_norm")
    model.close()


MODELS = {
    "qwen3": qwen3,
    "qwen2": qwen2,
    "qwen3moe": qwen3moe,
    "gpt-oss": gpt_oss,
    "mamba2": mamba2,
    "falcon-h1": falcon_h1,
    "qwen3next": qwen3next,
}

# For `cargo xtask explain`, which compares graphs and no logits.
GRAPHS = {
    "baichuan": baichuan,
    "bloom": bloom,
    "falcon": falcon,
    "jais": jais,
    "olmo": olmo,
    "refact": refact,
    "starcoder": starcoder,
    "cohere2": cohere2,
    "gemma3": gemma3,
    "bert": bert,
}


def main():
    parser = argparse.ArgumentParser(description="Makes small GGUF models with random weights.")
    parser.add_argument("--list", action="store_true", help="print the models' names and make none")
    parser.add_argument("folder", nargs="?", type=Path, help="where NAME.gguf is put")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the models to make; by default all")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(MODELS | GRAPHS))
        return
    if arguments.folder is None:
        parser.error("name the folder for the models, or --list")
    models = MODELS | GRAPHS
    unknown = [name for name in arguments.names if name not in models]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(models)}")
    for name in arguments.names or models:
        models[name](arguments.folder / f"{name}.gguf")
        print(name, flush=True)


if __name__ == "__main__":
    sys.exit(main())
