//! Which family of native kernels makes products with few columns.

use aie_jit_native::Products;

/// Reads a value.
pub fn parse(text: &str) -> Option<Products> {
    let all = [("product", Products::Product), ("rings", Products::Rings)];
    all.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| value)
}
