use super::{ComputeError, Stream};
use crate::config::Config;
use crate::device::backend_device::BackendDevice;
use crate::device::drivers;
use crate::doubles::{self, OneNode, coherent, lost, out_of_memory};
use crate::memory::host_memory::HostSpan;
use crate::plan::graph::{Graph, GraphError, GraphNode, GraphSource, TensorView};
use crate::report::graph_file::{GraphFile, Line};
use aie_hal::mock::{MockBuffer, MockDevice, MockQueue, MockSemaphore};
use aie_hal::{ArchRegistry, Buffer, DeviceError, Queue, Semaphore, SubmitError, WaitError};
use aie_ops::{DataType, OpParams, Tensor};
use rstest::rstest;
use std::sync::Arc;

fn failed() -> WaitError {
    WaitError::Failed(Arc::new(lost()))
}

fn queue(submissions: usize) -> Arc<dyn Queue> {
    let mut queue = MockQueue::new();
    queue.expect_submit().times(submissions).returning(|_| Ok(()));
    Arc::new(queue)
}

/// Makes `device` create a semaphore that is waited for once for each of `results`.
fn semaphore(device: &mut MockDevice, results: &'static [Result<(), ()>]) {
    device.expect_create_semaphore().times(1).returning(move |_| {
        let mut semaphore = MockSemaphore::new();
        let mut results = results.iter();
        semaphore
            .expect_wait_blocking()
            .times(results.len())
            .returning(move |_, _| results.next().unwrap().map_err(|()| failed()));
        Ok(Arc::new(semaphore) as Arc<dyn Semaphore>)
    });
}

fn rig(device: MockDevice, queue: Arc<dyn Queue>, asynchronous: bool, from: MockBuffer) -> (Stream, OneNode) {
    let context = doubles::context(device);
    let graph = OneNode::copy(&context, Arc::new(from), coherent(64));
    (Stream::new(context, queue, asynchronous).unwrap(), graph)
}

fn flushed() -> MockBuffer {
    let mut buffer = MockBuffer::with_memory(64);
    buffer.expect_flush().returning(|_| Ok(()));
    buffer
}

#[test]
fn a_queue_that_fails_leaves_nothing_in_flight() {
    let mut device = doubles::device();
    semaphore(&mut device, &[]);
    let mut queue = MockQueue::new();
    queue.expect_submit().times(2).returning(|_| Err(SubmitError::Device(lost())));
    let (stream, graph) = rig(device, Arc::new(queue), true, flushed());
    for _ in 0..2 {
        let cause = stream.compute(&graph).unwrap_err();
        assert!(matches!(cause, ComputeError::Submit(SubmitError::Device(DeviceError::Lost(_)))), "{cause}");
    }
    assert_eq!(stream.point().value, 0);
}

#[test]
fn a_failed_timeline_is_replaced() {
    let mut device = doubles::device();
    semaphore(&mut device, &[Err(())]);
    semaphore(&mut device, &[Ok(())]);
    let (stream, graph) = rig(device, queue(2), false, flushed());
    let cause = stream.compute(&graph).unwrap_err();
    assert_eq!(cause.to_string(), failed().to_string());
    assert_eq!(stream.point().value, 0);
    stream.compute(&graph).unwrap();
    assert_eq!(stream.point().value, 1);
}

