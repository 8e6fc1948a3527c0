//! Products that are joined to one dispatch, with weights ahead of waits: they compute what they compute apart, in any order of events, and
//! what would be wrong with it is found.

use super::*;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::dma_channel::DmaTask;
use aie_hal::format::instructions::{ArgumentPlace, InstructionWriter, JoinPart, JoinedStream, join};
use aie_hal::format::tile_address;

/// Products that follow each other, with the buffers of their arguments.
struct Sequence {
    rings: Rings,
    products: Vec<Problem>,
    buffers: Vec<Vec<u32>>,
    /// Weights, columns and result of each.
    arguments: Vec<[usize; 3]>,
}

impl Sequence {
    /// Each with the result of product `from`, or with columns of its own.
    fn new(products: &[(Problem, Option<usize>)]) -> Self {
        let mut random = Random(5);
        let mut sequence = Self {
            rings: rings(products[0].0.weights),
            products: products.iter().map(|(problem, _)| *problem).collect(),
            buffers: Vec::new(),
            arguments: Vec::new(),
        };
        let mut columns: Vec<(usize, usize)> = Vec::new();
        for (problem, from) in products {
            let Problem { weights, depth, rows, columns: count, .. } = *problem;
            let mut bytes = vec![0; rows * problem.row_bytes()];
            assert!(aie_ops::blocks::encode(weights.dtype(), &random.values(depth * rows, -1.0, 1.0), &mut bytes));
            let encoded = sequence.add(words_of(&bytes));
            let known = columns.iter().find(|(length, _)| *length == depth * count).map(|(_, buffer)| *buffer);
            let right = match (from, known) {
                (Some(from), _) => sequence.arguments[*from][2],
                (None, Some(buffer)) => buffer,
                (None, None) => {
                    let right = random.values(depth * count, -1.0, 1.0).iter().map(|value| value.to_bits()).collect();
                    let buffer = sequence.add(right);
                    columns.push((depth * count, buffer));
                    buffer
                }
            };
            let result = sequence.add(vec![0xAAAA_AAAA; rows * count]);
            sequence.arguments.push([encoded, right, result]);
        }
        sequence
    }

    /// Query, key, value, output, gate, up and down of a layer with `n` elements, `m` in between and `k` of keys.
    fn layer(weights: Weights, n: usize, k: usize, m: usize) -> Self {
        let sizes = [
            (n, n, None),
            (n, k, None),
            (n, k, None),
            (n, n, Some(0)),
            (n, m, Some(3)),
            (n, m, Some(3)),
            (m, n, Some(4)),
        ];
        let sized = |(depth, rows, from)| (Problem::sized(weights, depth, rows, 1).unwrap(), from);
        Self::new(&sizes.map(sized))
    }

    fn add(&mut self, words: Vec<u32>) -> usize {
        self.buffers.push(words);
        self.buffers.len() - 1
    }

    fn streams(&self) -> Vec<Vec<u8>> {
        self.products.iter().map(|problem| stream_of(&self.rings, problem)).collect()
    }

    fn joined(&self, runs_ahead: bool) -> JoinedStream {
        let streams = self.streams();
        let place = |buffer: usize| ArgumentPlace { argument: buffer as u16, offset: 0 };
        let places: Vec<[ArgumentPlace; 3]> = self.arguments.iter().map(|arguments| arguments.map(place)).collect();
        let is_written = |buffer: usize| self.arguments.iter().any(|[.., result]| *result == buffer);
        let constant: Vec<[bool; 3]> =
            self.arguments.iter().map(|arguments| arguments.map(|buffer| !is_written(buffer))).collect();
        let ahead = if runs_ahead { self.rings.configured().ahead() } else { &[] };
        let parts: Vec<JoinPart<'_>> = (streams.iter().zip(&places).zip(&constant))
            .map(|((stream, places), constant)| {
                let stream = InstructionStream::parse(stream).unwrap();
                let kept = self.rings.configured().kept();
                JoinPart { stream, places, ahead, kept, constant, is_replaceable: false }
            })
            .collect();
        join(&parts).unwrap()
    }

