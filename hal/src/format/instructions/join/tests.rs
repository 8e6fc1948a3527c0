use super::*;
use crate::format::bd::{CoreBd, ShimBd};
use crate::format::instructions::{Header, Transfer};
use crate::format::mutation::{mutate, put_word};
use rstest::rstest;

const HEADER: Header = Header { generation: 3, rows: 6, columns: 4, mem_tile_rows: 1 };

/// Moves `words` words of argument 0 to argument 1, from byte 8 of both on, and waits.
fn moving(words: u32) -> Vec<u8> {
    let mut writer = InstructionWriter::new(HEADER);
    for (argument, direction) in [(0, Direction::MemoryToStream), (1, Direction::StreamToMemory)] {
        let (descriptor, token, shape) = (argument as u8, argument == 1, ShimBd::linear(words, 2));
        let transfer =
            Transfer { column: 0, direction, channel: 0, descriptor, shape, argument, offset: 8, repeat: 0, token };
        writer.transfer(&transfer).unwrap();
        if token {
            writer.wait(&transfer);
        }
    }
    writer.finish().unwrap()
}

fn at(argument: u16, offset: u64) -> ArgumentPlace {
    ArgumentPlace { argument, offset }
}

fn patches(stream: &[u8]) -> Vec<(u16, u64)> {
    let stream = InstructionStream::parse(stream).unwrap();
    let patch = |operation| match operation {
        Instruction::AddressPatch { argument, offset, .. } => Some((argument, offset)),
        _ => None,
    };
    stream.operations().filter_map(patch).collect()
}

#[test]
fn operations_stay_and_arguments_move() {
    let parts = [moving(4), moving(7)];
    let streams = parts.each_ref().map(|bytes| InstructionStream::parse(bytes).unwrap());
    assert!(streams.iter().all(InstructionStream::can_be_joined));
    let mut writer = InstructionWriter::new(HEADER);
    writer.append(&streams[0], &[at(2, 0), at(0, 0x100)]).unwrap();
    writer.append(&streams[1], &[at(0, 0x100), at(1, 0x7000_0000)]).unwrap();
    let joined = writer.finish().unwrap();
    assert_eq!(patches(&joined), [(2, 8), (0, 0x108), (0, 0x108), (1, 0x7000_0008)]);
    let joined = InstructionStream::parse(&joined).unwrap();
    assert_eq!((joined.argument_count(), joined.has_completion_token()), (3, true));
    let is_other = |operation: &Instruction<'_>| !matches!(operation, Instruction::AddressPatch { .. });
    let expected = streams.iter().flat_map(InstructionStream::operations).filter(is_other);
    assert!(joined.operations().filter(is_other).eq(expected));
}

#[rstest]
#[case::preempt(Instruction::Preempt { level: 1 }, "lets another context take over")]
#[case::load(Instruction::LoadPdi { id: 1, size: 16, address: 0 }, "loads another PDI")]
#[case::custom(Instruction::Custom { opcode: 0x83, payload: Words::new(&[], 0) }, "has code 0x83")]
fn what_is_not_known_to_go_together_is_refused(#[case] operation: Instruction<'_>, #[case] expected: &str) {
    let bytes = InstructionWriter::new(HEADER).push(&operation).finish().unwrap();
    let stream = InstructionStream::parse(&bytes).unwrap();
    assert!(!stream.can_be_joined());
    let error = InstructionWriter::new(HEADER).append(&stream, &[]).unwrap_err().to_string();
    assert!(error.starts_with("operation 0 of the stream ") && error.contains(expected), "{error}");
}

#[test]
fn a_stream_without_a_token_is_refused() {
    let bytes = InstructionWriter::new(HEADER).push(&Instruction::Noop).finish().unwrap();
    assert!(!InstructionStream::parse(&bytes).unwrap().can_be_joined());
}

