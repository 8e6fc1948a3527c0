//! One node of a self-test, with what goes in and what has to come out.
//!
//! What only silicon can show (ports, the order of memory between neighbours, approximations of units) shows in small nodes as well as
//! in large ones. So each family names cases ([`Family::cases`](super::Family::cases)): a few nodes that take every PDI of it and the
//! main paths of its programs. A case says what goes in and what has to come out; whoever has a device runs it.

use aie_ops::family::copy::convert;
use aie_ops::{DataType, Node, OpParams, Tensor, table};

/// How close a result has to be to the reference kernel's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exactness {
    /// Every byte is the same.
    Bytes,
    /// The squares of the errors are at most this share of the squares of the values, as ggml's own tests measure it; infinities
    /// are the same, and nothing is NaN.
    Nmse(f64),
}

impl Exactness {
    /// ggml's bound for most operations.
    pub const MOST: Self = Self::Nmse(1e-7);
    /// The bound for results in bf16, some of which are rounded to the other side.
    pub const ROUNDED: Self = Self::Nmse(1e-6);
    /// ggml's bound for products and attention, whose operands are rounded.
    pub const PRODUCTS: Self = Self::Nmse(5e-4);
}

/// What a source has in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Numbers between two.
    Between(f32, f32),
    /// Numbers between -2 and 2; every third one is minus infinity.
    Mask,
    /// Whole numbers, from the first one on, in a type of integers.
    Whole(Vec<u32>),
    /// Any bytes, for integers that any numbers will do for.
    Bytes,
}

/// A node with what is in its sources.
#[derive(Debug, Clone)]
pub struct Case {
    /// The normalised node.
    pub node: Node,
    /// For each source that is present.
    pub inputs: Vec<Input>,
    /// What counts as right.
    pub exactness: Exactness,
    /// Whether its kernel is to use all columns that it can: small nodes take one, where operations of a stream cost more than
    /// a column saves, and what others have would not be tried.
    pub is_spread: bool,
}

/// The bytes of a case.
#[derive(Debug, Clone)]
pub struct Material {
    /// Of each source that is present.
    pub sources: Vec<Vec<u8>>,
    /// The source whose memory is the result's, by its place among them.
    pub updated: Option<usize>,
    /// What the memory of the result has before.
    pub before: Vec<u8>,
    /// What it has to have afterwards.
    pub expected: Vec<u8>,
}

impl Case {
    /// A node without parameters; all its sources are numbers between -1 and 1.
    pub fn new(op: &str, output: Tensor, sources: &[Tensor]) -> Self {
        let node = Node::new(op, OpParams::default(), output, sources.iter().copied().map(Some).collect());
        Self {
            node,
            inputs: vec![Input::Between(-1.0, 1.0); sources.len()],
            exactness: Exactness::MOST,
            is_spread: false,
        }
    }

    /// Sets words of the parameters to floats.
    pub fn floats(mut self, words: &[(usize, f32)]) -> Self {
        words.iter().for_each(|(index, value)| self.node.params.0[*index] = value.to_bits().cast_signed());
        self
    }

    /// Sets words of the parameters to integers.
    pub fn ints(mut self, words: &[(usize, i32)]) -> Self {
        words.iter().for_each(|(index, value)| self.node.params.0[*index] = *value);
        self
    }

    /// Says what is in source `index` of those that are present.
    pub fn input(mut self, index: usize, input: Input) -> Self {
        self.inputs[index] = input;
        self
    }

    /// Says what counts as right.
    pub fn exactly(self, exactness: Exactness) -> Self {
        Self { exactness, ..self }
    }

    /// Operation and tensors, for people.
    pub fn name(&self) -> String {
        let text = |tensor: &Tensor| {
            let extents: Vec<String> = tensor.ne[..tensor.dimensions()].iter().map(ToString::to_string).collect();
            format!("{}[{}]", tensor.dtype, extents.join(","))
        };
        let sources: Vec<String> = self.node.inputs().map(text).collect();
        format!("{} {} -> {}", self.node.op, sources.join(" "), text(&self.node.output))
    }

