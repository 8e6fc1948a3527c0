//! Which of several streams that do the same takes the least time, by the costs of the generation's file.

use aie_hal::arch::CostModel;
use aie_hal::format::extent::Traffic;
use aie_hal::format::instructions::InstructionStream;

/// A stream, and what passes while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub stream: Vec<u8>,
    /// Cycles of the array, about.
    pub cycles: u64,
    /// What memory gives or takes, whatever is more.
    pub traffic: Traffic,
}

impl Planned {
    /// How long it takes: its operations, and what the array or memory take behind them.
    ///
    /// # Errors
    /// When the stream is none.
    pub fn nanoseconds(&self, cost: &CostModel) -> Result<u64, String> {
        let read = InstructionStream::parse(&self.stream).map_err(|error| error.to_string())?;
        Ok(cost.stream_ns(read.charged_operations(), self.cycles, self.traffic))
    }
}

/// 1, 2, 4 and so on below `most`, and `most`.
pub(crate) fn powers(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |power| Some(2 * power)).take_while(move |power| *power < most).chain([most])
}

/// The stream of the [least](least).
pub(crate) fn cheapest<W>(
    ways: impl Iterator<Item = W>,
    cost: &CostModel,
    make: impl FnMut(W) -> Result<Planned, String>,
) -> Result<Vec<u8>, String> {
    least(ways, cost, make).map(|planned| planned.stream)
}

/// Makes a stream in each of several ways, and gives the one that takes the least time: its operations, and what the array or memory take
/// behind them. Of equal ones it is the first.
///
/// # Errors
/// When there is none; the text of the last way's error.
pub(crate) fn least<W>(
    ways: impl Iterator<Item = W>,
    cost: &CostModel,
    mut make: impl FnMut(W) -> Result<Planned, String>,
) -> Result<Planned, String> {
    let (mut best, mut reason): (Option<(u64, Planned)>, _) = (None, String::new());
    for way in ways {
        let timed = make(way).and_then(|planned| Ok((planned.nanoseconds(cost)?, planned)));
        match timed {
            Ok(found) if best.as_ref().is_none_or(|(least, _)| found.0 < *least) => best = Some(found),
            Ok(_) => {}
            Err(cause) => reason = cause,
        }
    }
    best.map(|(_, planned)| planned).ok_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_hal::ArchRegistry;
    use aie_hal::format::instructions::{Instruction, InstructionWriter};

    /// Operations of each way, and its cycles; 145 ns and 0.625 ns each.
    #[test]
    fn operations_are_weighed_against_cycles() {
        let arch = ArchRegistry::builtin().get("aie2").unwrap();
        let chosen = |ways: &[(usize, u64)]| {
            let made = cheapest(ways.iter(), &arch.cost, |(operations, cycles)| {
                if *operations == 0 {
                    return Err("no way".into());
                }
                let mut writer = InstructionWriter::new(arch.stream_header(4));
                (0..*operations).for_each(|_| _ = writer.push(&Instruction::Noop));
                let stream = writer.finish().map_err(|error| error.to_string())?;
                Ok(Planned { stream, cycles: *cycles, traffic: Traffic::default() })
            });
            made.map(|stream| InstructionStream::parse(&stream).unwrap().operations().count())
        };
        assert_eq!(chosen(&[(100, 4000), (400, 1000)]), Ok(100));
        assert_eq!(chosen(&[(100, 400_000), (400, 100_000)]), Ok(400));
        assert_eq!(chosen(&[(0, 0), (400, 0)]), Ok(400));
        assert_eq!(chosen(&[(0, 0)]), Err("no way".to_owned()));
        assert_eq!(
            [1, 4, 5, 8].map(|most| powers(most).collect::<Vec<_>>()),
            [vec![1], vec![1, 2, 4], vec![1, 2, 4, 5], vec![1, 2, 4, 8]]
        );
    }
}