#[test]
fn arguments_need_a_place_and_streams_the_same_partition() {
    let bytes = moving(4);
    let stream = InstructionStream::parse(&bytes).unwrap();
    let error = |header, places: &[ArgumentPlace]| {
        InstructionWriter::new(header).append(&stream, places).unwrap_err().to_string()
    };
    assert_eq!(error(HEADER, &[at(0, 0)]), "operation 4 of the stream uses argument 1 of 1");
    // Beyond what firmware can add to the address of an argument, also a late one.
    for place in [at(0, u64::MAX - 7), at(0, 0xffff_fff8), at(5, 0x7fff_fff8)] {
        let far = error(HEADER, &[place]);
        assert_eq!(far, "operation 1 of the stream has an address 0x8 bytes behind its argument");
    }
    assert!(
        error(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 }, &[at(0, 0), at(1, 0)])
            .contains("is for another partition")
    );
}

/// Whatever is read is joined or refused; what was joined has all operations.
#[test]
fn mutated_streams_are_joined_or_refused() {
    let (first, places) = (moving(4), [at(1, 16), at(0, 0)]);
    let first = InstructionStream::parse(&first).unwrap();
    let (mut joined, mut refused) = (0, 0);
    mutate(&moving(7), 20_000, |mutated| {
        let mut mutated = mutated.to_vec();
        if mutated.len() >= 16 {
            let size = mutated.len() as u32;
            put_word(&mut mutated, 12, size);
        }
        let Ok(stream) = InstructionStream::parse(&mutated) else { return };
        let mut writer = InstructionWriter::new(HEADER);
        writer.append(&first, &places).unwrap();
        if writer.append(&stream, &places).is_err() {
            refused += 1;
            return;
        }
        joined += 1;
        let bytes = writer.finish().unwrap();
        let count = InstructionStream::parse(&bytes).unwrap().operations().count();
        assert_eq!(count, first.operations().count() + stream.operations().count());
        assert!(patches(&bytes).iter().all(|(argument, _)| *argument < 2));
    });
    assert!(joined > 1000 && refused > 100, "{joined} joined, {refused} refused");
}

/// The weights' channel of a column.
fn weights(column: u8) -> AheadChannel {
    AheadChannel { column, channel: 0, packet: None, first_descriptor: 8, descriptors: 4, results: column }
}

fn shim(column: u8, direction: Direction, channel: u8, descriptor: u8, argument: u16, offset: u64) -> Transfer {
    let (token, shape) = (direction == Direction::StreamToMemory, ShimBd::linear(16, 2));
    Transfer { column, direction, channel, descriptor, shape, argument, offset, repeat: 0, token }
}

/// Parameters, weights (argument 0), operand (argument 1) and result (argument 2) in one column, whose addresses have its number.
fn product(number: u64) -> Vec<u8> {
    product_with(number, 1, &shim(0, Direction::MemoryToStream, 0, 8, 0, 64 * number))
}

/// The same with several tasks of weights, each of this form.
fn product_with(number: u64, tasks: u8, form: &Transfer) -> Vec<u8> {
    let mut writer = InstructionWriter::new(HEADER);
    writer.block_write(0x20_0000, &[number as u32; 4]);
    for task in 0..tasks {
        writer.transfer(&Transfer { descriptor: form.descriptor + task % 4, ..*form }).unwrap();
    }
    let result = shim(0, Direction::StreamToMemory, 0, 0, 2, 64 * number);
    writer.transfer(&shim(0, Direction::MemoryToStream, 1, 12, 1, 64 * number)).unwrap();
    writer.transfer(&result).unwrap().wait(&result);
    writer.finish().unwrap()
}

const PLACES: [ArgumentPlace; 3] = [
    ArgumentPlace { argument: 0, offset: 0 },
    ArgumentPlace { argument: 1, offset: 0 },
    ArgumentPlace { argument: 2, offset: 0 },
];

