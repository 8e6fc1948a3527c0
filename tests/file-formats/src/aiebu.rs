//! aiebu, AMD's assembler and disassembler of instruction streams: what it reads in ours, and the ELF file it makes of them.

use crate::Confirmed;
use crate::tool::Tool;
use aie_hal::format::bd::ShimBd;
use aie_hal::format::dma_channel::Direction;
use aie_hal::format::instructions::{Instruction, InstructionStream, InstructionWriter};
use aie_hal::format::kernel_elf::KernelElf;
use anyhow::{Context, Result, bail, ensure};
use object::read::elf::ElfFile32;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FILE: &str = "design_insts.bin";
const ELF: &str = "design.elf";
/// The first device generation whose streams aiebu-dump recognises outside of an ELF file: aie2p.
const FIRST_RECOGNISED: u8 = 4;
/// Words of an instruction stream's header, in bytes.
const HEADER_BYTES: u64 = 16;
/// Arguments of a kernel before those of the stream: opcode, address and number of the instructions.
const FIRST_ARGUMENT: usize = 3;
const INSTRUCTIONS: &str = ".ctrltext";

pub struct Aiebu {
    pub disassembler: Tool,
    pub assembler: Tool,
}

impl Aiebu {
    /// Shows it a stream in the folder `work`, which is the caller's own.
    pub fn judge(&self, stream: &[u8], work: &Path) -> Result<Confirmed> {
        let ours = InstructionStream::parse(stream).context("our own reader")?;
        fs::write(work.join(FILE), stream)?;
        self.assembler.run(work, ["-t", "aie2txn", "-c", FILE, "-o", ELF])?;
        let elf = fs::read(work.join(ELF)).context("aiebu-asm wrote no ELF file")?;
        let relocations = compare_elf(&ours, stream, &elf)?;
        let dump = |mode, file| self.disassembler.run(work, [mode, "-m", "aie2txn", file]);
        let expected = disassembly(&ours)?;
        let lines = compare_lines(&expected, &dump("-d", ELF)?)?;
        compare_summary(&ours, stream.len(), &dump("-p", ELF)?)?;
        // It takes the bare stream of an aie2 device, which its assembler accepts, for one of another family.
        if ours.header().generation >= FIRST_RECOGNISED {
            compare_lines(&expected, &dump("-d", FILE)?)?;
        }
        Ok(vec![
            ("aiebu-dump: instruction streams read", 1),
            ("aiebu-dump: lines of their disassembly", lines),
            ("aiebu-asm: bytes of instructions in its ELF files", stream.len()),
            ("aiebu-asm: addresses of arguments, with the argument's size", relocations),
        ])
    }
}

impl Aiebu {
    /// Has it pack a kernel into one ELF, in the folder `work`, and reads that.
    pub fn pack(&self, pdi: &[u8], stream: &[u8], work: &Path) -> Result<Confirmed> {
        const PDI: u16 = 3;
        let ours = InstructionStream::parse(stream).context("our own reader")?;
        let mut loading = InstructionWriter::new(ours.header());
        loading.push(&Instruction::LoadPdi { id: PDI, size: u32::try_from(pdi.len())?, address: 0 });
        for operation in ours.operations() {
            loading.push(&operation);
        }
        fs::write(work.join(FILE), loading.finish()?)?;
        fs::write(work.join("design.pdi"), pdi)?;
        let argument = |index: usize| {
            let (name, offset) = (format!("arg_{index}"), format!("{:#x}", 8 * index));
            json!({"name": name, "type": "char *", "offset": offset})
        };
        let kernel = json!({
            "name": "design",
            "arguments": (0..ours.argument_count()).map(argument).collect::<Vec<_>>(),
            "PDIs": [{"id": PDI, "PDI_file": "design.pdi"}],
            "instance": [{"id": "sequence", "TXN_ctrl_code_file": FILE}],
        });
        fs::write(work.join("design.json"), json!({"xrt-kernels": [kernel]}).to_string())?;
        self.assembler.run(work, ["-t", "aie2_config", "-j", "design.json", "-o", ELF])?;
        let elf = fs::read(work.join(ELF)).context("aiebu-asm wrote no ELF file")?;
        let found = KernelElf::parse(&elf).context("our reader of kernel ELFs")?;
        ensure!(
            found.pdi == pdi,
            "the PDI in the ELF file is another one ({} bytes of {})",
            found.pdi.len(),
            pdi.len()
        );
        let (read, expected) = (InstructionStream::parse(&found.instructions)?, stream.len());
        ensure!(read.operations().eq(ours.operations()), "the stream in the ELF file has other operations");
        ensure!(
            found.instructions.len() == expected,
            "{} bytes of instructions of {expected}",
            found.instructions.len()
        );
        Ok(vec![("aiebu-asm: whole ELF files of kernels read", 1)])
    }
}

