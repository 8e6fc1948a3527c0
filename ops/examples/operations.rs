//! Prints the table of operations as Markdown.

fn main() {
    print!("{}", aie_ops::table::markdown());
}