fn part<'a>(stream: &'a [u8], ahead: &'a [AheadChannel]) -> JoinPart<'a> {
    let (stream, constant) = (InstructionStream::parse(stream).unwrap(), &[true, false, false]);
    JoinPart { stream, places: &PLACES, ahead, kept: &[], constant, is_replaceable: false }
}

/// A stream in short: `p` parameters, `w` weights with their descriptor and number, `o` operand, `r` result, `.` a wait.
fn short(stream: &[u8]) -> String {
    let operations: Vec<_> = InstructionStream::parse(stream).unwrap().operations().collect();
    let mut words = Vec::new();
    let mut at = 0;
    while at < operations.len() {
        match Task::at(&operations, at) {
            Some(task) => {
                let Instruction::AddressPatch { argument, offset, .. } = operations[at + 1] else { unreachable!() };
                words.push(match argument {
                    0 => format!("w{}:{}", task.descriptor, offset / 64),
                    1 => "o".to_owned(),
                    _ => "r".to_owned(),
                });
                at = task.operations.end;
            }
            None => {
                words.push(if let Instruction::Sync { .. } = operations[at] { "." } else { "p" }.to_owned());
                at += 1;
            }
        }
    }
    words.join(" ")
}

fn products(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(product).collect()
}

/// As many as the queue holds, each with a descriptor that no task under way has.
#[test]
fn weights_run_ahead_of_waits() {
    let (streams, ahead) = (products(6), [weights(0)]);
    let parts: Vec<JoinPart<'_>> = streams.iter().map(|stream| part(stream, &ahead)).collect();
    let joined = join(&parts).unwrap();
    assert_eq!(short(&joined.bytes), "p w8:0 o r w9:1 w10:2 w11:3 . p o r w8:4 . p o r w9:5 . p o r . p o r . p o r .");
    assert_eq!((joined.ahead, joined.pieces), (5, vec![]));
}

#[test]
fn without_the_makers_word_parts_follow_each_other() {
    let streams = products(3);
    let mut writer = InstructionWriter::new(HEADER);
    for stream in &streams {
        writer.append(&InstructionStream::parse(stream).unwrap(), &PLACES).unwrap();
    }
    let parts: Vec<JoinPart<'_>> = streams.iter().map(|stream| part(stream, &[])).collect();
    assert_eq!(join(&parts).unwrap(), JoinedStream { bytes: writer.finish().unwrap(), pieces: vec![], ahead: 0 });
    // The word of one part counts for that one.
    let ahead = [weights(0)];
    let parts = [part(&streams[0], &ahead), part(&streams[1], &[]), part(&streams[2], &ahead)];
    assert_eq!(short(&join(&parts).unwrap().bytes), "p w8:0 o r . p w8:1 o r . p w8:2 o r .");
}

fn shaped(shape: ShimBd) -> Transfer {
    Transfer { shape, ..shim(0, Direction::MemoryToStream, 0, 8, 0, 64) }
}

/// What nothing goes past, in the middle of three products.
#[rstest]
#[case::a_token(Transfer { token: true, ..shim(0, Direction::MemoryToStream, 0, 8, 0, 64) })]
#[case::another_descriptor(shim(0, Direction::MemoryToStream, 0, 5, 0, 64))]
#[case::its_descriptor_on_another_channel(shim(0, Direction::MemoryToStream, 1, 9, 0, 64))]
#[case::a_lock(shaped(ShimBd { acquire: true, ..ShimBd::linear(16, 2) }))]
#[case::a_next_descriptor(shaped(ShimBd { use_next: true, ..ShimBd::linear(16, 2) }))]
fn nothing_goes_past_what_is_not_understood(#[case] form: Transfer) {
    let (streams, ahead) = ([product(0), product_with(1, 1, &form), product(2)], [weights(0)]);
    let parts: Vec<JoinPart<'_>> = streams.iter().map(|stream| part(stream, &ahead)).collect();
    let joined = join(&parts).unwrap();
    assert_eq!(joined.ahead, 0, "{}", short(&joined.bytes));
}

