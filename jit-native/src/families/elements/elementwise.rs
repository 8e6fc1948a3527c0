//! ADD, SUB, MUL and DIV with broadcast, functions of one element, and gated units.
//!
//! All of them walk through their tensors in the longest runs that are contiguous everywhere, in pieces of at most 2,048
//! elements, and short ones as tiles of several; a second operand that is repeated within a tile is repeated by the core.

use super::dispatch::Work;
use super::format::Format;
use super::functions::Repertoire;
use super::step::{Function, Slot, Step};
use super::tensors::{result, source, strides, unsupported};
use super::walk::{Loop, Walk};
use crate::kit::NativeError;
use crate::numerics::exponential::ERF_SLOPE;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::{Node, Tensor};

pub(super) const NAME: &str = "elementwise";

/// The operations, by ggml's descriptions.
pub(super) const OPERATIONS: &[&str] = &[
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "SCALE",
    "SQR",
    "SQRT",
    "LOG",
    "SIN",
    "COS",
    "ABS",
    "SGN",
    "NEG",
    "STEP",
    "TANH",
    "ELU",
    "RELU",
    "LEAKY_RELU",
    "SIGMOID",
    "GELU",
    "GELU_QUICK",
    "GELU_ERF",
    "SILU",
    "HARDSWISH",
    "HARDSIGMOID",
    "EXP",
    "EXPM1",
    "SOFTPLUS",
    "XIELU",
    "FLOOR",
    "CEIL",
    "ROUND",
    "TRUNC",
    "CLAMP",
    "REGLU",
    "GEGLU",
    "SWIGLU",
    "SWIGLU_OAI",
    "GEGLU_ERF",
    "GEGLU_QUICK",
    "SWIGLU_CLAMP",
];

pub(super) fn build(node: &Node, arch: &Arch) -> Result<KernelArtifact, NativeError> {
    work(node, Some(arch.array.columns as u64))?.artifact(node, arch)
}

/// What is done with the elements of a node, its walk cut for so many columns, or whole.
pub(in crate::families) fn work(node: &Node, columns: Option<u64>) -> Result<Work, NativeError> {
    match node.op.as_str() {
        "ADD" | "SUB" | "MUL" | "DIV" => binary(node, columns),
        op if op.ends_with("GLU") || op.contains("GLU_") => gated(node, columns),
        _ => unary(node, columns),
    }
}

/// Short runs as one tile, if the walk is cut for columns.
fn grouped(walk: Walk, columns: Option<u64>) -> Walk {
    match columns {
        Some(columns) => walk.grouped(columns),
        None => walk,
    }
}

/// The pieces of a walk, or all of it.
fn pieces(walk: Walk, columns: Option<u64>) -> Vec<Walk> {
    match columns {
        Some(columns) => walk.in_pieces(columns),
        None => vec![walk],
    }
}

/// The function of ADD, SUB, MUL or DIV.
fn arithmetic(op: &str) -> Option<Function> {
    Some(match op {
        "ADD" => Function::Add,
        "SUB" => Function::Sub,
        "MUL" => Function::Mul,
        "DIV" => Function::Div,
        _ => return None,
    })
}

/// Loops over a result to whose extents `b` repeats: each dimension as the elements of `b` and the times that they repeat.
pub(super) fn repeating(result: &Tensor, a: &Tensor, b: &Tensor) -> Vec<Loop> {
    let (a_steps, b_steps, result_steps) = (strides(a), strides(b), strides(result));
    let mut loops = Vec::new();
    for d in 0..4 {
        let (period, size) = (b.ne[d] as u64, result.ne[d] as u64);
        loops.push(Loop { size: period, a: a_steps[d], b: b_steps[d], result: result_steps[d] });
        let [a, result] = [a_steps[d] * period, result_steps[d] * period];
        loops.push(Loop { size: size / period.max(1), a, b: 0, result });
    }
    loops
}

/// The run of a walk and the loops around it.
fn walk_of(node: &Node, loops: &[Loop], start: [u64; 3], has_b: bool) -> Result<Walk, NativeError> {
    let mut loops = Walk::merged(loops).into_iter();
    let Some(run) = loops.next() else {
        return Ok(Walk { run: 1, b_run: has_b.into(), group: Loop::ONCE, loops: Vec::new(), start });
    };
    if run.a != 1 || run.result != 1 || (has_b && run.b > 1) {
        // Runs of one element.
        let loops = std::iter::once(run).chain(loops).collect();
        return Ok(Walk { run: 1, b_run: has_b.into(), group: Loop::ONCE, loops, start });
    }
    let b_run = match (has_b, run.b) {
        (false, _) => 0,
        (true, 0) => 1,
        (true, _) => run.size,
    };
    let loops: Vec<Loop> = loops.collect();
    if run.size == 0 || loops.iter().any(|l| l.size == 0) {
        return Err(unsupported(NAME, node, "a source does not repeat to the result"));
    }
    Ok(Walk { run: run.size, b_run, group: Loop::ONCE, loops, start })
}

