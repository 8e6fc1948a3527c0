//! Tensors as text: `(d0,d1,d2,d3)/dtype[/(s0,s1,s2,s3)]`, the C++ tool's format.
//!
//! Extents and strides are innermost first. Strides count **elements**, as the C++ tool's documents have them: in their example
//! `(1024,768,1,1)/bf16/(1,1024,786432,786432)` rows lie 1024 elements apart. ggml counts bytes; the conversion is made here, so
//! that a [`Tensor`] is always in bytes. Spaces around parts and numbers are allowed. Messages begin with the words of the C++
//! tool and continue with what is possible.

use super::document::quoted;
use super::nearest::possible;
use aie_ops::{DataType, Tensor};

/// The four numbers of a `shape` or `stride`.
fn numbers(part: &str, list: &str, text: &str) -> Result<[usize; 4], String> {
    let inner = list.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(|| {
        format!("Invalid {part} format in {text}: {part} must be enclosed in parentheses; for example (1024,1,1,1)/f32")
    })?;
    let numbers: Result<Vec<usize>, String> = inner.split(',').map(|number| parse_number(number.trim())).collect();
    let numbers = numbers.map_err(|reason| format!("Invalid {part} values in {text}: {reason}"))?;
    numbers.try_into().map_err(|numbers: Vec<usize>| {
        let (part, unused) = if part == "shape" { ("Shape", "1") } else { ("Stride", "the number of elements") };
        let count = numbers.len();
        format!("{part} must have exactly 4 dimensions, got {count} in {text}; use {unused} for unused dimensions")
    })
}