    /// What the buffers are afterwards, and the cycles of it, dispatch by dispatch.
    fn apart(&self) -> (Vec<Vec<u32>>, u64) {
        let (mut device, mut buffers) = (Device::of(self.rings.configured()), self.buffers.clone());
        let runs = self
            .streams()
            .into_iter()
            .zip(&self.arguments)
            .map(|(stream, arguments)| device.dispatch_on(&stream, &mut buffers, arguments).unwrap().timing.cycles);
        let cycles = runs.sum();
        (buffers, cycles)
    }

    fn run(&self, device: &mut Device, stream: &[u8]) -> Result<(Vec<Vec<u32>>, u64), String> {
        let mut buffers = self.buffers.clone();
        let ran = device.dispatch(stream, &mut buffers)?;
        Ok((buffers, ran.timing.cycles))
    }

    fn problems(&self, stream: &[u8]) -> Vec<String> {
        let source = Source::parse(self.rings.configured().pdi(), Some(stream)).unwrap();
        let design = Design::read(&aie2(), &source).unwrap();
        assert_eq!(design.doubts, []);
        design.problems.into_iter().map(|problem| problem.what).collect()
    }
}

/// Different products, each with columns of its own: types, batches, ends, several columns.
fn mixed(weights: Weights) -> Sequence {
    let products = products(weights);
    let twice = products.iter().rev().chain(&products);
    Sequence::new(&twice.map(|problem| (*problem, None)).collect::<Vec<_>>())
}

#[rstest]
#[case::mixed(|| mixed(Weights::Q4_0), 1)]
#[case::mixed_k(|| mixed(Weights::Q4K), 1)]
#[case::layer(|| Sequence::layer(Weights::Q4_1, 192, 128, 384), 6)]
fn joined_products_compute_what_they_compute_apart(#[case] sequence: fn() -> Sequence, #[case] ahead: usize) {
    let sequence = sequence();
    let (expected, _) = sequence.apart();
    let joined = sequence.joined(true);
    assert!(joined.ahead >= ahead, "{}", joined.ahead);
    assert_eq!(sequence.problems(&joined.bytes), [""; 0]);
    let mut device = Device::of(sequence.rings.configured());
    let at_rest = locks(&device);
    for _ in 0..2 {
        assert_eq!(sequence.run(&mut device, &joined.bytes).unwrap().0, expected);
        assert_eq!(locks(&device), at_rest);
    }
}

#[rstest]
fn joined_products_are_right_in_any_order_of_events(
    #[values(1, 2, 3, 4)] seed: u64,
    #[values(|| Sequence::layer(Weights::Q4_1, 192, 128, 384), || Sequence::layer(Weights::Q8_0, 256, 64, 256))]
    sequence: fn() -> Sequence,
) {
    let sequence = sequence();
    let (expected, _) = sequence.apart();
    let joined = sequence.joined(true);
    let mut rules = Rules::default();
    rules.interleaving = Some(seed);
    let mut device = Device::load_under(&aie2(), sequence.rings.configured().pdi(), rules).unwrap();
    let at_rest = locks(&device);
    device.harness.reload_at_random(seed);
    for _ in 0..2 {
        assert_eq!(sequence.run(&mut device, &joined.bytes).unwrap().0, expected);
        assert_eq!(locks(&device), at_rest);
    }
}

