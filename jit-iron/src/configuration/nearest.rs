//! Suggestions for mistyped words.

/// How far apart two words may be to be taken for one: a third of the letters.
const CLOSE_ENOUGH: f64 = 0.66;

/// Those of `known` that are near to `word`, the nearest first, at most `count`.
pub(super) fn nearest<S: AsRef<str>>(word: &str, known: impl IntoIterator<Item = S>, count: usize) -> Vec<S> {
    let word = word.to_ascii_lowercase();
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(&word, &known.to_ascii_lowercase());
    let mut found: Vec<(f64, S)> = known
        .into_iter()
        .map(|known| (likeness(known.as_ref()), known))
        .filter(|(likeness, _)| *likeness >= CLOSE_ENOUGH)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().take(count).map(|(_, known)| known).collect()
}

/// `; did you mean ...?` when something is near, else nothing.
pub(super) fn suggestion<S: AsRef<str>>(word: &str, known: impl IntoIterator<Item = S>) -> String {
    let near = nearest(word, known, 3);
    match near.as_slice() {
        [] => String::new(),
        near => format!("; did you mean {}?", near.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" or ")),
    }
}

/// What is near to `word`, then everything that is possible.
pub(super) fn possible<S: AsRef<str> + Clone>(word: &str, known: &[S]) -> String {
    let near = suggestion(word, known);
    let separator = if near.is_empty() { ";" } else { "" };
    let all: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    format!("{near}{separator} possible: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_come_first_and_far_ones_not_at_all() {
        let known = ["arch", "kernel_name", "kernel_source"];
        assert_eq!(nearest("kernel_nmae", known, 2), ["kernel_name"]);
        assert_eq!(nearest("ARHC", ["march", "arch"], 1), ["arch"]);
        assert_eq!(suggestion("acrh", known), "; did you mean arch?");
        assert_eq!(suggestion("quite something else", known), "");
        assert_eq!(possible("acrh", &["arch", "x"]), "; did you mean arch? possible: arch, x");
        assert_eq!(possible("something", &["arch", "x"]), "; possible: arch, x");
    }
}
