//! An explanation for a terminal.

use aie_hal::format::extent::Traffic;
use ggml_hsa_cli::explain::operation::Operation;
use ggml_hsa_cli::explain::ordinary_run::OrdinaryRun;
use ggml_hsa_cli::explain::report::{Explanation, Pass, joins_in_words};
use ggml_hsa_cli::output::{Shade, counted, megabytes, shaded, table};
use std::fmt::Write as _;

/// All of it.
pub fn text(explanation: &Explanation) -> String {
    let Explanation { model, device, generation, context, memory, .. } = explanation;
    let name = model.name.as_deref().unwrap_or("a model without a name");
    let heading = format!(
        "{name} ({}, {}, {})",
        model.architecture,
        counted(model.layers, "layer"),
        megabytes(model.bytes as u64)
    );
    let flash = if explanation.flash_attention { "on" } else { "off" };
    let mut text = shaded(Shade::Strong, &heading);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\non {device} ({generation}), a context of {}, flash attention {flash}\n",
        counted(*context, "token")
    );
    for reservation in &explanation.reservations {
        let _ = writeln!(text, "{} {reservation}", shaded(Shade::Doubtful, &"note:"));
    }
    let _ = writeln!(
        text,
        "memory: weights {}, converted weights {}, keys and values {}, scratch {}",
        megabytes(memory.weights as u64),
        megabytes(memory.converted_weights),
        megabytes(memory.cache as u64),
        megabytes(memory.scratch as u64)
    );
    for pass in &explanation.passes {
        text += &of_pass(pass);
    }
    text + &of_run(&explanation.run)
}

/// What graphs cost in hardware contexts when they run in one process.
fn of_run(run: &OrdinaryRun) -> String {
    let header = ["graph", "tokens", "behind", "PDIs", "submissions", "chains", "contexts made", "context switches"];
    let rows = run.steps.iter().map(|step| {
        let counts = [step.tokens, step.past, step.pdis].map(|count| count.to_string());
        let costs = [step.submissions, step.chains as u64, step.contexts_made, step.context_switches];
        let costs = costs.map(|count| count.to_string());
        [step.name.to_owned()].into_iter().chain(counts).chain(costs).collect::<Vec<_>>()
    });
    let table = table(&header, &[1, 2, 3, 4, 5, 6, 7], rows);
    let heading = shaded(Shade::Strong, &"a run in one process: the prompt, then tokens");
    let made = counted(run.contexts_made, "hardware context");
    format!("\n{heading}\n{table}\n{made} made; the last row is what each further token with as many keys costs\n")
}

fn milliseconds(ns: f64) -> String {
    format!("{:.2} ms", ns / 1e6)
}

fn of_pass(pass: &Pass) -> String {
    let heading = format!("{}: {}, {}", pass.name, counted(pass.tokens, "token"), counted(pass.keys, "key"));
    let header = ["operation", "kernel", "array", "host", "kernel from", "MB", "predicted ms"];
    let table = table(&header, &[2, 3, 5, 6], pass.operations.iter().map(row));
    let mut text = format!("\n{}\n{table}\n", shaded(Shade::Strong, &heading));
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for operation in &pass.operations {
        if let Some(reason) = &operation.host_reason
            && !reasons.contains(&(&operation.op, reason))
        {
            reasons.push((&operation.op, reason));
        }
    }
    for (op, reason) in reasons {
        let _ = writeln!(text, "{op} on the host: {reason}");
    }
    let sources: Vec<String> = pass.sources.iter().map(|(source, count)| format!("{count} {source}")).collect();
    let _ = writeln!(
        text,
        "{}: {} ({} of them for {}), {} ({} of them conversions), {}",
        counted(pass.nodes, "node"),
        counted(pass.dispatches, "dispatch"),
        pass.fused,
        counted(pass.fused_nodes, "node"),
        counted(pass.host_calls, "host call"),
        pass.conversions,
        counted(pass.chains, "chain")
    );
    let _ =
        writeln!(text, "{}, {}: {}", counted(pass.kernels, "kernel"), counted(pass.pdis, "PDI"), sources.join(", "));
    let _ = writeln!(text, "{}", joins_in_words(&pass.joins));
    let bytes = (pass.bytes + pass.conversion_bytes) as f64 / 1e6;
    let predicted = &pass.predicted;
    let known = pass.operations.iter().filter_map(|operation| operation.traffic);
    let moved = match known.fold(Traffic::default(), Traffic::and) {
        Traffic { pieces: 0, .. } => String::new(),
        Traffic { bytes, pieces } => {
            format!("; machine code moves {:.1} MB one way in {}", bytes as f64 / 1e6, counted(pieces, "piece"))
        }
    };
    // Only machine code has a stream whose operations are known.
    let operations = match predicted.operations {
        0 => String::new(),
        operations => {
            format!(" + {} of streams {}", counted(operations, "operation"), milliseconds(predicted.operations_ns))
        }
    };
    let _ = writeln!(
        text,
        "{bytes:.1} MB of tensors, {:.1} million multiply-accumulates{moved}\npredicted from published costs, without host calls: {} ({} \
         to {}) = kernels {} (memory alone {}, arithmetic alone {}){operations} + chains {} + commands {}",
        pass.macs as f64 / 1e6,
        milliseconds(predicted.total_ns),
        milliseconds(predicted.fastest_ns),
        milliseconds(predicted.slowest_ns),
        milliseconds(predicted.kernels_ns),
        milliseconds(predicted.memory_ns),
        milliseconds(predicted.arithmetic_ns),
        milliseconds(predicted.chains_ns),
        milliseconds(predicted.commands_ns)
    );
    text
}

fn row(operation: &Operation) -> [String; 7] {
    let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
    let from = match (operation.kernel.as_deref(), operation.from.as_deref()) {
        (Some(kernel), Some(from)) if kernel != from => format!("{kernel}, {from}"),
        (kernel, _) => kernel.unwrap_or_default().to_owned(),
    };
    [
        operation.op.clone(),
        operation.shape.clone(),
        count(operation.array),
        count(operation.host),
        from,
        format!("{:.2}", operation.bytes as f64 / 1e6),
        operation.predicted_ns.map_or_else(String::new, |ns| format!("{:.3}", ns / 1e6)),
    ]
}
