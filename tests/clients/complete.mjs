// Continues a text with node-llama-cpp: complete.mjs MODEL PROMPT TOKENS prints the continuation.
// It loads backends with ggml, which reads GGML_BACKEND_PATH; its own prebuilt binary is for the CPU only.

import { getLlama } from "node-llama-cpp";

const [modelPath, prompt, tokens] = process.argv.slice(2);
const llama = await getLlama({ build: "never", skipDownload: true });
const model = await llama.loadModel({ modelPath, gpuLayers: "max" });
const context = await model.createContext({ contextSize: 256 });
const found = [];
for await (const token of context.getSequence().evaluate(model.tokenize(prompt), { temperature: 0 })) {
    found.push(token);
    if (found.length == Number(tokens)) break;
}
process.stdout.write(model.detokenize(found));
await llama.dispose();
