//! The words for yes and no, the same for every switch.
//!
//! This file uses nothing of the crate: build scripts check defaults of a build with it.

/// Words that mean yes; other spellings do not.
pub const TRUTHY: [&str; 10] = ["1", "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"];

/// Words that mean no. Whatever is not truthy does not switch anything on; these are the ones that say so on purpose.
pub const FALSY: [&str; 10] = ["0", "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"];

/// Whether `value` means yes.
pub fn is_truthy(value: &str) -> bool {
    TRUTHY.contains(&value)
}

/// What `value` says: yes, no, or neither.
pub fn switch(value: &str) -> Option<bool> {
    is_truthy(value).then_some(true).or_else(|| FALSY.contains(&value).then_some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    fn every_usual_word_is_understood(
        #[values(("1", "0"), ("true", "false"), ("yes", "no"), ("on", "off"))] words: (&str, &str),
        #[values(0, 1, 2)] spelling: usize,
    ) {
        let spell = |word: &str| match spelling {
            0 => word.to_owned(),
            1 => word[..1].to_uppercase() + &word[1..],
            _ => word.to_uppercase(),
        };
        let (yes, no) = (spell(words.0), spell(words.1));
        assert!(is_truthy(&yes) && !is_truthy(&no));
        assert_eq!((switch(&yes), switch(&no)), (Some(true), Some(false)));
    }

    #[rstest]
    fn anything_else_is_neither(#[values("", " 1", "1 ", "2", "tRUE", "oN", "y", "enabled")] word: &str) {
        assert!(!is_truthy(word));
        assert_eq!(switch(word), None);
    }
}