fn binary(node: &Node, columns: Option<u64>) -> Result<Work, NativeError> {
    let ((a, a_format), (b, b_format), (result, format)) =
        (source(NAME, node, 0)?, source(NAME, node, 1)?, result(NAME, node)?);
    if !a.same_shape(result) || !b.repeats_to(result) {
        let reason = format!("extents {:?} and {:?} for a result of {:?}", a.ne, b.ne, result.ne);
        return Err(unsupported(NAME, node, reason));
    }
    let function = arithmetic(&node.op).ok_or_else(|| NativeError::NoFamily { op: node.op.clone() })?;
    let walk = grouped(walk_of(node, &repeating(result, a, b), [0; 3], true)?, columns);
    let (each_b, second) = match (walk.b_elements(), walk.elements()) {
        (here, all) if here == all => (None, Slot::B),
        (1, _) => (Some(Step::unary(Function::First, Slot::B, Slot::V0).once()), Slot::V0),
        _ if walk.group.b == 0 => {
            (Some(Step::again(Slot::B, walk.b_run, walk.group.size, Slot::Scratch)), Slot::Scratch)
        }
        _ => (Some(Step::repeat(Slot::B, walk.group.size, walk.run, Slot::Scratch)), Slot::Scratch),
    };
    let work = Work {
        steps: vec![Step::binary(function, Slot::A, second, Slot::Result)],
        each_b: each_b.into_iter().collect(),
        walks: pieces(walk, columns),
        b: Some(1),
        ..Work::new(NAME, Repertoire::Elements)
    };
    Ok(converting(work, [a_format, b_format, format]))
}

/// The work on tensors of these formats, with the program that has its functions: tiles are widened when they come, and narrowed
/// before they go.
fn converting(work: Work, formats: [Format; 3]) -> Work {
    let [a, b, result] = formats;
    let narrow = |format: Format| format == Format::Bf16;
    let mut steps: Vec<Step> = narrow(a).then(|| Step::widen(Slot::A)).into_iter().collect();
    steps.extend(work.steps);
    steps.extend(narrow(result).then(|| Step::narrow(Slot::Result)));
    let mut each_b: Vec<Step> = narrow(b).then(|| Step::widen(Slot::B)).into_iter().collect();
    each_b.extend(work.each_b);
    let functions = steps.iter().chain(&each_b).map(Step::function);
    let repertoire = Repertoire::with(functions).unwrap_or(work.repertoire);
    Work { repertoire, steps, each_b, formats, ..work }
}

/// Loops over tensors of one shape.
fn alike(result: &Tensor, a: &Tensor, b: &Tensor) -> Vec<Loop> {
    let (a_steps, b_steps, result_steps) = (strides(a), strides(b), strides(result));
    (0..4).map(|d| Loop { size: result.ne[d] as u64, a: a_steps[d], b: b_steps[d], result: result_steps[d] }).collect()
}

fn unary(node: &Node, columns: Option<u64>) -> Result<Work, NativeError> {
    let ((a, a_format), (result, format)) = (source(NAME, node, 0)?, result(NAME, node)?);
    if !a.same_shape(result) {
        return Err(unsupported(NAME, node, format!("extents {:?} for a result of {:?}", a.ne, result.ne)));
    }
    let walk = grouped(walk_of(node, &alike(result, a, a), [0; 3], false)?, columns);
    let work =
        Work { steps: function_steps(node)?, walks: pieces(walk, columns), ..Work::new(NAME, Repertoire::Elements) };
    Ok(converting(work, [a_format, Format::F32, format]))
}