    /// The bytes of sources and result, other ones in each round; what is expected is the reference kernel's.
    ///
    /// # Errors
    /// Why there are none: a mistake in the case.
    pub fn material(&self, round: u32) -> Result<Material, String> {
        let op = table::lookup(&self.node.op).ok_or_else(|| format!("no operation {}", self.node.op))?;
        let mut random = Random(1 + round);
        let inputs = self.node.inputs().zip(&self.inputs);
        let sources: Vec<Vec<u8>> =
            inputs.map(|(tensor, input)| input.bytes(tensor, &mut random)).collect::<Result<_, _>>()?;
        let updated = op.result_source().filter(|slot| self.node.source(*slot).is_some());
        let updated = updated.map(|slot| self.node.sources[..slot].iter().flatten().count());
        let before = updated.map_or_else(|| vec![GAP; self.node.output.span_bytes()], |index| sources[index].clone());
        let mut expected = before.clone();
        let slices: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let reference = op.reference(&self.node).map_err(|error| error.to_string())?;
        reference.run(&slices, &mut expected).map_err(|error| error.to_string())?;
        Ok(Material { sources, updated, before, expected })
    }

    /// Whether `found` is right beside `expected`.
    ///
    /// # Errors
    /// How far it is off.
    pub fn judge(&self, found: &[u8], expected: &[u8]) -> Result<(), String> {
        let bound = match self.exactness {
            Exactness::Bytes => {
                let differs = |(_, (found, expected)): &(usize, (&u8, &u8))| found != expected;
                let differing = found.iter().zip(expected).enumerate().filter(differs).map(|(at, _)| at);
                return match (differing.clone().next(), differing.count()) {
                    (None, _) => Ok(()),
                    (Some(first), count) => {
                        Err(format!("{count} of {} bytes differ, from byte {first} on", found.len()))
                    }
                };
            }
            Exactness::Nmse(bound) => bound,
        };
        let [found, expected] = [found, expected].map(|bytes| numbers(&self.node.output, bytes));
        let (found, expected) = (found?, expected?);
        let (mut error, mut power) = (0.0, 0.0);
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            if found.is_nan() || (found.is_infinite() || expected.is_infinite()) && found != expected {
                return Err(format!("element {index} is {found} instead of {expected}"));
            }
            if expected.is_finite() {
                error += (f64::from(*found) - f64::from(*expected)).powi(2);
                power += f64::from(*expected).powi(2);
            }
        }
        let share = if error == 0.0 { 0.0 } else { error / power };
        if share <= bound { Ok(()) } else { Err(format!("NMSE {share:.1e}, at most {bound:.1e} is allowed")) }
    }
}

/// What lies in gaps and in results that nothing has written.
const GAP: u8 = 0xAA;

impl Input {
    fn bytes(&self, tensor: &Tensor, random: &mut Random) -> Result<Vec<u8>, String> {
        let count = tensor.elements();
        let values: Vec<f32> = match self {
            Self::Between(low, high) => (0..count).map(|_| low + (high - low) * random.unit()).collect(),
            Self::Mask => {
                let finite = |random: &mut Random| 4.0 * random.unit() - 2.0;
                (0..count).map(|i| if i % 3 == 0 { f32::NEG_INFINITY } else { finite(random) }).collect()
            }
            Self::Bytes => return Ok((0..tensor.span_bytes()).map(|_| (random.unit() * 256.0) as u8).collect()),
            Self::Whole(numbers) => {
                let wide = tensor.dtype == DataType::I64;
                let bytes = |number: &u32| {
                    if wide { u64::from(*number).to_le_bytes().to_vec() } else { number.to_le_bytes().to_vec() }
                };
                return Ok(numbers.iter().flat_map(bytes).collect());
            }
        };
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        converted(&Tensor::contiguous(DataType::F32, tensor.ne), tensor, &bytes)
    }
}

/// The elements of a tensor, in the order of its dimensions.
fn numbers(tensor: &Tensor, bytes: &[u8]) -> Result<Vec<f32>, String> {
    let bytes = converted(tensor, &Tensor::contiguous(DataType::F32, tensor.ne), bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

fn converted(from: &Tensor, to: &Tensor, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut result = vec![GAP; to.span_bytes()];
    let conversion = convert(from, to).map_err(|error| error.to_string())?;
    conversion.run(&[bytes], &mut result).map_err(|error| error.to_string())?;
    Ok(result)
}

/// A reproducible source of numbers.
struct Random(u32);

impl Random {
    /// Between 0 and 1.
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 24) as f32
    }
}