/// A task that may not run ahead keeps its place; what is behind it can be started in front of the end of its part.
#[rstest]
#[case::another_packet(
    shaped(ShimBd { enable_packet: true, packet_id: 1, ..ShimBd::linear(16, 2) }),
    "p w8:0 o r . p w8:1 o r w9:2 . p o r ."
)]
#[case::what_is_written(shim(0, Direction::MemoryToStream, 0, 8, 1, 64), "p w8:0 o r . p o o r w9:2 . p o r .")]
fn nothing_goes_past_a_task_that_stays(#[case] form: Transfer, #[case] expected: &str) {
    let (streams, ahead) = ([product(0), product_with(1, 1, &form), product(2)], [weights(0)]);
    let parts: Vec<JoinPart<'_>> = streams.iter().map(|stream| part(stream, &ahead)).collect();
    assert_eq!(short(&join(&parts).unwrap().bytes), expected);
}

/// A part of the same design with other work, or with more tasks than the channel has descriptors.
#[test]
fn what_does_not_use_the_channel_is_gone_past() {
    let other = product_with(1, 0, &shim(0, Direction::MemoryToStream, 0, 8, 0, 0));
    let (first, last, ahead) = (product(0), product(2), [weights(0)]);
    let parts = [&first, &other, &last].map(|stream| part(stream, &ahead));
    assert_eq!(short(&join(&parts).unwrap().bytes), "p w8:0 o r w9:2 . p o r . p o r .");
    let form = shim(0, Direction::MemoryToStream, 0, 8, 0, 64);
    let three = product_with(1, 3, &form);
    let parts = [&first, &three, &last].map(|stream| part(stream, &ahead));
    assert_eq!(short(&join(&parts).unwrap().bytes), "p w8:0 o r w9:1 w10:1 w11:1 . p o r w8:2 . p o r .");
    let five = product_with(1, 5, &form);
    let parts = [&first, &five, &last].map(|stream| part(stream, &ahead));
    assert_eq!(join(&parts).unwrap().ahead, 0);
    // In a column without a result nothing tells that its tasks have ended.
    let elsewhere = product_with(1, 1, &Transfer { column: 1, ..form });
    let ahead = [weights(0), weights(1)];
    let parts = [&first, &elsewhere, &last].map(|stream| part(stream, &ahead));
    let joined = short(&join(&parts).unwrap().bytes);
    assert_eq!(joined, "p w8:0 o r w9:2 . p w8:1 o r . p o r .");
    // Unless those of another column do.
    let ahead = [weights(0), AheadChannel { results: 0, ..weights(1) }];
    let parts = [&first, &elsewhere, &last].map(|stream| part(stream, &ahead));
    let joined = short(&join(&parts).unwrap().bytes);
    assert_eq!(joined, "p w8:0 o r w9:2 w8:1 . p o r . p o r .");
}

/// Of a channel of which parts say different things nothing is moved, and each task is there once.
#[test]
fn a_channel_is_said_once() {
    let (first, last) = (product(0), product(2));
    let ahead = [weights(0), AheadChannel { packet: Some(1), ..weights(0) }];
    let parts = [&first, &last].map(|stream| part(stream, &ahead));
    let joined = join(&parts).unwrap();
    assert_eq!((joined.ahead, short(&joined.bytes).as_str()), (0, "p w8:0 o r . p w8:2 o r ."));
}

/// Moves an operand (argument 1), with a descriptor like this, to a result (argument 2), each at so many bytes.
fn copy_of(form: ShimBd, operand: u64, result: u64) -> Vec<u8> {
    let mut writer = InstructionWriter::new(HEADER);
    let result = shim(0, Direction::StreamToMemory, 0, 0, 2, result);
    writer.transfer(&Transfer { shape: form, ..shim(0, Direction::MemoryToStream, 1, 12, 1, operand) }).unwrap();
    writer.transfer(&result).unwrap().wait(&result);
    writer.finish().unwrap()
}

