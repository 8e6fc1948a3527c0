//! What others measured of products and prompts on these NPUs, to put shares beside.

/// The machine, what ran, the result with where it was published. Theirs are of whole programs on silicon, with everything between
/// the products.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "XDNA 1, 8700G",
        "prompt of 512, Qwen3-0.6B, NPU, CPU and iGPU share products",
        "627 to 930 tokens/s (llama.cpp PR 28800)",
    ),
    ("XDNA 1, 8700G", "prompt of 2,134, Llama-3.2-3B, the same", "144 to 206 tokens/s (llama.cpp PR 28800)"),
    ("Strix Point", "products of bfp16, first open kernel", "1.44 TFLOP/s (Cyronius/ggml-xdna)"),
    ("Strix Halo", "products of i8, effective", "2.2 TFLOP/s (qvac-fabric-llm.cpp PR 279)"),
    ("Strix Halo", "prompt of 512, Qwen3.5-0.8B q4_K_M", "680 tokens/s (qvac-fabric-llm.cpp PR 279)"),
    ("Strix Halo", "prompt, q8_0 as i8", "152 tokens/s (Soket1/llama.cpp-xdna)"),
    ("Krackan", "prompt of 8,192, Qwen3.5-0.8B", "1,584 tokens/s (FastFlowLM 0.9.38, vendor)"),
];

/// Prints the list.
pub fn print() {
    println!("\nPublished by others; XDNA 2 unless said otherwise");
    for (machine, what, result) in OTHERS {
        println!("  {machine:<16} {what:<62} {result}");
    }
}
