//! `GGML_HSA_TRACE`: a run on a simulated NPU becomes a timeline. A process of its own, because the timeline is one per process.

use aie_hal::{Buffer, BufferParams, BufferRef, CommandList, Environment, Submission, TimelinePoint};
use aie_ops::{DataType, Node, OpParams, Tensor, table};
use ggml_hsa::device::setup;
use ggml_hsa::report::trace_file;
use serde_json::Value;
use std::sync::Arc;

const ELEMENTS: usize = 64;

#[test]
fn submissions_chains_dispatches_host_commands_waits_and_compiles_are_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let environment = Environment::from_pairs([
        ("GGML_HSA_DEVICES", "mock:aie2p"),
        ("GGML_HSA_TRACE", file.to_str().unwrap()),
        ("GGML_HSA_KERNEL_CACHE_DIR", folder.path().join("cache").to_str().unwrap()),
        ("GGML_HSA_JIT_WORKERS", "0"),
    ]);
    let (npus, ..) = setup::devices(&environment);
    let context = &npus[0].context;
    let tensor = Tensor::contiguous(DataType::F32, [ELEMENTS, 1, 1, 1]);
    let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
    let kernel = context.kernels.get(table::lookup("ADD").unwrap(), &node).unwrap();

    let buffers: Vec<Arc<dyn Buffer>> =
        (0..3).map(|_| context.hal.allocate(&BufferParams::data(4 * ELEMENTS)).unwrap()).collect();
    let whole = |buffer: &Arc<dyn Buffer>| BufferRef::direct(buffer, 0, buffer.size());
    let mut list = CommandList::builder();
    list.fill(&1.5_f32.to_le_bytes(), whole(&buffers[0])).unwrap();
    list.fill(&2.0_f32.to_le_bytes(), whole(&buffers[1])).unwrap().barrier();
    for _ in 0..2 {
        list.dispatch(&kernel.executable, buffers.iter().map(whole).collect()).unwrap().barrier();
    }
    let (queue, done) = (context.hal.create_queue().unwrap(), context.hal.create_semaphore(0).unwrap());
    let signals = vec![TimelinePoint { semaphore: Arc::clone(&done), value: 1 }];
    queue.submit(Submission { commands: Some(Arc::new(list.finish())), signals, ..Submission::default() }).unwrap();
    done.wait_blocking(1, None).unwrap();

    trace_file::trace().unwrap().flush();
    let text = std::fs::read_to_string(&file).unwrap();
    let events: Vec<Value> = serde_json::from_str(&format!("{}]", text.trim_end().trim_end_matches(','))).unwrap();
    let track = |event: &Value| {
        let named = events.iter().find(|other| other["name"] == "thread_name" && other["tid"] == event["tid"]);
        named.unwrap()["args"]["name"].as_str().unwrap().to_owned()
    };
    let slices = |on: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["ph"] == "X" && track(event).ends_with(on)).collect()
    };
    let names = |on: &str| -> Vec<&str> { slices(on).iter().map(|slice| slice["name"].as_str().unwrap()).collect() };
    let kernel = "add-64f32-64f32-64f32";
    assert_eq!(names(" array"), ["chain", kernel, kernel]);
    assert_eq!(names(" queue"), ["fill", "fill", "wait"]);
    let submissions = slices(" submissions");
    assert_eq!(submissions[0]["args"]["detail"], "2 dispatches, 0 host calls");
    let compiled = events.iter().find(|event| event["args"]["detail"] == "compiled by reference").unwrap();
    assert_eq!(compiled["name"], kernel);
    // Dispatches lie within their chain, one after the other.
    let array: Vec<(f64, f64)> = slices(" array")
        .iter()
        .map(|slice| (slice["ts"].as_f64().unwrap(), slice["ts"].as_f64().unwrap() + slice["dur"].as_f64().unwrap()))
        .collect();
    let close = |a: f64, b: f64| (a - b).abs() < 0.01;
    assert!(
        close(array[0].0, array[1].0) && close(array[1].1, array[2].0) && close(array[2].1, array[0].1),
        "{array:?}"
    );
}