fn parse_number(text: &str) -> Result<usize, String> {
    if text.is_empty() {
        return Err("a number is missing between the commas".into());
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{}` is not a whole number of at least 0", quoted(text)));
    }
    text.parse().map_err(|_| format!("{} exceeds any memory", quoted(text)))
}

/// Reads a tensor.
///
/// # Errors
/// The first error in the text, in the words of the C++ tool, and what is possible.
pub fn parse(text: &str) -> Result<Tensor, String> {
    let shown = &quoted(text);
    let descriptor =
        |reason: String| format!("Invalid tensor descriptor: {shown} ({reason}); for example (1024,1,1,1)/f32");
    let parts: Vec<&str> = text.split('/').map(str::trim).collect();
    let (shape, dtype, strides) = match parts[..] {
        [shape, dtype] => (shape, dtype, None),
        [shape, dtype, strides] => (shape, dtype, Some(strides)),
        [] | [_] => return Err(descriptor("expected format: (dim0,dim1,dim2,dim3)/dtype".into())),
        _ => return Err(descriptor("something follows the strides".into())),
    };
    let ne = numbers("shape", shape, shown)?;
    let known: Vec<&str> = DataType::ALL.iter().map(|dtype| dtype.name()).collect();
    if dtype.is_empty() {
        return Err(descriptor(format!("missing dtype; possible: {}", known.join(", "))));
    }
    let dtype = DataType::from_name(dtype)
        .ok_or_else(|| descriptor(format!("unknown dtype {}{}", quoted(dtype), possible(dtype, &known))))?;
    let strides = strides.map(|strides| numbers("stride", strides, shown)).transpose()?;
    let nb = match strides {
        Some(strides) => byte_strides(dtype, strides),
        None => contiguous(dtype, ne).ok_or_else(|| format!("extents {ne:?} exceed any memory")),
    };
    let tensor = nb.map(|nb| Tensor { dtype, ne, nb });
    let tensor = tensor.and_then(|tensor| tensor.validate().map(|()| tensor).map_err(|error| error.to_string()));
    tensor.map_err(|reason| format!("Invalid tensor descriptor: {shown}: {reason}"))
}

/// The strides of a tensor without gaps, unless they overflow.
fn contiguous(dtype: DataType, ne: [usize; 4]) -> Option<[usize; 4]> {
    let row = (ne[0] / dtype.block_elements()).checked_mul(dtype.block_bytes())?;
    let plane = row.checked_mul(ne[1])?;
    Some([dtype.block_bytes(), row, plane, plane.checked_mul(ne[2])?])
}

/// Strides in bytes from strides in elements. Elements of a block have no address of their own, so blocks follow each other
/// and rows lie whole blocks apart.
fn byte_strides(dtype: DataType, elements: [usize; 4]) -> Result<[usize; 4], String> {
    let block = dtype.block_elements();
    let mut bytes = [dtype.block_bytes(); 4];
    for (dimension, (bytes, elements)) in bytes.iter_mut().zip(elements).enumerate() {
        if elements == 0 {
            return Err(format!(
                "stride {dimension} is 0, so that all elements would share memory; strides are at least 1"
            ));
        }
        if block > 1 && dimension == 0 {
            if elements != 1 {
                return Err(format!("elements of {dtype} lie in blocks; the first stride must be 1, not {elements}"));
            }
            continue;
        }
        if !elements.is_multiple_of(block) {
            return Err(format!("a stride of {elements} elements is not whole blocks of {block} elements of {dtype}"));
        }
        *bytes = (elements / block)
            .checked_mul(dtype.block_bytes())
            .ok_or_else(|| format!("a stride of {elements} elements exceeds any memory"))?;
    }
    Ok(bytes)
}

/// The text of a tensor, with strides when it has gaps or another order. Bytes that are not whole elements are rounded down.
pub fn describe(tensor: &Tensor) -> String {
    let list = |numbers: [usize; 4]| numbers.map(|number| number.to_string()).join(",");
    let text = format!("({})/{}", list(tensor.ne), tensor.dtype);
    if tensor.is_contiguous() {
        return text;
    }
    let (block, bytes) = (tensor.dtype.block_elements(), tensor.dtype.block_bytes());
    let mut strides = tensor.nb.map(|stride| stride / bytes * block);
    if block > 1 {
        strides[0] = 1;
    }
    format!("{text}/({})", list(strides))
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::{BF16, F16, F32, I8, I16, I32, Q4_0};
    use rstest::rstest;

    /// The C++ documents' own texts, their types, and spaces.
    #[rstest]
    #[case("(1024,1,1,1)/f32", F32, [1024, 1, 1, 1])]
    #[case("(1024,768,1,1)/bf16", BF16, [1024, 768, 1, 1])]
    #[case("(8,4,2,3)/f16", F16, [8, 4, 2, 3])]
    #[case("(8,4,2,3)/i8", I8, [8, 4, 2, 3])]
    #[case("(8,4,2,3)/i16", I16, [8, 4, 2, 3])]
    #[case("(8,4,2,3)/I32", I32, [8, 4, 2, 3])]
    #[case("(64,4,1,1)/q4_0", Q4_0, [64, 4, 1, 1])]
    #[case(" ( 8 , 4,2 ,3 ) / f32 ", F32, [8, 4, 2, 3])]
    fn texts_without_strides_are_contiguous(#[case] text: &str, #[case] dtype: DataType, #[case] ne: [usize; 4]) {
        assert_eq!(parse(text), Ok(Tensor::contiguous(dtype, ne)));
    }

    #[rstest]
    #[case("(1024,1,1,1)/f32/(1,1024,1048576,1048576)", [4, 4096, 4_194_304, 4_194_304])]
    #[case("(1024,768,1,1)/bf16/(1,1024,786432,786432)", [2, 2048, 1_572_864, 1_572_864])]
    #[case("(3,5,1,1)/f32/(5,1,15,15)", [20, 4, 60, 60])]
    #[case("(64,4,1,1)/q4_0/( 1, 96, 384, 384 )", [18, 54, 216, 216])]
    fn strides_are_elements_and_become_bytes(#[case] text: &str, #[case] nb: [usize; 4]) {
        assert_eq!(parse(text).unwrap().nb, nb);
    }

    #[rstest]
    #[case("1024", "Invalid tensor descriptor: 1024 (expected format: (dim0,dim1,dim2,dim3)/dtype)")]
    #[case("", "Invalid tensor descriptor:  (expected format: (dim0,dim1,dim2,dim3)/dtype)")]
    #[case("(8,1,1,1)/", "Invalid tensor descriptor: (8,1,1,1)/ (missing dtype")]
    #[case("(8,1,1,1)/f23", "Invalid tensor descriptor: (8,1,1,1)/f23 (unknown dtype f23; did you mean f32")]
    #[case("(8,1,1,1)/f32/(1,8,8,8)/x", "(something follows the strides)")]
    #[case("8,1,1,1/f32", "Invalid shape format in 8,1,1,1/f32: shape must be enclosed in parentheses")]
    #[case("(/f32", "Invalid shape format in (/f32: shape must be enclosed in parentheses")]
    #[case("(1024,1,1)/f32", "Shape must have exactly 4 dimensions, got 3 in (1024,1,1)/f32; use 1 for unused")]
    #[case("(a,1,1,1)/f32", "Invalid shape values in (a,1,1,1)/f32: `a` is not a whole number of at least 0")]
    #[case("(-4,1,1,1)/f32", "Invalid shape values in (-4,1,1,1)/f32: `-4` is not a whole number of at least 0")]
    #[case("()/f32", "Invalid shape values in ()/f32: a number is missing")]
    #[case(
        "(8,1,1,1)/f32/1,8,8,8",
        "Invalid stride format in (8,1,1,1)/f32/1,8,8,8: stride must be enclosed in parentheses"
    )]
    #[case("(8,1,1,1)/f32/(1,8)", "Stride must have exactly 4 dimensions, got 2 in (8,1,1,1)/f32/(1,8)")]
    #[case("(8,1,1,1)/f32/(1,x,8,8)", "Invalid stride values in (8,1,1,1)/f32/(1,x,8,8): `x` is not")]
    #[case("(99999999999999999999,1,1,1)/f32", "99999999999999999999 exceeds any memory")]
    #[case("(4294967296,4294967296,4294967296,1)/f32", "exceed any memory")]
    #[case("(33,1,1,1)/q4_0", "a row of 33 elements of q4_0 is not whole blocks of 32")]
    #[case("(64,2,1,1)/q4_0/(2,64,128,128)", "the first stride must be 1, not 2")]
    #[case("(64,2,1,1)/q4_0/(1,65,128,128)", "a stride of 65 elements is not whole blocks of 32")]
    #[case("(8,1,1,1)/f32/(1,9223372036854775807,8,8)", "exceeds any memory")]
    #[case("(8,4,1,1)/f32/(1,0,32,32)", "stride 1 is 0, so that all elements would share memory")]
    #[case("(8,4,1,1)/f32/(0,8,32,32)", "stride 0 is 0")]
    #[case("(64,2,1,1)/q4_0/(0,64,128,128)", "stride 0 is 0")]
    #[case("(64,2,1,1)/q4_0/(1,0,128,128)", "stride 1 is 0")]
    fn mistakes_are_reported_in_the_words_of_the_cpp_tool(#[case] text: &str, #[case] expected: &str) {
        let message = parse(text).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }

    #[rstest]
    #[case("(1024,768,1,1)/bf16")]
    #[case("(3,5,1,1)/f32/(5,1,15,15)")]
    #[case("(64,4,1,1)/q4_0/(1,96,384,384)")]
    fn texts_come_back(#[case] text: &str) {
        assert_eq!(describe(&parse(text).unwrap()), text);
    }
}
