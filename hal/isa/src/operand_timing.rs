//! The timing of an instruction with the registers that it has.

use crate::{Bypass, Decoded, Direction, Isa, Register, Timing};

/// A register that an instruction reads or writes, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterPort {
    /// The register.
    pub register: Register,
    /// Read or written.
    pub direction: Direction,
    /// The cycle; 1 is the cycle of issue.
    pub cycle: u8,
    /// The forwarding network it takes part in.
    pub bypass: Option<Bypass>,
    /// The operand it is; None for registers that no operand names.
    pub operand: Option<usize>,
}

/// The timing of an instruction, joined with its registers.
#[derive(Clone, Copy, Debug)]
pub struct Timed<'a> {
    decoded: &'a Decoded<'a>,
    timing: &'a Timing,
}

impl Isa {
    /// The timing of an instruction with the registers it has.
    pub fn timing<'a>(&'a self, decoded: &'a Decoded<'a>) -> Timed<'a> {
        let register = |operand: usize| decoded.values.get(operand).and_then(|value| value.register());
        Timed { decoded, timing: self.timing_with(decoded.instruction, register) }
    }
}

impl<'a> Timed<'a> {
    /// Cycles, units and memory stages.
    pub fn timing(&self) -> &'a Timing {
        self.timing
    }

    /// When each register is read or written: operands first, in their order; numbers are left out.
    pub fn registers(&self) -> impl Iterator<Item = RegisterPort> + 'a {
        let instruction = self.decoded.instruction;
        let operands = self.decoded.values.iter().enumerate().map(|(index, value)| (value.register(), Some(index)));
        let implied = instruction.writes.iter().chain(&instruction.reads).map(|register| (Some(*register), None));
        operands.chain(implied).zip(&self.timing.ports).filter_map(|((register, operand), port)| {
            let (direction, cycle, bypass) = (port.direction, port.cycle, port.bypass);
            Some(RegisterPort { register: register?, direction, cycle, bypass, operand })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn decoded(isa: &'static Isa, text: &str) -> Decoded<'static> {
        let code = isa.assemble(text).unwrap();
        let bundle = isa.decode(&code).unwrap();
        bundle.instructions().next().unwrap().clone()
    }

    /// Figures of the facts: loads 7, loads with upshift 9, integer multiply-accumulate 5 with the accumulator read in 3.
    #[rstest]
    #[case("aie2", "lda r1, [p0, #4]", "r1", Direction::Write, 7)]
    #[case("aie2", "jl #0", "lr", Direction::Write, 4)]
    #[case("aie2", "vmac cm0, cm1, x0, x2, r3", "cm0", Direction::Write, 5)]
    #[case("aie2", "vmac cm0, cm1, x0, x2, r3", "cm1", Direction::Read, 3)]
    #[case("aie2", "st r1, [p0, #4]", "r1", Direction::Read, 1)]
    #[case("aie2p", "lda r1, [p0, #4]", "r1", Direction::Write, 7)]
    #[case("aie2p", "mul r1, r2, r3", "r1", Direction::Write, 2)]
    fn cycles_are_those_of_the_facts(
        #[case] arch: &str,
        #[case] text: &str,
        #[case] name: &str,
        #[case] direction: Direction,
        #[case] cycle: u8,
    ) {
        let isa = Isa::for_arch(arch).unwrap();
        let (decoded, register) = (decoded(isa, text), isa.register_named(name).unwrap());
        let timed = isa.timing(&decoded);
        let port = timed.registers().find(|port| port.register == register && port.direction == direction);
        assert_eq!(port.unwrap().cycle, cycle);
    }

    #[test]
    fn registers_choose_the_write_port() {
        let isa = Isa::aie2();
        let units = |text: &str| {
            let decoded = decoded(isa, text);
            let units = isa.timing(&decoded).timing().units.iter().map(|unit| isa.units()[usize::from(unit.unit)].name);
            units.collect::<Vec<_>>()
        };
        assert!(units("mova p1, #4").contains(&"P_WM") && !units("mova p1, #4").contains(&"M_WM"));
        assert!(units("mova m1, #4").contains(&"M_WM"));
    }
}
