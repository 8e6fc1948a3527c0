"""Hears a sound with Debian's libwhisper, as a program of whisper.cpp does: ggml loads its backends, whisper takes the device it finds.

The model has random weights: what it says means nothing, and has to be the same on every device. It has the sizes of the smallest model of
whisper.cpp, with a smaller state. The sound is a rising tone in noise.

    whisper.py make MODEL
    whisper.py hear MODEL TOKENS LOGITS     prints the tokens, writes the logits behind each as f32
"""

import ctypes
import struct
import sys

import numpy as np

VOCABULARY, MELS, FREQUENCIES = 51864, 80, 201
STATE, HEADS, LAYERS = 128, 2, 4
AUDIO_CONTEXT, TEXT_CONTEXT = 1500, 448
RATE, SECONDS, THREADS = 16000, 5, 2


class Model:
    """A model in whisper.cpp's own format: a header, filters, the vocabulary, and tensors one after another."""

    def __init__(self, file):
        self.file = file
        self.random = np.random.default_rng(7)
        sizes = (VOCABULARY, AUDIO_CONTEXT, STATE, HEADS, LAYERS, TEXT_CONTEXT, STATE, HEADS, LAYERS, MELS, 1)
        file.write(struct.pack("<I11i", 0x67676D6C, *sizes))
        # Each filter has two frequencies and a half.
        centres = np.arange(MELS)[:, None] * (FREQUENCIES / MELS)
        filters = np.maximum(0.0, 1.0 - np.abs(np.arange(FREQUENCIES) - centres) / 2.5).astype(np.float32)
        file.write(struct.pack("<2i", MELS, FREQUENCIES) + filters.tobytes())
        words = [f" w{index}".encode() for index in range(50257)]
        file.write(struct.pack("<i", len(words)))
        for word in words:
            file.write(struct.pack("<I", len(word)) + word)

    def tensor(self, name, values, kind=np.float32):
        values = np.ascontiguousarray(values, kind)
        file, text = self.file, name.encode()
        file.write(struct.pack("<3i", values.ndim, len(text), int(kind == np.float16)))
        file.write(struct.pack(f"<{values.ndim}i", *reversed(values.shape)) + text + values.tobytes())

    def matrix(self, name, *shape):
        spread = 1.0 / np.sqrt(np.prod(shape[1:]))
        self.tensor(name + ".weight", self.random.standard_normal(shape) * spread, np.float16)

    def vector(self, name, *shape, centre=0.0):
        self.tensor(name, centre + 0.1 * self.random.standard_normal(shape))

    def norm(self, name):
        self.vector(name + ".weight", STATE, centre=1.0)
        self.vector(name + ".bias", STATE)

    def linear(self, name, rows, columns, bias=True):
        self.matrix(name, rows, columns)
        if bias:
            self.vector(name + ".bias", rows)

    def attention(self, name):
        self.norm(name + "_ln")
        for part in ("query", "key", "value", "out"):
            self.linear(f"{name}.{part}", STATE, STATE, bias=part != "key")

    def blocks(self, side, cross):
        for index in range(LAYERS):
            block = f"{side}.blocks.{index}"
            self.attention(block + ".attn")
            if cross:
                self.attention(block + ".cross_attn")
            self.norm(block + ".mlp_ln")
            self.linear(block + ".mlp.0", 4 * STATE, STATE)
            self.linear(block + ".mlp.2", STATE, 4 * STATE)

    def write(self):
        self.vector("encoder.positional_embedding", AUDIO_CONTEXT, STATE)
        for name, channels in (("encoder.conv1", MELS), ("encoder.conv2", STATE)):
            self.matrix(name, STATE, channels, 3)
            self.vector(name + ".bias", STATE, 1)
        self.blocks("encoder", cross=False)
        self.norm("encoder.ln_post")
        self.vector("decoder.positional_embedding", TEXT_CONTEXT, STATE)
        self.matrix("decoder.token_embedding", VOCABULARY, STATE)
        self.blocks("decoder", cross=True)
        self.norm("decoder.ln")


def sound():
    time = np.arange(RATE * SECONDS) / RATE
    tone = np.sin(2.0 * np.pi * (200.0 + 300.0 * time) * time)
    return (0.5 * tone + 0.05 * np.random.default_rng(3).standard_normal(time.size)).astype(np.float32)


def library(name, functions):
    loaded = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    for function, (result, *arguments) in functions.items():
        getattr(loaded, function).restype = result
        getattr(loaded, function).argtypes = arguments
    return loaded


def hear(model, count, logits_file):
    ggml = library("libggml.so.0", {"ggml_backend_load_all": (None,)})
    integer, pointer, floats = ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_float)
    whisper = library("libwhisper.so.1", {
        "whisper_init_from_file": (pointer, ctypes.c_char_p),
        "whisper_pcm_to_mel": (integer, pointer, floats, integer, integer),
        "whisper_encode": (integer, pointer, integer, integer),
        "whisper_decode": (integer, pointer, ctypes.POINTER(integer), integer, integer, integer),
        "whisper_get_logits": (floats, pointer),
        "whisper_token_sot": (integer, pointer),
        "whisper_token_eot": (integer, pointer),
        "whisper_token_not": (integer, pointer),
        "whisper_token_to_str": (ctypes.c_char_p, pointer, integer),
        "whisper_free": (None, pointer),
    })
    ggml.ggml_backend_load_all()
    context = whisper.whisper_init_from_file(model.encode()) or sys.exit(f"{model} cannot be loaded")
    samples = sound()

    def check(status, what):
        if status != 0:
            sys.exit(f"{what} failed: {status}")

    address = samples.ctypes.data_as(floats)
    check(whisper.whisper_pcm_to_mel(context, address, samples.size, THREADS), "the spectrum")
    check(whisper.whisper_encode(context, 0, THREADS), "the encoder")
    text, rows = [], []
    given, past = [whisper.whisper_token_sot(context), whisper.whisper_token_not(context)], 0
    for _ in range(count):
        check(whisper.whisper_decode(context, (integer * len(given))(*given), len(given), past, THREADS), "the decoder")
        past += len(given)
        row = np.ctypeslib.as_array(whisper.whisper_get_logits(context), (VOCABULARY,)).copy()
        rows.append(row)
        # The most likely word; numbers from the end of text on are no words.
        given = [int(np.argmax(row[: whisper.whisper_token_eot(context)]))]
        text.append(whisper.whisper_token_to_str(context, given[0]).decode())
    whisper.whisper_free(context)
    np.concatenate(rows).astype("<f4").tofile(logits_file)
    print("".join(text).strip())


if sys.argv[1] == "make":
    with open(sys.argv[2], "wb") as file:
        Model(file).write()
else:
    hear(sys.argv[2], int(sys.argv[3]), sys.argv[4])
