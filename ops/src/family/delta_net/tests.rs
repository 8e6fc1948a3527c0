use super::super::testing::*;
use super::*;

/// Extents of a network.
#[derive(Debug, Clone, Copy)]
struct Shape {
    size: usize,
    heads: usize,
    /// How often a head of queries and keys is used.
    repeat: usize,
    tokens: usize,
    sequences: usize,
    slots: usize,
    /// A gate for each element of the key.
    fine: bool,
    /// Queries, keys and values with heads and tokens exchanged in memory.
    permuted: bool,
}

const SMALL: Shape =
    Shape { size: 16, heads: 4, repeat: 1, tokens: 5, sequences: 2, slots: 1, fine: false, permuted: false };

impl Shape {
    fn params(&self) -> OpParams {
        words([i32::try_from(self.slots).unwrap()])
    }

    fn output(&self) -> Tensor {
        f32s([self.size * self.heads, (self.tokens + self.slots * self.size) * self.sequences, 1, 1])
    }

    fn sources(&self, random: &mut Rng) -> Vec<Data> {
        let Self { size, heads, repeat, tokens, sequences, fine, .. } = *self;
        let projection = |heads: usize| {
            if self.permuted {
                permuted(&f32s([size, tokens, heads, sequences]), [0, 2, 1, 3])
            } else {
                f32s([size, heads, tokens, sequences])
            }
        };
        let mut sources: Vec<Data> = [heads / repeat, heads / repeat, heads]
            .into_iter()
            .map(|heads| Data::random(projection(heads), random))
            .collect();
        // Keys of unit length, as models have them; gates below 0 and beta between 0 and 1.
        let key = sources[1].values().iter().map(|x| x / (size as f32).sqrt()).collect::<Vec<_>>();
        sources[1] = Data::new(sources[1].tensor, &key);
        let gate = f32s([if fine { size } else { 1 }, heads, tokens, sequences]);
        let gates: Vec<f32> = random.floats(gate.elements()).iter().map(|g| -g.abs()).collect();
        sources.push(Data::new(gate, &gates));
        let beta = f32s([1, heads, tokens, sequences]);
        let betas: Vec<f32> = random.floats(beta.elements()).iter().map(|b| b.abs()).collect();
        sources.push(Data::new(beta, &betas));
        sources.push(Data::random(f32s([size, size, heads, sequences]), random));
        sources
    }

    fn node(&self) -> Node {
        let sources: Vec<_> = self.sources(&mut Rng::with_seed(1)).iter().map(|data| Some(data.tensor)).collect();
        node(NAME, self.params(), self.output(), &sources)
    }

    /// The rule in double precision, with the state as a matrix of key by value.
    fn exact(&self, sources: &[Data]) -> Vec<f64> {
        let Self { size, heads, tokens, sequences, slots, .. } = *self;
        let values: Vec<_> = sources.iter().map(Data::values).collect();
        let get = |slot: usize, index| sources[slot].get(&values[slot], index);
        let outputs = size * heads * tokens * sequences;
        let mut result = vec![0.0; outputs + size * size * heads * sequences * slots];
        for (sequence, head) in (0..sequences).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
            let mut state = vec![vec![0.0; size]; size];
            for (i, row) in state.iter_mut().enumerate() {
                for (j, element) in row.iter_mut().enumerate() {
                    *element = get(5, [i, j, head, sequence]);
                }
            }
            for token in 0..tokens {
                let at = |i| [i, head, token, sequence];
                for (i, row) in state.iter_mut().enumerate() {
                    let decay = get(3, at(i)).exp();
                    row.iter_mut().for_each(|element| *element *= decay);
                }
                for j in 0..size {
                    let found: f64 = (0..size).map(|i| state[i][j] * get(1, at(i))).sum();
                    let correction = (get(2, at(j)) - found) * get(4, at(0));
                    (0..size).for_each(|i| state[i][j] += get(1, at(i)) * correction);
                    let read_out: f64 = (0..size).map(|i| state[i][j] * get(0, at(i))).sum();
                    result[j + size * (head + heads * (token + tokens * sequence))] = read_out / (size as f64).sqrt();
                }
                let slot = tokens - 1 - token;
                if slot < slots {
                    let first = outputs + ((slot * sequences + sequence) * heads + head) * size * size;
                    for (i, row) in state.iter().enumerate() {
                        for (j, element) in row.iter().enumerate() {
                            result[first + j * size + i] = *element;
                        }
                    }
                }
            }
        }
        result
    }
}