/// The products of a layer of SmolLM2-135M: the same operations, in less time.
#[test]
fn weights_ahead_save_time() {
    let sequence = Sequence::layer(Weights::Q4_1, 576, 192, 1536);
    let (expected, apart) = sequence.apart();
    let mut cycles = [false, true].map(|runs_ahead| {
        let joined = sequence.joined(runs_ahead);
        let (buffers, cycles) = sequence.run(&mut Device::of(sequence.rings.configured()), &joined.bytes).unwrap();
        assert_eq!(buffers, expected);
        println!("{} operations, {} tasks ahead: {cycles} cycles", operations(&joined.bytes), joined.ahead);
        cycles
    });
    println!("apart: {apart} cycles");
    cycles.reverse();
    assert!(cycles.is_sorted_by(|a, b| a < b), "{cycles:?}");
}

/// Products with weights in front of the first wait, in all columns: those of the next ones, with these descriptors.
fn too_far_ahead(sequence: &Sequence, descriptors: &[u8]) -> Vec<u8> {
    let joined = sequence.joined(false).bytes;
    let stream = InstructionStream::parse(&joined).unwrap();
    let operations: Vec<Instruction<'_>> = stream.operations().collect();
    let bd = |column, descriptor| tile_address(column, 0, ShimBd::register(descriptor));
    let begins = |column: u8| move |operation: &Instruction<'_>| matches!(operation, Instruction::BlockWrite { address, .. } if *address == bd(column, 8));
    let mut moved = Vec::new();
    let mut ahead = Vec::new();
    for column in 0..COLUMNS {
        let firsts = (0..operations.len()).filter(|at| begins(column)(&operations[*at])).skip(1);
        for (first, descriptor) in firsts.zip(descriptors) {
            moved.extend(first..first + 3);
            for operation in &operations[first..first + 3] {
                ahead.push(match *operation {
                    Instruction::BlockWrite { data, .. } => {
                        Instruction::BlockWrite { address: bd(column, *descriptor), data }
                    }
                    Instruction::AddressPatch { argument, offset, .. } => {
                        let register = u64::from(bd(column, *descriptor) + 4);
                        Instruction::AddressPatch { register, argument, offset }
                    }
                    Instruction::Write { address, value } => {
                        let task = DmaTask { descriptor: *descriptor, ..DmaTask::decode(value) };
                        Instruction::Write { address, value: task.encode() }
                    }
                    other => panic!("{other:?}"),
                });
            }
        }
    }
    let mut writer = InstructionWriter::new(stream.header());
    let first_wait = operations.iter().position(|operation| matches!(operation, Instruction::Sync { .. })).unwrap();
    for (at, operation) in operations.iter().enumerate() {
        if at == first_wait {
            ahead.iter().for_each(|operation| {
                writer.push(operation);
            });
        }
        if !moved.contains(&at) {
            writer.push(operation);
        }
    }
    writer.finish().unwrap()
}

#[rstest]
#[case::three_behind_the_first(&[9, 10, 11], None)]
#[case::five_in_a_queue(
    &[9, 10, 11, 4],
    Some(("pushes task 5 of MM2S 0 before it has waited for an earlier one", "a fifth push, of BD 4, is lost"))
)]
#[case::a_descriptor_in_use(
    &[8],
    Some(("writes BD 8 while a task with it may not have ended", "BD 8 of tile (0, 0) is written while a task of MM2S 0"))
)]
fn what_goes_too_far_is_found(#[case] descriptors: &[u8], #[case] expected: Option<(&str, &str)>) {
    let product = Problem::sized(Weights::Q4_1, 576, 576, 1).unwrap();
    let sequence = Sequence::new(&[(product, None); 6]);
    let stream = too_far_ahead(&sequence, descriptors);
    let problems = sequence.problems(&stream);
    let mut device = Device::of(sequence.rings.configured());
    let ran = sequence.run(&mut device, &stream);
    match expected {
        None => {
            assert_eq!(problems, [""; 0]);
            assert_eq!(ran.unwrap().0, sequence.apart().0);
        }
        Some((expected, emulated)) => {
            assert!(problems.iter().any(|what| what.contains(expected)), "{problems:?}");
            let failure = ran.unwrap_err();
            assert!(failure.contains(emulated), "{failure}");
        }
    }
}
