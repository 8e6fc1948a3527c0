//! Which compilers make kernels, in which order.

use aie_driver_mock::Execution;
use aie_hal::{Arch, DeviceUri};
use aie_jit_native::families::has_products;

/// A compiler of this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompilerName {
    /// Machine code, made in this process.
    Native,
    /// Machine code, made by IRON in processes of its own.
    Iron,
    /// Descriptions, which simulated devices execute.
    Reference,
}

impl CompilerName {
    const ALL: [(&str, Self); 3] = [("native", Self::Native), ("iron", Self::Iron), ("reference", Self::Reference)];

    /// Reads a list, separated by commas; `None` when a name is not one of a compiler, or comes twice. Case and space around
    /// names do not matter.
    pub fn parse_list(text: &str) -> Option<Vec<Self>> {
        let mut list = Vec::new();
        for name in text.split(',').map(str::trim) {
            let (_, compiler) = Self::ALL.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
            if list.contains(&compiler) {
                return None;
            }
            list.push(compiler);
        }
        Some(list)
    }

    /// Those of a device when nothing is set: a simulated one gets what its URI asks for. On silicon native kernels are used where
    /// they have products: an NPU that does the rest alone would slow a model down.
    pub fn default_of(uri: &DeviceUri, is_simulated: bool, arch: &Arch) -> Vec<Self> {
        match (is_simulated, Execution::of(uri).unwrap_or_default()) {
            (true, Execution::Emulated) => vec![Self::Native, Self::Reference],
            (true, Execution::Reference | Execution::Plan) => vec![Self::Reference],
            (false, _) if has_products(arch) => vec![Self::Native, Self::Iron],
            (false, _) => vec![Self::Iron],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CompilerName::{self, Iron, Native, Reference};
    use aie_hal::{Arch, ArchRegistry};
    use rstest::rstest;

    #[rstest]
    #[case("native", Some(vec![Native]))]
    #[case("Iron, native,REFERENCE", Some(vec![Iron, Native, Reference]))]
    #[case("native,peano", None)]
    #[case("native,", None)]
    #[case("native,native", None)]
    #[case("", None)]
    fn lists_are_read_in_their_order(#[case] text: &str, #[case] expected: Option<Vec<CompilerName>>) {
        assert_eq!(CompilerName::parse_list(text), expected);
    }

    #[rstest]
    #[case("mock:aie2", true, &[Reference])]
    #[case("mock:aie2?execute=reference", true, &[Reference])]
    #[case("mock:aie2?execute=plan", true, &[Reference])]
    #[case("mock:aie2?execute=emulated", true, &[Native, Reference])]
    #[case("xdna:0", false, &[Native, Iron])]
    fn the_default_follows_the_device(
        #[case] uri: &str,
        #[case] simulated: bool,
        #[case] expected: &[CompilerName],
        #[values("aie2", "aie2p")] generation: &str,
    ) {
        let arch = ArchRegistry::builtin().get(generation).unwrap();
        assert_eq!(CompilerName::default_of(&uri.parse().unwrap(), simulated, &arch), expected);
    }

    /// Nothing is executed that no family has a program for.
    #[test]
    fn a_generation_without_programs_has_what_others_compile() {
        let known = ArchRegistry::builtin().get("aie2p").unwrap();
        let arch = Arch { name: "aie9".into(), instruction_set: None, ..(*known).clone() };
        assert_eq!(CompilerName::default_of(&"xdna:0".parse().unwrap(), false, &arch), [Iron]);
    }
}
