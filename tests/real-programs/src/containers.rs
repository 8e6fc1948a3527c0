//! The core programs in PDIs, xclbins and ELF files.

use aie_hal::format::cdo::CdoCommand;
use aie_hal::format::pdi::Pdi;
use aie_hal::format::{tile_location, xclbin};
use anyhow::{Context, Result};
use object::{Object, ObjectSegment, SegmentFlags};
use std::collections::BTreeMap;

/// Offset of program memory in a core tile, and its size.
const PROGRAM: std::ops::Range<u32> = 0x2_0000..0x2_4000;
/// Rows below this have no cores.
const FIRST_CORE_ROW: u8 = 2;
/// Machine number of AI Engine ELF files.
const EM_AIE: u16 = 264;

/// A piece of program memory that is written without gaps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    /// Address in program memory.
    pub address: u32,
    pub bytes: Vec<u8>,
}

/// The program of one core: its pieces in order.
pub type CoreProgram = Vec<Code>;

/// The programs in a file, by its content. None if it is no file with programs.
pub fn programs(bytes: &[u8]) -> Result<Option<Vec<CoreProgram>>> {
    if bytes.starts_with(b"\x7fELF") {
        return Ok(elf(bytes)?.map(|program| vec![program]));
    }
    if xclbin::is_xclbin(bytes) {
        let mut programs = Vec::new();
        for pdi in xclbin::pdis(bytes)? {
            programs.extend(of_pdi(&Pdi::parse(pdi)?)?);
        }
        return Ok(Some(programs));
    }
    match Pdi::parse(bytes) {
        Ok(pdi) => of_pdi(&pdi).map(Some),
        Err(_) => Ok(None),
    }
}

/// The PDI to configure the array with: the file itself, or the first PDI of an xclbin.
pub fn image(bytes: &[u8]) -> Result<&[u8]> {
    if !xclbin::is_xclbin(bytes) {
        return Ok(bytes);
    }
    xclbin::pdis(bytes)?.into_iter().next().context("the xclbin has no PDI")
}

/// What the CDO writes to program memory, core by core.
fn of_pdi(pdi: &Pdi<'_>) -> Result<Vec<CoreProgram>> {
    let mut cores: BTreeMap<(u8, u8), BTreeMap<u32, [u8; 4]>> = BTreeMap::new();
    let mut write = |address: u64, index: usize, value: u32| -> Result<()> {
        let address = u32::try_from(address).context("an address above 4 GiB")? + 4 * index as u32;
        let (column, row, offset) = tile_location(address);
        if row >= FIRST_CORE_ROW && PROGRAM.contains(&offset) {
            cores.entry((column, row)).or_default().insert(offset - PROGRAM.start, value.to_le_bytes());
        }
        Ok(())
    };
    for command in pdi.cdo().commands() {
        match command {
            CdoCommand::Write { address, value } => write(address, 0, value)?,
            CdoCommand::DmaWrite { address, data } => {
                for (index, value) in data.iter().enumerate() {
                    write(address, index, value)?;
                }
            }
            _ => {}
        }
    }
    Ok(cores.into_values().map(joined).collect())
}

/// Words that follow each other as one piece.
fn joined(words: BTreeMap<u32, [u8; 4]>) -> CoreProgram {
    let mut program = CoreProgram::new();
    for (address, word) in words {
        match program.last_mut() {
            Some(last) if last.address + last.bytes.len() as u32 == address => last.bytes.extend(word),
            _ => program.push(Code { address, bytes: word.to_vec() }),
        }
    }
    program
}

/// The executable segments of an ELF file of a core. None for files of other machines.
fn elf(bytes: &[u8]) -> Result<Option<CoreProgram>> {
    let machine = bytes.get(18..20).map(|machine| u16::from_le_bytes([machine[0], machine[1]]));
    if machine != Some(EM_AIE) {
        return Ok(None);
    }
    let file = object::File::parse(bytes)?;
    let mut program = CoreProgram::new();
    for segment in file.segments() {
        if matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0) {
            program.push(Code { address: segment.address() as u32, bytes: segment.data()?.to_vec() });
        }
    }
    Ok((!program.is_empty()).then_some(program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::pdi;

    fn pdi() -> Vec<u8> {
        let mut cdo = CdoBuilder::new();
        // Core (0, 2), in two pieces that follow each other and one that does not; then a mem tile's data.
        cdo.dma_write(0x0022_0000, &[1, 2]).write(0x0022_0008, 3).write(0x0022_0020, 4).dma_write(0x0012_0000, &[5]);
        pdi::write(&cdo).unwrap()
    }

    #[test]
    fn pieces_of_program_memory_are_joined() {
        let programs = programs(&pdi()).unwrap().unwrap();
        let pieces: Vec<_> = programs[0].iter().map(|code| (code.address, code.bytes.len())).collect();
        assert_eq!((programs.len(), pieces), (1, vec![(0, 12), (32, 4)]));
    }

    #[test]
    fn other_files_are_no_programs() {
        assert!(programs(b"text").unwrap().is_none());
        assert!(programs(&[b"\x7fELF".to_vec(), vec![0; 60]].concat()).unwrap().is_none());
    }
}