fn function_steps(node: &Node) -> Result<Vec<Step>, NativeError> {
    use Function as F;
    use Slot::{A, Result as R, Scratch as T};
    let parameter = |index| {
        let value = node.params.float(index);
        let finite = value.is_finite() && value.abs() < 1e30;
        let reason = || unsupported(NAME, node, format!("parameter {index} is {value}; its size must be below 1e30"));
        if finite { Ok(value) } else { Err(reason()) }
    };
    let one = |function| vec![Step::unary(function, A, R)];
    let infinity = f32::INFINITY;
    Ok(match node.op.as_str() {
        "SCALE" => vec![Step::scale(A, parameter(0)?, parameter(1)?, R)],
        "SQR" => vec![Step::binary(F::Mul, A, A, R)],
        "SQRT" => one(F::Root),
        "LOG" => one(F::Log),
        "SIN" => vec![Step::sine(A, 0, R)],
        "COS" => vec![Step::sine(A, 1, R)],
        "ABS" => vec![Step::absolute(A, R)],
        "NEG" => vec![Step::negative(A, R)],
        "SGN" => vec![Step::signum(A, 1.0, -1.0, R)],
        "STEP" => vec![Step::signum(A, 1.0, 0.0, R)],
        // m / (m + 2) with m = e^2x - 1; from 20 on that is 1 to the last bit.
        "TANH" => vec![
            Step::binary(F::Add, A, A, R),
            Step::clamp(R, -40.0, 40.0, R),
            Step::unary(F::Expm1, R, R),
            Step::offset(R, 2.0, T),
            Step::binary(F::Div, R, T, R),
        ],
        "ELU" => vec![Step::unary(F::Expm1, A, R), Step::choose(A, 0.0, A, R)],
        "RELU" => vec![Step::clamp(A, 0.0, infinity, R)],
        "LEAKY_RELU" => vec![Step::scale(A, parameter(0)?, 0.0, R), Step::choose(A, 0.0, A, R)],
        "SIGMOID" => one(F::Sigmoid),
        "GELU" | "GELU_QUICK" | "SILU" => gate_steps(&node.op, A),
        "GELU_ERF" => gelu_erf(),
        "HARDSIGMOID" => hard_sigmoid().to_vec(),
        "HARDSWISH" => {
            let [scale, clamp] = hard_sigmoid();
            vec![scale, clamp, Step::binary(F::Mul, R, A, R)]
        }
        "EXP" => one(F::Exp),
        // From 20 on the 1 does not matter.
        "EXPM1" => vec![Step::unary(F::Expm1, A, R), Step::unary(F::Exp, A, T), Step::choose(A, 20.0, T, R)],
        // ln(1 + e^x); from 20 on, that is x.
        "SOFTPLUS" => vec![
            Step::clamp(A, -80.0, 40.0, R),
            Step::unary(F::Exp, R, R),
            Step::offset(R, 1.0, R),
            Step::unary(F::Log, R, R),
            Step::choose(A, 20.0, A, R),
        ],
        "XIELU" => {
            let [negative, positive, beta, eps] = [parameter(1)?, parameter(2)?, parameter(3)?, parameter(4)?];
            vec![
                Step::clamp(A, -infinity, eps, R),
                Step::unary(F::Expm1, R, R),
                Step::binary(F::Sub, R, A, R),
                Step::scale(R, negative, 0.0, R),
                Step::binary(F::Mul, A, A, T),
                Step::scale(T, positive, 0.0, T),
                Step::choose(A, 0.0, T, R),
                Step::scale(A, beta, 0.0, T),
                Step::binary(F::Add, R, T, R),
            ]
        }
        "FLOOR" => one(F::Floor),
        "CEIL" => vec![Step::negative(A, R), Step::unary(F::Floor, R, R), Step::negative(R, R)],
        "TRUNC" => vec![Step::absolute(A, R), Step::unary(F::Floor, R, R), Step::binary(F::Sign, R, A, R)],
        "ROUND" => vec![
            Step::absolute(A, R),
            Step::offset(R, 0.5, R),
            Step::unary(F::Floor, R, R),
            // From 2^22 on there is nothing to round, and the sum may have changed it.
            Step::absolute(A, T),
            Step::choose(T, 4_194_304.0, T, R),
            Step::binary(F::Sign, R, A, R),
        ],
        "CLAMP" => vec![Step::clamp(A, node.params.float(0), node.params.float(1), R)],
        op => return Err(NativeError::NoFamily { op: op.to_owned() }),
    })
}

/// `x` times the normal distribution of `x`, from the tail below `-|x|`.
fn gelu_erf() -> Vec<Step> {
    use Function as F;
    use Slot::{A, Result as R, Scratch as T};
    vec![
        Step::absolute(A, T),
        Step::clamp(T, 0.0, 13.0, T),
        Step::scale(T, ERF_SLOPE, 1.0, R),
        Step::unary(F::Reciprocal, R, R),
        Step::unary(F::NormalTail, R, R),
        Step::binary(F::Mul, T, T, T),
        Step::scale(T, -0.5, 0.0, T),
        Step::unary(F::Exp, T, T),
        Step::binary(F::Mul, R, T, R),
        Step::scale(R, -1.0, 1.0, T),
        Step::choose(A, 0.0, T, R),
        Step::binary(F::Mul, R, A, R),
    ]
}