/// The stream as aiebu-dump prints it, from our own reading.
fn disassembly(stream: &InstructionStream<'_>) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for operation in stream.operations() {
        lines.push(match operation {
            Instruction::Write { address, value } => format!("XAIE_IO_WRITE @{address:#x}, {value:#x}"),
            Instruction::BlockWrite { address, data } => {
                lines.push(format!("XAIE_IO_BLOCKWRITE @{address:#x}, [{}]", data.len()));
                let words = data.iter().enumerate();
                lines.extend(words.map(|(index, word)| format!("XAIE_IO_BLOCKWRITE.{index} {word:#x}")));
                continue;
            }
            Instruction::MaskWrite { address, value, mask } => {
                format!("XAIE_IO_MASKWRITE @{address:#x}, {mask:#x}(), {value:#x}")
            }
            Instruction::MaskPoll { address, value, mask } => {
                format!("XAIE_IO_MASKPOLL @{address:#x}, {mask:#x}()=={value:#x}")
            }
            Instruction::MaskPollBusy { address, value, mask } => {
                format!("XAIE_IO_MASKPOLL_BUSY @{address:#x}, {mask:#x}()=={value:#x}")
            }
            Instruction::Noop => "XAIE_IO_NOOP".to_owned(),
            Instruction::Sync { direction, column, row, columns, rows, channel } => {
                let direction = match direction {
                    Direction::StreamToMemory => "DMA_S2MM",
                    Direction::MemoryToStream => "DMA_MM2S",
                };
                format!("XAIE_IO_CUSTOM_OP_TCT R[{row}]+{rows}, C[{column}]+{columns}, #{direction}, {channel}")
            }
            Instruction::AddressPatch { register, argument, offset } => {
                format!("XAIE_IO_CUSTOM_OP_DDR_PATCH @{register:#x}, #{argument}, +{offset:#x}")
            }
            other => bail!("this program does not know what aiebu prints for {other:?}"),
        });
    }
    Ok(lines)
}

/// Compares line by line, whatever the spaces; returns how many there are.
fn compare_lines(expected: &[String], printed: &str) -> Result<usize> {
    let printed: Vec<String> = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| line.starts_with("XAIE_"))
        .collect();
    for index in 0..expected.len().max(printed.len()) {
        let (ours, theirs) = (expected.get(index), printed.get(index));
        ensure!(
            ours == theirs,
            "line {} of the disassembly: `{}` here, `{}` from aiebu-dump",
            index + 1,
            ours.map_or("nothing", String::as_str),
            theirs.map_or("nothing", String::as_str)
        );
    }
    Ok(expected.len())
}

/// Compares what aiebu-dump says of the header: `v0.1, gen4`, `6x8 M1`, `300B, 8ops`.
fn compare_summary(stream: &InstructionStream<'_>, bytes: usize, printed: &str) -> Result<()> {
    let header = stream.header();
    let expected = [
        format!("v0.1, gen{}", header.generation),
        format!("{}x{} M{}", header.rows, header.columns, header.mem_tile_rows),
        format!("{bytes}B, {}ops", stream.operations().count()),
    ];
    // The name of the ELF file's section comes first.
    let lines = printed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('['));
    let lines: Vec<&str> = lines.take(expected.len()).collect();
    ensure!(lines == expected, "the header is {expected:?} here and {lines:?} to aiebu-dump");
    Ok(())
}

/// Where an argument's address is put: the offset of a buffer descriptor in the stream, the argument, and how many bytes the
/// descriptor moves, which is what aiebu-asm takes for the argument's size.
type Place = (u64, usize, u64);

/// The places in the stream, by our own reading.
fn places(stream: &InstructionStream<'_>) -> Result<Vec<Place>> {
    let mut descriptors: BTreeMap<u64, (u64, ShimBd)> = BTreeMap::new();
    let mut places = Vec::new();
    let mut offset = HEADER_BYTES;
    for operation in stream.operations() {
        match operation {
            Instruction::BlockWrite { address, data } => {
                let words: Option<[u32; 8]> = data.to_vec().try_into().ok();
                // Behind the four words of the operation itself.
                let descriptor = words.map(|words| ShimBd::decode(&words)).unwrap_or_default();
                descriptors.insert(address.into(), (offset + 16, descriptor));
            }
            Instruction::AddressPatch { register, argument, .. } => {
                let (place, descriptor) =
                    descriptors.get(&(register - 4)).context("a patch without a buffer descriptor")?;
                places.push((*place, usize::from(argument), 4 * u64::from(descriptor.length)));
            }
            _ => {}
        }
        offset += length(&operation)?;
    }
    Ok(places)
}

