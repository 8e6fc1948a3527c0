//! bootgen, AMD's maker of PDIs: it reads ours, and makes one itself from the CDO inside of ours.

use crate::Confirmed;
use crate::tool::Tool;
use aie_hal::format::cdo::{Cdo, CdoCommand};
use aie_hal::format::pdi::{CDO_OFFSET, Pdi};
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// A value as bootgen prints it: `id_code (0x18) : 0x14ca8093`.
static VALUE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"([A-Za-z_/]+) ?\((0x[0-9a-fA-F]+)\) : (\S+)").ok());
/// The blocks of headers: what bootgen calls them, where they are in the file, and how many values it prints of each.
const BLOCKS: [(&str, usize, usize); 3] =
    [("IMAGE HEADER TABLE", 0x10, 20), ("IMAGE HEADER (", 0x90, 12), ("PARTITION HEADER TABLE", 0xD0, 19)];
/// What it has to make of the attributes: a CDO, for the platform's own loader, loaded at once.
const ATTRIBUTES: [&str; 3] = ["partition_type[cdo]", "owner [plm]", "load [now]"];
/// The description mlir-aie gives to bootgen.
const DESCRIPTION: &str = "all:\n{\n  id_code = 0x14ca8093\n  extended_id_code = 0x01\n  image\n  {\n    name=aie_image, \
                           id=0x1c000000\n    { type=cdo\n      file=design.cdo\n    }\n  }\n}\n";

pub struct Bootgen(pub Tool);

impl Bootgen {
    fn run(&self, work: &Path, arguments: &[&str]) -> Result<String> {
        self.0.run(work, ["-arch", "versal"].iter().chain(arguments))
    }

    /// Shows it a PDI in the folder `work`, which is the caller's own.
    pub fn judge(&self, pdi: &[u8], work: &Path) -> Result<Confirmed> {
        let ours = Pdi::parse(pdi).context("our own reader")?;
        fs::write(work.join("design.pdi"), pdi)?;
        let printed = self.run(work, &["-read", "design.pdi"])?;
        let header_words = compare_headers(pdi, &printed)?;
        fs::write(work.join("design.cdo"), cdo_file(pdi)?)?;
        fs::write(work.join("design.bif"), DESCRIPTION)?;
        self.run(work, &["-image", "design.bif", "-o", "made.pdi", "-w"])?;
        let made = fs::read(work.join("made.pdi")).context("bootgen wrote no PDI")?;
        let theirs = Pdi::parse(&made).context("our reader does not accept the PDI that bootgen makes of our CDO")?;
        ensure!(
            pdi[..BLOCKS[2].1] == made[..BLOCKS[2].1],
            "the header in front of the partition's is another one in the PDI bootgen makes"
        );
        let commands = compare_commands(&ours.cdo(), &theirs.cdo())?;
        Ok(vec![
            ("bootgen -read: PDIs read", 1),
            ("bootgen -read: values of their headers", header_words),
            ("bootgen -image: CDO commands read and written again", commands),
            // Its alignment of block writes has changed over the versions.
            ("bootgen -image: PDIs that it makes byte for byte", usize::from(pdi == made)),
        ])
    }
}

