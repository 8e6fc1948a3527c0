//! Writes the elements of a page or a drawing in sequence. What is open is closed by whoever opened it, and all that is put in is escaped,
//! so that the result is well-formed XML whatever names a file has.

use std::fmt::Display;

/// A page or a drawing being written.
#[derive(Debug, Default)]
pub struct Markup {
    text: String,
}

impl Markup {
    /// An element with `content` in it.
    pub fn element(&mut self, name: &str, attributes: &[(&str, &dyn Display)], content: impl FnOnce(&mut Self)) {
        self.open(name, attributes);
        content(self);
        self.close(name);
    }

    /// Opens an element, which stays open until [`Markup::close`].
    pub fn open(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.begin(name, attributes);
        self.text.push('>');
    }

    /// Closes the element `name`, which was opened last of those that are open.
    pub fn close(&mut self, name: &str) {
        self.text += &format!("</{name}>");
        if !matches!(name, "td" | "th" | "b" | "span" | "code" | "text" | "title" | "i") {
            self.text.push('\n');
        }
    }

    /// An element with text in it.
    pub fn leaf(&mut self, name: &str, attributes: &[(&str, &dyn Display)], text: &dyn Display) {
        self.element(name, attributes, |inner| inner.text(text));
    }

    /// An element that has no content.
    pub fn void(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.begin(name, attributes);
        self.text += "/>";
    }

    /// Text.
    pub fn text(&mut self, text: &dyn Display) {
        self.text += &escaped(&text.to_string());
    }

    /// What is already markup, and our own.
    pub fn own(&mut self, markup: &'static str) {
        self.text += markup;
    }

    /// What `other` wrote.
    pub fn append(&mut self, other: Self) {
        self.text += &other.text;
    }

    fn begin(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.text += &format!("<{name}");
        for (name, value) in attributes {
            self.text += &format!(" {name}=\"{}\"", escaped(&value.to_string()));
        }
    }

    /// What was written.
    pub fn finish(self) -> String {
        self.text
    }
}

/// Text without meaning as markup. Characters that no page may have become the replacement character.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(character),
            // Marks that turn the direction of what follows would disorder a line of the page.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            character if character.is_control() => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_control_characters_are_escaped() {
        assert_eq!(
            escaped("a<b>&\"'\n\u{7f}\u{85}\u{1}\u{2066}é"),
            "a&lt;b&gt;&amp;&quot;&#39;\n\u{fffd}\u{fffd}\u{fffd}\u{fffd}é"
        );
    }
}