/// Bytes of an operation in the stream.
fn length(operation: &Instruction<'_>) -> Result<u64> {
    Ok(match operation {
        Instruction::Write { .. } => 24,
        Instruction::BlockWrite { data, .. } => 16 + 4 * data.len() as u64,
        Instruction::MaskWrite { .. } | Instruction::MaskPoll { .. } | Instruction::MaskPollBusy { .. } => 28,
        Instruction::Noop | Instruction::Preempt { .. } => 4,
        Instruction::Sync { .. } | Instruction::LoadPdi { .. } => 16,
        Instruction::AddressPatch { .. } => 48,
        Instruction::Custom { payload, .. } => 8 + 4 * payload.len() as u64,
        other => bail!("this program does not know the length of {other:?}"),
    })
}

/// Compares the ELF file: the instructions are ours, and it puts each argument's address where we do. Returns the number
/// of places.
fn compare_elf(ours: &InstructionStream<'_>, stream: &[u8], elf: &[u8]) -> Result<usize> {
    let file = ElfFile32::<LittleEndian>::parse(elf).context("the output of aiebu-asm is not an ELF file")?;
    let section = file.section_by_name(INSTRUCTIONS).context("the ELF file has no instructions")?;
    let text = section.data()?;
    if let Some(index) = (0..text.len().max(stream.len())).find(|index| text.get(*index) != stream.get(*index)) {
        bail!("byte {index:#x} of {INSTRUCTIONS} differs from the stream ({} and {} bytes)", text.len(), stream.len());
    }
    let mut expected = places(ours)?;
    let mut found = Vec::new();
    for (offset, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let RelocationTarget::Symbol(index) = relocation.target() else { bail!("a relocation without a symbol") };
        let symbols = file.dynamic_symbol_table().context("relocations without symbols")?;
        let symbol = object::ObjectSymbolTable::symbol_by_index(&symbols, index)?;
        let argument: usize = symbol.name()?.parse().context("a symbol that is not an argument's number")?;
        let argument = argument.checked_sub(FIRST_ARGUMENT).context("a symbol of an argument before ours")?;
        found.push((offset, argument, symbol.size()));
    }
    expected.sort_unstable();
    found.sort_unstable();
    ensure!(expected == found, "addresses of arguments go to {expected:x?} here and to {found:x?} in the ELF file");
    Ok(found.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::format::instructions::{Header, InstructionWriter, Transfer};

    fn sample() -> Vec<u8> {
        let mut writer = InstructionWriter::new(Header { generation: 4, rows: 6, columns: 8, mem_tile_rows: 1 });
        let transfer = Transfer {
            column: 2,
            direction: Direction::StreamToMemory,
            channel: 1,
            descriptor: 3,
            shape: ShimBd::linear(64, 3),
            argument: 1,
            offset: 0x100,
            repeat: 0,
            token: true,
        };
        writer.transfer(&transfer).unwrap().wait(&transfer);
        writer.finish().unwrap()
    }

    #[test]
    fn a_stream_is_written_as_aiebu_prints_it() {
        let bytes = sample();
        let lines = disassembly(&InstructionStream::parse(&bytes).unwrap()).unwrap();
        assert_eq!(lines[0], "XAIE_IO_BLOCKWRITE @0x401d060, [8]");
        assert_eq!(lines[1], "XAIE_IO_BLOCKWRITE.0 0x40");
        assert_eq!(lines[9], "XAIE_IO_CUSTOM_OP_DDR_PATCH @0x401d064, #1, +0x100");
        assert_eq!(lines.last().unwrap(), "XAIE_IO_CUSTOM_OP_TCT R[0]+1, C[2]+1, #DMA_S2MM, 1");
        let printed = lines.join("\n").replace(", ", ",   ").replace(",   ", ", ");
        assert_eq!(compare_lines(&lines, &printed).unwrap(), lines.len());
        let error = compare_lines(&lines, &printed.replace("+0x100", "+0x104")).unwrap_err().to_string();
        assert!(error.contains("line 10") && error.contains("+0x104"), "{error}");
        assert!(compare_lines(&lines, "").unwrap_err().to_string().contains("`nothing` from aiebu-dump"));
    }

    #[test]
    fn the_header_is_compared() {
        let bytes = sample();
        let stream = InstructionStream::parse(&bytes).unwrap();
        let printed = format!(
            "  [2] .ctrltext\t1\nv0.1, gen4\n6x8 M1\n{}B, {}ops\nXAIE_IO_WRITE 1\n",
            bytes.len(),
            stream.operations().count()
        );
        compare_summary(&stream, bytes.len(), &printed).unwrap();
        assert!(compare_summary(&stream, bytes.len(), &printed.replace("gen4", "gen3")).is_err());
    }

    #[test]
    fn arguments_and_their_sizes_are_found() {
        let bytes = sample();
        assert_eq!(places(&InstructionStream::parse(&bytes).unwrap()).unwrap(), [(32, 1, 256)]);
    }
}