/// What a descriptor has already is not written to it; `p` is a push alone.
#[rstest]
#[case::same([0, 0, 64, 0], 1, "o r . p r . o r . o r .")]
#[case::all_same([64; 4], 1, "o r . p r . p r . p r .")]
// It counts what it has done in its own words.
#[case::iterates([0; 4], 2, "o r . o r . o r . o r .")]
fn descriptors_that_repeat_are_written_once(
    #[case] operands: [u64; 4],
    #[case] iteration_wrap: u32,
    #[case] expected: &str,
) {
    let form = ShimBd { iteration_wrap, ..ShimBd::linear(16, 2) };
    let streams: Vec<Vec<u8>> =
        operands.iter().zip(1..).map(|(operand, number)| copy_of(form, *operand, 64 * number)).collect();
    let joined = join(&streams.iter().map(|stream| part(stream, &[])).collect::<Vec<_>>()).unwrap();
    assert_eq!(short(&joined.bytes), expected);
}

/// Nothing is known of a descriptor that something else was written to, or operations that others take the place of.
#[test]
fn descriptors_that_may_have_changed_are_written() {
    let form = ShimBd::linear(16, 2);
    let [first, second, last] = [64, 128, 192].map(|result| copy_of(form, 0, result));
    let mut parts = [&first, &second, &last].map(|stream| part(stream, &[]));
    parts[1].is_replaceable = true;
    assert_eq!(short(&join(&parts).unwrap().bytes), "o r . o r . o r .");
    let word = u64::from(crate::format::tile_address(0, 0, ShimBd::register(12) + 28));
    for (address, expected) in [(word, "o r . p o r ."), (word + 4, "o r . p p r .")] {
        let mut writer = InstructionWriter::new(HEADER);
        writer.push(&Instruction::Write { address, value: 0 });
        writer.append(&InstructionStream::parse(&second).unwrap(), &PLACES).unwrap();
        let second = writer.finish().unwrap();
        assert_eq!(short(&join(&[part(&first, &[]), part(&second, &[])]).unwrap().bytes), expected);
    }
}

/// Parameters are written once where they are kept, and again behind others.
#[rstest]
#[case::kept(KeptMemory { column: 0, row: 2, offset: 0, bytes: 16 }, "p o r . o r . p o r . p o r .")]
#[case::not_all(KeptMemory { column: 0, row: 2, offset: 0, bytes: 12 }, "p o r . p o r . p o r . p o r .")]
#[case::elsewhere(KeptMemory { column: 1, row: 2, offset: 0, bytes: 16 }, "p o r . p o r . p o r . p o r .")]
fn words_that_stay_are_written_once(#[case] memory: KeptMemory, #[case] expected: &str) {
    let streams: Vec<Vec<u8>> = [5, 5, 6, 5]
        .iter()
        .zip(1..)
        .map(|(parameter, number)| {
            let mut writer = InstructionWriter::new(HEADER);
            writer.block_write(0x20_0000, &[*parameter; 4]);
            let copy = copy_of(ShimBd::linear(16, 2), 64 * number, 64 * number);
            writer.append(&InstructionStream::parse(&copy).unwrap(), &PLACES).unwrap();
            writer.finish().unwrap()
        })
        .collect();
    let kept = [memory];
    let parts: Vec<JoinPart<'_>> = streams.iter().map(|stream| JoinPart { kept: &kept, ..part(stream, &[]) }).collect();
    assert_eq!(short(&join(&parts).unwrap().bytes), expected);
    // Of what others may take the place of nothing is known.
    let mut parts = parts[..2].to_vec();
    parts[0].is_replaceable = true;
    assert_eq!(short(&join(&parts).unwrap().bytes), "p o r . p o r .");
}