#[rstest]
#[case::plain(SMALL)]
#[case::fine(Shape { fine: true, ..SMALL })]
#[case::repeated(Shape { repeat: 2, ..SMALL })]
#[case::permuted(Shape { permuted: true, repeat: 2, ..SMALL })]
#[case::tail(Shape { size: 21, fine: true, ..SMALL })]
#[case::one_element(Shape { size: 1, ..SMALL })]
#[case::one_token(Shape { tokens: 1, sequences: 1, ..SMALL })]
#[case::large(Shape { size: 128, heads: 6, tokens: 9, ..SMALL })]
#[case::rollback(Shape { slots: 4, ..SMALL })]
#[case::rollback_fine(Shape { slots: 5, fine: true, size: 64, permuted: true, ..SMALL })]
fn networks_are_the_definition(#[case] shape: Shape) {
    let sources = shape.sources(&mut Rng::with_seed(77));
    let given: Vec<_> = sources.iter().map(Some).collect();
    let result = run(NAME, shape.params(), shape.output(), &given).unwrap();
    assert_close(&result.values(), shape.exact(&sources), 5e-6);
}

#[test]
fn states_for_which_there_is_no_token_keep_their_bytes() {
    let shape = Shape { tokens: 2, slots: 3, ..SMALL };
    let sources = shape.sources(&mut Rng::with_seed(78));
    let given: Vec<_> = sources.iter().map(Some).collect();
    let result = run(NAME, shape.params(), shape.output(), &given).unwrap();
    let untouched = shape.size * shape.size * shape.heads * shape.sequences * 4;
    assert!(result.bytes[result.bytes.len() - untouched..].iter().all(|byte| *byte == 0xAA));
    assert!(result.bytes[..result.bytes.len() - untouched].chunks(4).any(|bytes| bytes != [0xAA; 4]));
}

#[rstest]
#[case::slots(|node: &mut Node| node.params.0[0] = 0)]
#[case::more_slots_than_room(|node: &mut Node| node.params.0[0] = i32::MAX)]
#[case::missing(|node: &mut Node| node.sources[4] = None)]
#[case::half(|node: &mut Node| node.sources[0] = Some(Tensor::contiguous(DataType::F16, [16, 4, 5, 2])))]
#[case::no_heads_of_queries(|node: &mut Node| node.sources[0] = Some(f32s([16, 0, 5, 2])))]
#[case::no_batches_of_keys(|node: &mut Node| node.sources[1] = Some(f32s([16, 4, 5, 0])))]
#[case::batches_do_not_repeat(|node: &mut Node| node.sources[1] = Some(f32s([16, 4, 5, 3])))]
#[case::tokens(|node: &mut Node| node.sources[1] = Some(f32s([16, 4, 6, 2])))]
#[case::gates(|node: &mut Node| node.sources[3] = Some(f32s([2, 4, 5, 2])))]
#[case::state(|node: &mut Node| node.sources[5] = Some(f32s([16, 16, 4, 1])))]
#[case::output(|node: &mut Node| node.output = f32s([64, 7, 1, 1]))]
fn networks_that_do_not_fit_are_rejected(#[case] change: fn(&mut Node)) {
    assert_rejected(SMALL.node(), change);
}

#[test]
fn they_are_made() {
    assert_made(OPERATIONS, &[DataType::F32]);
}
