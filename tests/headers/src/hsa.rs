//! What `hsa-sys` declares, against the headers of the real runtime.
//!
//! The tables of `hsa_sys::layout` are turned into a C program that prints what the C compiler makes of the headers:
//! sizes, alignments, offsets, bit fields, values, and whether each function has the type of the table. A name the
//! headers do not have is an error of the compiler. The other direction is checked too: every status code and every
//! AIE item of the headers must be declared.

use crate::compiler::{Compiler, Question, differences, kinds, without_comments};
use anyhow::Result;
use hsa_sys::layout::{BIT_FIELDS, BitField, CONSTANTS, Constant, FUNCTIONS, OFFSETS, STRUCTS, Struct};
use regex::Regex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const HEADERS: [&str; 3] = ["hsa/hsa.h", "hsa/hsa_ext_amd.h", "hsa/amd_hsa_queue.h"];

#[derive(Serialize)]
pub struct Compared {
    /// How many values of each kind.
    compared: BTreeMap<&'static str, usize>,
    /// What the headers of this generation cannot have, and why.
    later: BTreeMap<&'static str, &'static str>,
    problems: Vec<String>,
}

pub fn compare(include: &Path, compiler: &Compiler) -> Result<Compared> {
    let questions = questions();
    let answers = compiler.ask(&questions, &HEADERS, include)?;
    let mut problems = differences(&questions, &answers, "hsa-sys");
    let text = HEADERS.iter().map(|header| crate::read(&include.join(header))).collect::<Result<String>>()?;
    let (known, undeclared) = undeclared(&text)?;
    problems
        .extend(undeclared.into_iter().map(|name| format!("the headers have {name}, and hsa-sys does not declare it")));
    let mut compared = kinds(&questions);
    compared.insert("status codes and AIE items of the headers declared", known);
    Ok(Compared { compared, later: later(), problems })
}

fn structs() -> impl Iterator<Item = &'static Struct> {
    STRUCTS.iter().copied().flatten()
}

fn constants() -> impl Iterator<Item = &'static Constant> {
    CONSTANTS.iter().copied().flatten()
}

/// What the headers of this generation cannot have.
fn later() -> BTreeMap<&'static str, &'static str> {
    let structs = structs().filter_map(|entry| Some((entry.name, entry.since?)));
    structs.chain(constants().filter_map(|entry| Some((entry.name, entry.since?)))).collect()
}

fn questions() -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ask = |kind, name: String, code: String, expected: u64| {
        questions.push(Question { kind, name, code, expected });
    };
    for entry in structs().filter(|entry| entry.since.is_none()) {
        let name = entry.name;
        ask("sizes", name.to_owned(), format!("value = sizeof({name});"), entry.size as u64);
        ask("alignments", name.to_owned(), format!("value = _Alignof({name});"), entry.align as u64);
        let words = |offset| BIT_FIELDS.iter().any(|bits| bits.structure == name && bits.offset == offset);
        for field in entry.fields.iter().filter(|field| !words(field.offset)) {
            let member = field.c_name();
            let path = format!("{name}.{member}");
            ask("offsets", path.clone(), format!("value = offsetof({name}, {member});"), field.offset as u64);
            // A flexible array has no size.
            if field.size != 0 {
                ask("field sizes", path, format!("value = sizeof((({name} *)0)->{member});"), field.size as u64);
            }
        }
    }
    for bits in BIT_FIELDS {
        ask("bit fields", format!("{}.{}", bits.structure, bits.name), bit_field(bits), u64::from(bits.mask));
    }
    for place in OFFSETS {
        let (structure, field) = (place.structure, place.field);
        let code = format!("value = offsetof({structure}, {field});");
        ask("offsets", format!("{structure}.{field}"), code, place.offset as u64);
    }
    for constant in constants().filter(|constant| constant.since.is_none()) {
        let name = constant.name;
        ask("constants", name.to_owned(), format!("value = (unsigned long long){name};"), constant.value);
    }
    for function in FUNCTIONS {
        let (name, c_type) = (function.name, (function.c_type)());
        let code = format!("value = __builtin_types_compatible_p(__typeof__({name}), {c_type});");
        ask("function types", name.to_owned(), code, 1);
    }
    questions
}

/// Sets all bits of one field and looks at the whole structure, so that a field in another word is seen as well.
fn bit_field(bits: &BitField) -> String {
    let (name, member, offset) = (bits.structure, bits.name, bits.offset);
    format!(
        "{name} p, q; uint32_t word; memset(&p, 0, sizeof p); q = p; p.{member} = ones; \
         memcpy(&word, (char *)&p + {offset}, sizeof word); value = word; \
         memcpy((char *)&q + {offset}, &word, sizeof word); if (memcmp(&p, &q, sizeof p)) value = 0;"
    )
}

/// How many status codes and AIE items the headers have, and those of them that are not declared.
fn undeclared(headers: &str) -> Result<(usize, Vec<String>)> {
    let headers = without_comments(headers)?;
    let values = Regex::new(r"\b(HSA_STATUS_\w+|HSA_AMD_AIE_\w+|HSA_AMD_PACKET_TYPE_\w+)\b")?;
    let types = Regex::new(r"\}\s*(hsa_amd_aie_\w+|hsa_amd_vendor_packet_header_t|hsa_queue_t|hsa_signal_t)\s*;")?;
    let found: BTreeSet<&str> = [values, types]
        .iter()
        .flat_map(|pattern| pattern.captures_iter(&headers).filter_map(|found| found.get(1)))
        .map(|found| found.as_str())
        .collect();
    let declared: BTreeSet<&str> =
        structs().map(|entry| entry.name).chain(constants().map(|entry| entry.name)).collect();
    Ok((found.len(), found.difference(&declared).map(|name| (*name).to_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_is_compared() {
        let questions = questions();
        let count = |kind| questions.iter().filter(|question| question.kind == kind).count();
        assert_eq!(count("function types"), FUNCTIONS.len());
        let later = later();
        let (structs, constants) = (structs().count(), constants().count());
        assert_eq!(count("sizes") + count("constants") + later.len(), structs + constants);
        assert_eq!(count("bit fields"), BIT_FIELDS.len());
        assert!(count("offsets") > 20, "{}", count("offsets"));
    }

    #[test]
    fn an_item_only_the_headers_have_is_found() {
        let text = "/* HSA_STATUS_OLD */ enum { HSA_STATUS_SUCCESS = 0, HSA_STATUS_BRAND_NEW = 1 }; // HSA_STATUS_X\n\
                    typedef struct { int a; } hsa_amd_aie_new_t;";
        let (known, missing) = undeclared(text).unwrap();
        assert_eq!((known, missing), (3, vec!["HSA_STATUS_BRAND_NEW".to_owned(), "hsa_amd_aie_new_t".to_owned()]));
    }
}