/// The CDO as a file of its own: what the partition holds without its padding.
fn cdo_file(pdi: &[u8]) -> Result<&[u8]> {
    let words = word(pdi, BLOCKS[2].1 + 4).context("a PDI without a partition header")? as usize;
    pdi.get(CDO_OFFSET..CDO_OFFSET + 4 * words).context("a PDI shorter than its CDO")
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

/// Compares every value bootgen prints with the words of the file; returns how many.
fn compare_headers(pdi: &[u8], printed: &str) -> Result<usize> {
    let pattern = VALUE.as_ref().context("a pattern of this program")?;
    if let Some(line) = printed.lines().find(|line| line.contains("[ERROR]") || line.contains("[WARNING]")) {
        bail!("bootgen: {}", line.trim());
    }
    let mut counts = [0; BLOCKS.len()];
    let mut block = None;
    for line in printed.lines() {
        if let Some(found) = BLOCKS.iter().position(|(title, ..)| line.trim_start().starts_with(title)) {
            block = Some(found);
        }
        let Some(index) = block else { continue };
        for found in pattern.captures_iter(line) {
            let (label, offset, text) = (&found[1], &found[2], &found[3]);
            let offset = usize::from_str_radix(&offset[2..], 16)?;
            // bootgen prints 0x18 for the image's id, which is behind a name of 16 bytes.
            let offset = BLOCKS[index].1 + if (index, label) == (1, "id") { 0x20 } else { offset };
            let expected =
                shown(pdi, offset, label, text).with_context(|| format!("a PDI without a word at {offset:#x}"))?;
            ensure!(expected == text, "{label} at {offset:#x} is {expected} in the file and {text} to bootgen");
            counts[index] += 1;
        }
    }
    for ((title, _, expected), found) in BLOCKS.iter().zip(counts) {
        ensure!(found == *expected, "bootgen printed {found} values under {title}, expected are {expected}");
    }
    for attribute in ATTRIBUTES {
        ensure!(printed.contains(attribute), "bootgen does not say {attribute} of the PDI");
    }
    Ok(counts.iter().sum())
}

/// What is at `offset`, in the form and length of `like`: a name, letters of one word backwards, or words one after the other.
fn shown(pdi: &[u8], offset: usize, label: &str, like: &str) -> Option<String> {
    let bytes = |length| pdi.get(offset..offset + length);
    Some(match (label, like.strip_prefix("0x")) {
        ("name", _) => String::from_utf8_lossy(bytes(16)?).trim_end_matches('\0').to_owned(),
        ("id_string", _) => bytes(4)?.iter().rev().map(|byte| char::from(*byte)).collect(),
        (_, Some(digits)) => {
            let words = (0..digits.len() / 8).map(|index| word(pdi, offset + 4 * index));
            words
                .map(|word| word.map(|word| format!("{word:08x}")))
                .collect::<Option<String>>()
                .map(|text| format!("0x{text}"))?
        }
        _ => return None,
    })
}

/// Compares the commands; returns how many. NOPs without anything in them only align block writes, differently in every version.
fn compare_commands(ours: &Cdo<'_>, theirs: &Cdo<'_>) -> Result<usize> {
    let meant = |command: &CdoCommand<'_>| match command {
        CdoCommand::Nop { payload } => payload.iter().any(|word| word != 0),
        _ => true,
    };
    let (mut ours, mut theirs) = (ours.commands().filter(meant), theirs.commands().filter(meant));
    let mut count = 0;
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return Ok(count),
            (Some(ours), Some(theirs)) if same(&ours, &theirs) => count += 1,
            (ours, theirs) => bail!("command {count} of the CDO is {ours:?} here and {theirs:?} from bootgen"),
        }
    }
}

/// Whether two commands do the same.
fn same(ours: &CdoCommand<'_>, theirs: &CdoCommand<'_>) -> bool {
    use CdoCommand::{DmaWrite, Write};
    match (ours, theirs) {
        // bootgen writes a block of one word as a write.
        (DmaWrite { address: a, data }, Write { address: b, value }) if data.len() == 1 => {
            a == b && data.get(0) == Some(*value)
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::pdi;

    fn sample(value: u32) -> Vec<u8> {
        let mut cdo = CdoBuilder::new();
        cdo.nop(&[]).write(0x0021_DE04, value).dma_write(0x0022_0000, &[7, 8, value]);
        pdi::write(&cdo).unwrap()
    }

    #[test]
    fn values_are_compared_with_the_file() {
        let pdi = sample(1);
        assert_eq!(shown(&pdi, 0x28, "id_code", "0x14ca8093").unwrap(), "0x14ca8093");
        assert_eq!(shown(&pdi, 0x38, "id_string", "PPDI").unwrap(), "PPDI");
        assert_eq!(shown(&pdi, 0xA0, "name", "x").unwrap(), "aie_image");
        assert_eq!(shown(&pdi, 0xE8, "load_addr_lo", "0x0000000000000000").unwrap(), "0xffffffffffffffff");
        let error =
            compare_headers(&pdi, "IMAGE HEADER TABLE\n version (0x00) : 0x00030000\n").unwrap_err().to_string();
        assert!(error.contains("0x00040000 in the file and 0x00030000"), "{error}");
        let error =
            compare_headers(&pdi, "IMAGE HEADER TABLE\n version (0x00) : 0x00040000\n").unwrap_err().to_string();
        assert!(error.contains("printed 1 values"), "{error}");
        assert!(compare_headers(&pdi, "[ERROR]  : no").is_err());
    }

    #[test]
    fn commands_are_compared_by_what_they_do() {
        let (a, b) = (sample(1), sample(2));
        let cdo = |bytes| Pdi::parse(bytes).unwrap().cdo();
        assert_eq!(compare_commands(&cdo(&a), &cdo(&a)).unwrap(), 2);
        let error = compare_commands(&cdo(&a), &cdo(&b)).unwrap_err().to_string();
        assert!(error.contains("command 0"), "{error}");
        let mut shorter = CdoBuilder::new();
        shorter.nop(&[0, 0]).write(0x0021_DE04, 1);
        let shorter = pdi::write(&shorter).unwrap();
        assert!(compare_commands(&cdo(&a), &cdo(&shorter)).unwrap_err().to_string().contains("command 1"));
    }
}