/// A copy is repeated after what may pass, once; one whose source is its result is not.
#[rstest]
#[case::aborted(DeviceError::Execution("aborted".into()), false, true)]
#[case::silent(DeviceError::Timeout("never signalled".into()), false, true)]
#[case::gone(lost(), false, false)]
#[case::in_place(DeviceError::Execution("aborted".into()), true, false)]
fn a_graph_that_failed_runs_once_more(
    #[case] cause: DeviceError,
    #[case] in_place: bool,
    #[case] is_repeated: bool,
    #[values(false, true)] asynchronous: bool,
) {
    let rig = |second: bool| {
        let mut device = doubles::device();
        let mut results =
            vec![false, second].into_iter().take(1 + usize::from(is_repeated)).collect::<Vec<_>>().into_iter();
        let cause = cause.clone();
        device.expect_create_semaphore().returning(move |_| {
            let mut semaphore = MockSemaphore::new();
            let (result, cause) = (results.next(), cause.clone());
            semaphore.expect_wait_blocking().returning(move |_, _| match result {
                Some(false) => Err(WaitError::Failed(Arc::new(cause.clone()))),
                _ => Ok(()),
            });
            Ok(Arc::new(semaphore) as Arc<dyn Semaphore>)
        });
        let context = doubles::context(device);
        let from = coherent(64);
        let to = if in_place { Arc::clone(&from) } else { coherent(64) };
        let graph = OneNode::copy(&context, from, to);
        let queue = queue(1 + usize::from(is_repeated));
        (Stream::new(context, queue, asynchronous).unwrap(), graph)
    };
    let fails = |second: bool| {
        let (stream, graph) = rig(second);
        let computed = stream.compute(&graph);
        stream.synchronize();
        let late = stream.in_flight.lock().failure.is_some();
        assert!(if asynchronous { computed.is_ok() } else { !late });
        computed.is_err() || late
    };
    assert_eq!((fails(true), fails(false)), (!is_repeated, true));
}

#[test]
fn a_failure_that_shows_late_fails_the_next_graph_once() {
    let mut device = doubles::device();
    semaphore(&mut device, &[Err(())]);
    semaphore(&mut device, &[Ok(())]);
    let (stream, graph) = rig(device, queue(2), true, flushed());
    stream.compute(&graph).unwrap();
    stream.synchronize();
    let cause = stream.compute(&graph).unwrap_err().to_string();
    assert!(cause.starts_with("an earlier graph failed: ") && cause.contains("unplugged"), "{cause}");
    stream.compute(&graph).unwrap();
}

#[test]
fn without_a_semaphore_there_is_no_stream() {
    let mut device = doubles::device();
    device.expect_create_semaphore().returning(|_| Err(lost()));
    assert_eq!(Stream::new(doubles::context(device), queue(0), true).err(), Some(lost()));
}

#[test]
fn inputs_that_cannot_be_flushed_are_not_computed_with() {
    let mut device = doubles::device();
    semaphore(&mut device, &[]);
    let mut from = MockBuffer::with_memory(64);
    from.expect_flush().returning(|_| Err(lost()));
    let (stream, graph) = rig(device, queue(0), true, from);
    let cause = stream.compute(&graph).unwrap_err();
    assert!(matches!(cause, ComputeError::Flush(DeviceError::Lost(_))), "{cause}");
}

#[test]
fn without_scratch_memory_a_graph_fails_and_the_next_tries_again() {
    let mut device = doubles::device();
    semaphore(&mut device, &[Ok(())]);
    device.load_kernels();
    // A copy of the weights, then scratch memory, twice; then there is enough for the latter.
    device.expect_allocate().times(2).returning(|_| Err(out_of_memory()));
    device.expect_allocate().times(1).returning(|params| Ok(coherent(params.size) as Arc<dyn Buffer>));
    let context = doubles::context(device);
    let graph = OneNode::product(&context);
    let stream = Stream::new(Arc::clone(&context), queue(1), true).unwrap();
    let cause = stream.compute(&graph).unwrap_err();
    assert!(matches!(cause, ComputeError::Scratch(DeviceError::OutOfMemory { .. })), "{cause}");
    assert!(cause.to_string().starts_with("scratch memory for conversions: out of memory"), "{cause}");
    assert_eq!(context.weights.counts().refused, 1);
    stream.compute(&graph).unwrap();
}

/// Pages that must not be touched, as those of a model that is mapped and not in memory.
fn untouchable(bytes: usize) -> usize {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: the kernel chooses where the mapping is, so that it replaces none. It stays.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE) };
    start.unwrap().expose_provenance()
}

