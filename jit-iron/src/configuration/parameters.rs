//! The parameters of an operation in a configuration.
//!
//! ggml stores them as 64 bytes, in which integers and floats lie side by side as the operation wants. A list is the readable
//! form: whole numbers are 32-bit integers, numbers with a point or an exponent are 32-bit floats (write `1.0`, not `1`, for a
//! scale of one). Hexadecimal digits are the exact form.

use super::document::{Problem, Value};
use aie_ops::OpParams;
use serde_json::Number;

const WORDS: usize = 16;

/// Reads `op_params`.
///
/// # Errors
/// Every word that is not a parameter.
pub fn parse_parameters(value: &Value<'_>) -> Result<OpParams, Vec<Problem>> {
    match value.kind() {
        "a list" => list(value),
        "a string" => hexadecimal(value).map_err(|problem| vec![problem]),
        kind => Err(vec![value.problem(format!("'op_params' is {kind}; possible: {}", possible()))]),
    }
}

fn possible() -> String {
    format!("a list of up to {WORDS} numbers, or a string of {} hexadecimal digits (64 bytes)", WORDS * 8)
}

fn list(value: &Value<'_>) -> Result<OpParams, Vec<Problem>> {
    let elements = value.elements().map_err(|problem| vec![problem])?;
    if elements.len() > WORDS {
        let message = format!("'op_params' has {} numbers; ggml has room for {WORDS}", elements.len());
        return Err(vec![value.problem(message)]);
    }
    let (mut params, mut problems) = (OpParams::default(), Vec::new());
    for (slot, element) in params.0.iter_mut().zip(&elements) {
        match word(element) {
            Ok(word) => *slot = word,
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(params) } else { Err(problems) }
}

fn word(value: &Value<'_>) -> Result<i32, Problem> {
    if value.kind() != "a number" {
        return Err(value.problem(format!("this is {}; a parameter is a number", value.kind())));
    }
    if value.json().contains(['.', 'e', 'E']) {
        // Through the text, not through f64: rounding twice can give the neighbour.
        let float: f32 = value.json().parse().map_err(|error| value.problem(format!("not a float: {error}")))?;
        if float.is_infinite() {
            let message = format!("{} is larger than any 32-bit float; give it in hexadecimal", value.json());
            return Err(value.problem(message));
        }
        return Ok(float.to_bits().cast_signed());
    }
    let number: Number = value.read()?;
    number.as_i64().and_then(|whole| i32::try_from(whole).ok()).ok_or_else(|| {
        let message = "is not a 32-bit integer; write a float with a point, or give all parameters in hexadecimal";
        value.problem(format!("{} {message}", value.json()))
    })
}

fn hexadecimal(value: &Value<'_>) -> Result<OpParams, Problem> {
    let text: String = value.read()?;
    let digits = text.as_bytes();
    if digits.len() != WORDS * 8 || !digits.iter().all(u8::is_ascii_hexdigit) {
        let message = format!("'op_params' is a string of {} characters; possible: {}", digits.len(), possible());
        return Err(value.problem(message));
    }
    let mut params = OpParams::default();
    for (index, word) in params.0.iter_mut().enumerate() {
        // Digits, as was checked; the first byte is the lowest.
        let digits = u32::from_str_radix(&text[8 * index..][..8], 16).unwrap_or_default();
        *word = digits.swap_bytes().cast_signed();
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::*;
    use rstest::rstest;

    fn parse(text: &str) -> Result<OpParams, String> {
        let document = Document::new("p.json", text);
        let problems = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        parse_parameters(&document.root().unwrap()).map_err(problems)
    }

    #[test]
    fn integers_and_floats_are_distinguished_by_their_spelling() {
        let params = parse("[1, 1.0, -7, 1e-5, -0.5]").unwrap();
        assert_eq!((params.int(0), params.float(1), params.int(2)), (1, 1.0, -7));
        assert_eq!((params.float(3), params.float(4), params.int(5)), (1e-5, -0.5, 0));
        assert_eq!(parse("[]"), Ok(OpParams::default()));
    }

    #[test]
    fn hexadecimal_is_the_bytes_in_order() {
        let bytes: String = (0..64).map(|byte| format!("{byte:02x}")).collect();
        let params = parse(&format!("\"{bytes}\"")).unwrap();
        assert_eq!(params.to_bytes(), std::array::from_fn::<u8, 64, _>(|index| index as u8));
        assert_eq!(parse(&format!("\"{}\"", bytes.to_uppercase())), Ok(params));
    }

    #[rstest]
    #[case(
        "\"00\"",
        "'op_params' is a string of 2 characters; possible: a list of up to 16 numbers, or a string of 128"
    )]
    #[case("true", "'op_params' is a boolean; possible: a list")]
    #[case("[3000000000]", "p.json:1:2: [0]: 3000000000 is not a 32-bit integer")]
    #[case("[1e40]", "1e40 is larger than any 32-bit float")]
    #[case("[1, \"x\"]", "p.json:1:5: [1]: this is a string; a parameter is a number")]
    #[case("[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", "'op_params' has 17 numbers; ggml has room for 16")]
    fn nonsense_is_explained(#[case] text: &str, #[case] expected: &str) {
        let message = parse(text).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn every_bad_word_is_reported() {
        assert_eq!(parse("[null, 1, {}, 99999999999]").unwrap_err().lines().count(), 3);
    }
}