/// So are descriptors of cores, unless they count.
#[rstest]
#[case::same(2, 1, "p o r . o r .")]
#[case::iterates(2, 2, "p o r . p o r .")]
#[case::of_a_mem_tile(1, 1, "p o r . p o r .")]
fn descriptors_of_cores_are_written_once(#[case] row: u8, #[case] iteration_wrap: u32, #[case] expected: &str) {
    let words = CoreBd { iteration_wrap, length: 16, valid: true, ..CoreBd::default() }.encode().unwrap();
    let streams = [64, 128].map(|at| {
        let mut writer = InstructionWriter::new(HEADER);
        writer.block_write(crate::format::tile_address(0, row, CoreBd::register(3)), &words);
        let copy = copy_of(ShimBd::linear(16, 2), at, at);
        writer.append(&InstructionStream::parse(&copy).unwrap(), &PLACES).unwrap();
        writer.finish().unwrap()
    });
    let parts = streams.each_ref().map(|stream| part(stream, &[]));
    assert_eq!(short(&join(&parts).unwrap().bytes), expected);
}

/// A part whose operations others replace stays as it is, and weights go past it.
#[test]
fn replaceable_parts_stay_together() {
    let other = product_with(1, 0, &shim(0, Direction::MemoryToStream, 0, 8, 0, 0));
    let (first, last, ahead) = (product(0), product(2), [weights(0)]);
    let mut parts = [&first, &other, &last].map(|stream| part(stream, &ahead));
    parts[1].is_replaceable = true;
    let joined = join(&parts).unwrap();
    assert_eq!(joined.pieces.len(), 1);
    assert_eq!(joined.bytes[joined.pieces[0].clone()], other[HEADER_BYTES..]);
    assert_eq!(short(&joined.bytes), "p w8:0 o r w9:2 . p o r . p o r .");
    // Its own tasks do not move, and nothing goes past them.
    let mut parts = [&first, &last, &last].map(|stream| part(stream, &ahead));
    parts[1].is_replaceable = true;
    assert_eq!(join(&parts).unwrap().ahead, 0);
}

#[test]
fn operations_of_the_same_places_can_be_replaced() {
    let operations = |stream: Vec<u8>| stream[HEADER_BYTES..].to_vec();
    let old = operations(product(1));
    assert!(can_replace(&old, &old) && can_replace(&old, &operations(product(7))));
    let form = shim(0, Direction::MemoryToStream, 0, 8, 0, 64);
    for other in [
        product_with(1, 2, &form),
        product_with(1, 1, &Transfer { descriptor: 9, ..form }),
        product_with(1, 1, &Transfer { channel: 1, ..form }),
        product_with(1, 1, &Transfer { argument: 1, ..form }),
        moving(4),
    ] {
        assert!(!can_replace(&old, &operations(other)));
    }
    assert!(!can_replace(&old, &old[..old.len() - 4]) && !can_replace(&old[..4], &old[..4]));
}

/// Random parts in two columns: tasks keep their order on a channel, no queue overflows, no descriptor is written while it is in use, and all
/// else stays as it is.
#[test]
fn whatever_is_joined_keeps_to_the_rules() {
    let ahead = [weights(0), weights(1)];
    let mut random = fastrand::Rng::with_seed(3);
    let mut moved = 0;
    for _ in 0..300 {
        let mut number = 0;
        let streams: Vec<Vec<u8>> = (0..random.u64(2..9))
            .map(|_| {
                let mut writer = InstructionWriter::new(HEADER);
                writer.block_write(0x20_0000, &[random.u32(..); 4]);
                let columns: Vec<u8> = (0..2).filter(|_| random.bool()).collect();
                for column in &columns {
                    for task in 0..random.u8(0..=4) {
                        number += 64;
                        let form = shim(*column, Direction::MemoryToStream, 0, 8 + task, 0, number);
                        let bound = Transfer { token: random.u8(..) < 20, ..form };
                        writer.transfer(&bound).unwrap();
                        if bound.token {
                            writer.wait(&bound);
                        }
                    }
                    writer.transfer(&shim(*column, Direction::StreamToMemory, 0, 0, 2, 64)).unwrap();
                }
                for column in columns {
                    writer.wait(&shim(column, Direction::StreamToMemory, 0, 0, 2, 64));
                }
                writer.finish().unwrap()
            })
            .collect();
        let parts: Vec<JoinPart<'_>> = streams.iter().map(|stream| part(stream, &ahead)).collect();
        let joined = join(&parts).unwrap();
        moved += joined.ahead;
        let of_part: Vec<(u64, usize)> = streams
            .iter()
            .zip(0..)
            .flat_map(|(stream, part)| tasks(stream).into_iter().map(move |(_, _, offset)| (offset, part)))
            .collect();
        let plain = join(&streams.iter().map(|stream| part(stream, &[])).collect::<Vec<_>>()).unwrap();
        for column in 0..2 {
            let order = |bytes: &[u8]| -> Vec<u64> {
                tasks(bytes).into_iter().filter(|(of, ..)| *of == column).map(|(_, _, offset)| offset).collect()
            };
            assert_eq!(order(&joined.bytes), order(&plain.bytes));
            check_queue(&joined.bytes, column, &of_part, streams.len());
        }
        assert_eq!(others(&joined.bytes), others(&plain.bytes));
    }
    assert!(moved > 300, "{moved}");
}