/// `x / 6 + 1/2` between 0 and 1.
fn hard_sigmoid() -> [Step; 2] {
    [Step::scale(Slot::A, 1.0 / 6.0, 0.5, Slot::Result), Step::clamp(Slot::Result, 0.0, 1.0, Slot::Result)]
}

/// Gates are never less than e^-87, so what they gate is held at this: the result then is as good as 0.
const LOW: f32 = -100.0;

/// SILU, GELU by tanh, or GELU by a sigmoid of `x` into the result: `x` times a sigmoid of `z`.
fn gate_steps(op: &str, x: Slot) -> Vec<Step> {
    use Function as F;
    use Slot::Result as R;
    // Far out a sigmoid has its limits, and the cube must stay finite.
    const FAR: f32 = 60.0;
    let mut steps = vec![Step::clamp(x, LOW, f32::INFINITY, x)];
    match op {
        "GELU" => {
            const SLOPE: f32 = 1.595_769;
            steps.extend([
                Step::clamp(x, -FAR, FAR, Slot::Scratch),
                Step::binary(F::Mul, Slot::Scratch, Slot::Scratch, R),
                Step::scale(R, SLOPE * 0.044_715, SLOPE, R),
                Step::binary(F::Mul, R, Slot::Scratch, R),
                Step::binary(F::Gate, R, x, R),
            ]);
        }
        "GELU_QUICK" => {
            steps.extend([
                Step::clamp(x, -100.0, 100.0, R),
                Step::scale(R, 1.702, 0.0, R),
                Step::binary(F::Gate, R, x, R),
            ]);
        }
        _ => steps.push(Step::binary(F::Gate, x, x, R)),
    }
    steps
}

fn gated(node: &Node, columns: Option<u64>) -> Result<Work, NativeError> {
    use Function as F;
    use Slot::{A, B, Result as R};
    let ((x, x_format), (result, format)) = (source(NAME, node, 0)?, result(NAME, node)?);
    let half = result.ne[0] as u64;
    let two = node.source(1).is_some();
    let (gate, gate_format, start, b) = if two {
        let (gate, format) = source(NAME, node, 1)?;
        (*gate, format, [0; 3], 1)
    } else if node.params.int(1) != 0 {
        (*x, x_format, [half, 0, 0], 0)
    } else {
        (*x, x_format, [0, half, 0], 0)
    };
    let halves = [x, &gate]
        .into_iter()
        .all(|tensor| tensor.ne[1..] == result.ne[1..] && tensor.ne[0] / if two { 1 } else { 2 } == result.ne[0]);
    if !halves {
        let reason = format!("extents {:?} and {:?} for a result of {:?}", x.ne, gate.ne, result.ne);
        return Err(unsupported(NAME, node, reason));
    }
    let walk = grouped(walk_of(node, &alike(result, x, &gate), start, true)?, columns);
    let infinity = f32::INFINITY;
    let limit = node.params.float(3);
    let mut steps = match node.op.as_str() {
        "REGLU" => vec![Step::clamp(A, 0.0, infinity, R)],
        "GEGLU" => gate_steps("GELU", A),
        "SWIGLU" => gate_steps("SILU", A),
        "GEGLU_QUICK" => gate_steps("GELU_QUICK", A),
        "GEGLU_ERF" => gelu_erf(),
        "SWIGLU_OAI" | "SWIGLU_CLAMP" if limit.is_nan() || limit <= 0.0 => {
            return Err(unsupported(NAME, node, format!("the limit is {limit}; it must be positive")));
        }
        "SWIGLU_OAI" => {
            let alpha = node.params.float(2);
            if !(alpha.is_finite() && alpha.abs() < 1e4) {
                return Err(unsupported(NAME, node, format!("alpha is {alpha}; its size must be below 1e4")));
            }
            vec![
                Step::clamp(A, -1e4, limit, A),
                Step::clamp(A, -1e4, 1e4, R),
                Step::scale(R, alpha, 0.0, R),
                Step::binary(F::Gate, R, A, R),
                Step::clamp(B, -limit, limit, B),
                Step::offset(B, 1.0, B),
            ]
        }
        "SWIGLU_CLAMP" => {
            let mut steps = vec![Step::clamp(A, -infinity, limit, A)];
            steps.extend(gate_steps("SILU", A));
            steps.push(Step::clamp(B, -limit, limit, B));
            steps
        }
        op => return Err(NativeError::NoFamily { op: op.to_owned() }),
    };
    steps.push(Step::binary(F::Mul, R, B, R));
    let work = Work { steps, walks: pieces(walk, columns), b: Some(b), ..Work::new(NAME, Repertoire::Elements) };
    Ok(converting(work, [x_format, gate_format, format]))
}
