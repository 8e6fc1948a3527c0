"""Continues a text with llama-cpp-py-sync: complete.py MODEL PROMPT TOKENS prints the continuation.

The binding has ggml in libraries of its own and loads no backend; ggml_backend_load_all() loads what GGML_BACKEND_PATH names.
"""

import ctypes
import os
import sys

import llama_cpp_py_sync as binding

ggml = ctypes.CDLL(os.path.join(os.path.dirname(binding.__file__), "libggml.so.0"))
ggml.ggml_backend_load_all()
model, prompt, tokens = sys.argv[1:]
llm = binding.Llama(model, n_ctx=256, n_gpu_layers=99)
sys.stdout.write(llm.generate(prompt, max_tokens=int(tokens), temperature=0.0, repeat_penalty=1.0))