fn operations(stream: &[u8]) -> Vec<Instruction<'_>> {
    InstructionStream::parse(stream).unwrap().operations().collect()
}

/// Column, descriptor and offset of each task of weights.
fn tasks(stream: &[u8]) -> Vec<(u8, u8, u64)> {
    let operations = operations(stream);
    let task = |at: usize| {
        let task = Task::at(&operations, at)?;
        let Instruction::AddressPatch { register, argument: 0, offset } = operations[at + 1] else { return None };
        Some((crate::format::tile_location(register as u32).0, task.descriptor, offset))
    };
    (0..operations.len()).filter_map(task).collect()
}

/// All that is no task of weights.
fn others(stream: &[u8]) -> Vec<Vec<u8>> {
    let operations = operations(stream);
    let mut left = Vec::new();
    let mut at = 0;
    while at < operations.len() {
        match Task::at(&operations, at).filter(|task| task.argument == 0) {
            Some(task) => at = task.operations.end,
            None => {
                left.push(InstructionWriter::new(HEADER).push(&operations[at]).finish().unwrap());
                at += 1;
            }
        }
    }
    left
}

/// Tasks of a part have ended with its last wait; nothing is known of an earlier end but by a token of the channel.
fn check_queue(stream: &[u8], column: u8, of_part: &[(u64, usize)], parts: usize) {
    let operations = operations(stream);
    let mut under_way: Vec<(u8, usize, bool)> = Vec::new();
    let mut part = 0;
    for (at, operation) in operations.iter().enumerate() {
        // A part begins with its parameters.
        if let Instruction::BlockWrite { address: 0x20_0000, .. } = operation {
            under_way.retain(|(_, of, _)| *of >= part);
            part += 1;
        }
        match *operation {
            Instruction::Sync { direction: Direction::MemoryToStream, column: of, .. } if of == column => {
                let last = under_way.iter().position(|(_, _, token)| *token).unwrap();
                under_way.drain(..=last);
            }
            _ => {}
        }
        let Some(task) = Task::at(&operations, at) else { continue };
        let Instruction::AddressPatch { register, argument: 0, offset } = operations[at + 1] else { continue };
        if crate::format::tile_location(register as u32).0 != column {
            continue;
        }
        let (_, of) = of_part.iter().find(|(known, _)| *known == offset).unwrap();
        assert!(under_way.iter().all(|(descriptor, ..)| *descriptor != task.descriptor), "BD {}", task.descriptor);
        let Instruction::Write { value, .. } = operations[task.operations.end - 1] else { unreachable!() };
        under_way.push((task.descriptor, *of, crate::format::dma_channel::DmaTask::decode(value).token));
        assert!(under_way.len() <= 4);
    }
    assert_eq!(part, parts);
}