#[test]
fn a_device_that_only_plans_counts_graphs_and_touches_no_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graphs");
    let uri = "mock:aie2p?execute=plan".parse().unwrap();
    let hal = drivers::mock(ArchRegistry::builtin()).open(&uri).unwrap().remove(0);
    let graphs = Some(Arc::new(GraphFile::create(&path).unwrap()));
    let device = BackendDevice::new(0, hal, doubles::store(), None, graphs, &Config::default());
    let context = &device.context;
    // The first source are weights of another type than the array's, so that a copy of them is asked for.
    let weights = Tensor::contiguous(DataType::F16, [64, 4096, 1, 1]);
    let model = untouchable(weights.span_bytes());
    // SAFETY: the range is mapped and stays; that nothing reads it is what this test is for.
    let span = unsafe { HostSpan::new(model, weights.span_bytes()) };
    context.import(span).unwrap();
    let weights = TensorView { weights: true, ..TensorView::plain(1, weights, span) };
    let ours = |id, ne: [usize; 4]| {
        let tensor = Tensor::contiguous(DataType::F32, ne);
        let (base, buffer) = context.allocate(tensor.span_bytes()).unwrap();
        buffer.write(0, &[7; 4]).unwrap();
        // SAFETY: the buffer has these bytes and lives as long as the device.
        TensorView::plain(id, tensor, unsafe { HostSpan::new(base, tensor.span_bytes()) })
    };
    let (input, middle, last) = (ours(2, [64, 2, 1, 1]), ours(3, [4096, 2, 1, 1]), ours(4, [4096, 2, 1, 1]));
    let product = GraphNode::new("MUL_MAT", OpParams::default(), middle, vec![Some(weights), Some(input)]);
    let square = GraphNode::new("SQR", OpParams::default(), last, vec![Some(middle)]);
    let stream = device.create_stream(false).unwrap();
    let graph = Nodes(vec![product, square]);
    (0..3).for_each(|_| stream.compute(&graph).unwrap());

    let operations = context.statistics.operations();
    assert_eq!(
        operations.iter().map(|found| (&*found.op, found.array)).collect::<Vec<_>>(),
        [("MUL_MAT", 3), ("SQR", 3)]
    );
    assert_eq!((context.weights.counts().converted, context.hal.counters().submissions), (1, 0));
    // What the program goes by is zero; all else is left.
    let first = |view: &TensorView| {
        let found = context.buffers.find(&view.span.range()).unwrap();
        let mut bytes = [1; 4];
        found.buffer.read(found.offset, &mut bytes).unwrap();
        bytes
    };
    assert_eq!((first(&middle), first(&last)), ([7; 4], [0; 4]));
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Line<'_>> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let recorded = |line: &Line<'_>| line.recorded.as_ref().map(|recorded| recorded.nodes.len());
    assert_eq!(
        lines.iter().map(|line| (line.graph, recorded(line))).collect::<Vec<_>>(),
        [(0, Some(2)), (0, None), (0, None)]
    );
    // Written to by the program without being asked to keep it.
    let (base, length) = (input.span.address(), input.span.length());
    let buffer = context.buffers.find(&input.span.range()).unwrap().buffer;
    device.write(base, &*buffer, 0, &[9; 4]).unwrap();
    device.fill(base, &*buffer, 0..length, 9).unwrap();
    assert_eq!(first(&input), [7; 4]);
    assert!(device.write(base, &*buffer, length, &[9]).is_err());
}

/// Nodes in memory that is there.
struct Nodes(Vec<GraphNode>);

impl GraphSource for Nodes {
    fn read(&self) -> Result<Graph, GraphError> {
        Ok(Graph { nodes: self.0.clone() })
    }

    fn fingerprint(&self, word: &mut impl FnMut(u64) -> bool) -> bool {
        self.0.iter().all(|node| word(node.output.id as u64))
    }
}
