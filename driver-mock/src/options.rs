//! What the path and the parameters of a `mock` URI mean.

use crate::execution::Execution;
use crate::faults::{self, Fault, FaultPlan};
use aie_emulator::Loops;
use aie_hal::environment::parse_bytes;
use aie_hal::{DeviceUri, DriverError};
use std::path::PathBuf;

/// Parameters that a `mock` URI takes.
pub(crate) const PARAMETERS: [&str; 14] = [
    "devices", "coherent", "order", "memory", "heap", "cycles", "loops", "trace", "seed", "seeds", "reloads",
    "residue", "execute", "fault",
];

/// Generation of a URI without a path.
pub(crate) const DEFAULT_ARCH: &str = "aie2p";

/// Most devices of one URI.
const MAX_DEVICES: usize = 64;

const BYTES_ACCEPTED: &str = "a number of bytes of at least 4096, optionally with K, M or G (powers of 1024)";

/// A `mock` URI, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) arch: String,
    /// One of several devices, when the path names it.
    pub(crate) index: Option<usize>,
    pub(crate) devices: usize,
    pub(crate) execution: Execution,
    pub(crate) coherent: bool,
    /// Whether commands between two barriers run in reverse order.
    pub(crate) reverse: bool,
    pub(crate) memory: Option<usize>,
    pub(crate) heap: Option<usize>,
    /// Cycles after which the watchdog ends a compiled kernel.
    pub(crate) cycles: Option<u64>,
    /// What zero-overhead loops of compiled kernels do.
    pub(crate) loops: Loops,
    /// The file that gets the timeline of compiled kernels.
    pub(crate) trace: Option<PathBuf>,
    /// The seed of the order of events in the emulated array.
    pub(crate) seed: Option<u64>,
    /// How many other orders have to give the same.
    pub(crate) seeds: u64,
    /// The seed that draws before which dispatches a context loses the array.
    pub(crate) reloads: Option<u64>,
    /// Whether a PDI finds the array as the one before left it.
    pub(crate) keeps_residue: bool,
    pub(crate) faults: FaultPlan,
}

impl Options {
    /// Understands `uri`.
    ///
    /// # Errors
    /// [`DriverError::InvalidParameter`] for an unknown or malformed parameter, [`DriverError::NoSuchDevice`] for a path that
    /// is not `ARCH` or `ARCH/INDEX`.
    pub(crate) fn parse(uri: &DeviceUri) -> Result<Self, DriverError> {
        uri.check_params(&PARAMETERS)?;
        let choice = |name: &str, yes: &str, no: &str, default: bool| match uri.param(name) {
            None => Ok(default),
            Some(value) if value == yes => Ok(true),
            Some(value) if value == no => Ok(false),
            Some(value) => Err(uri.invalid_param(name, format!("`{value}` is not valid, expected `{yes}` or `{no}`"))),
        };
        let bytes = |name: &str| {
            uri.param(name)
                .map(|value| {
                    let bytes = parse_bytes(value).and_then(|bytes| usize::try_from(bytes).ok());
                    bytes.filter(|bytes| *bytes >= 4096).ok_or_else(|| {
                        uri.invalid_param(name, format!("`{value}` is not valid, expected {BYTES_ACCEPTED}"))
                    })
                })
                .transpose()
        };
        let devices = uri.typed_param("devices", "a number from 1 to 64")?.unwrap_or(1);
        if !(1..=MAX_DEVICES).contains(&devices) {
            return Err(
                uri.invalid_param("devices", format!("{devices} devices; from 1 to {MAX_DEVICES} are possible"))
            );
        }
        let coherent = choice("coherent", "true", "false", true)?;
        let reverse = choice("order", "reverse", "recorded", false)?;
        let execution = Execution::of(uri)?;
        if execution == Execution::Plan && !coherent {
            let reason = "`execute=plan` computes nothing, so that no view of its memory can differ from another";
            return Err(uri.invalid_param("coherent", reason));
        }
        let faults = uri.param("fault").map(faults::parse).transpose();
        let faults = faults.map_err(|why| uri.invalid_param("fault", why.to_string()))?.unwrap_or_default();
        if coherent && faults.others().any(|fault| matches!(fault, Fault::Late | Fault::Stale)) {
            let reason = "`late` and `stale` need `coherent=false`: coherent memory cannot be stale";
            return Err(uri.invalid_param("fault", reason));
        }
        let no_device = |reason: String| DriverError::NoSuchDevice {
            uri: uri.to_string(),
            reason,
            available: match (uri.path().split('/').next().unwrap_or_default(), devices) {
                (arch, 1) => format!("mock:{arch}"),
                (arch, _) => format!("mock:{arch}/0 to mock:{arch}/{}", devices - 1),
            },
        };
        let (arch, index) = match uri.path().split_once('/') {
            None => (uri.path(), None),
            Some((arch, index)) => match index.parse::<usize>() {
                Ok(index) if index < devices => (arch, Some(index)),
                Ok(index) => {
                    return Err(no_device(format!(
                        "there is no device {index} of {devices}; add the parameter `devices={}`",
                        index.saturating_add(1)
                    )));
                }
                Err(_) => return Err(no_device(format!("`{index}` is not the number of a device"))),
            },
        };
        let arch = if arch.is_empty() { DEFAULT_ARCH } else { arch }.to_owned();
        let (memory, heap) = (bytes("memory")?, bytes("heap")?);
        let cycles = uri.typed_param("cycles", "a number of device cycles")?;
        let seed = uri.typed_param("seed", "a number")?;
        let seeds = uri.typed_param("seeds", "a number")?.unwrap_or_default();
        let reloads = uri.typed_param("reloads", "a number")?;
        let keeps_residue = choice("residue", "kept", "cleared", false)?;
        let loops = if choice("loops", "once", "close", false)? { Loops::RunOnce } else { Loops::Close };
        let trace = uri.param("trace").map(PathBuf::from);
        if trace.is_some() && devices > 1 && index.is_none() {
            return Err(uri.invalid_param("trace", "one file for several devices; name one of them in the path"));
        }
        Ok(Self {
            arch,
            index,
            devices,
            execution,
            coherent,
            reverse,
            memory,
            heap,
            cycles,
            loops,
            trace,
            seed,
            seeds,
            reloads,
            keeps_residue,
            faults,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn parse(text: &str) -> Result<Options, DriverError> {
        Options::parse(&DeviceUri::parse(text).unwrap())
    }

    #[test]
    fn understands_everything() {
        let options =
            parse(
                "mock:aie2/1?devices=2&coherent=false&order=reverse&memory=1M&heap=65536&cycles=1000&loops=once&seed=7&seeds=3&reloads=5&residue=kept&fault=stale@1",
            )
            .unwrap();
        assert_eq!((options.arch.as_str(), options.index, options.devices), ("aie2", Some(1), 2));
        assert_eq!((options.coherent, options.reverse), (false, true));
        assert_eq!((options.memory, options.heap), (Some(1 << 20), Some(65536)));
        assert_eq!((options.cycles, options.keeps_residue), (Some(1000), true));
        assert_eq!(options.loops, Loops::RunOnce);
        assert_eq!((options.seed, options.seeds, options.reloads), (Some(7), 3, Some(5)));
        assert!(options.faults.others().eq([&Fault::Stale]));
    }

    #[test]
    fn has_defaults() {
        let options = parse("mock").unwrap();
        assert_eq!((options.arch.as_str(), options.index, options.devices), ("aie2p", None, 1));
        assert_eq!((options.coherent, options.reverse, options.memory, options.heap), (true, false, None, None));
        assert_eq!((options.cycles, options.keeps_residue), (None, false));
        assert_eq!((options.seed, options.seeds, options.reloads), (None, 0, None));
        assert_eq!(options.loops, Loops::Close);
        assert_eq!(options, parse("mock:aie2p?order=recorded&coherent=true").unwrap());
    }

    #[rstest]
    #[case(
        "mock?speed=2",
        "speed",
        "unknown; `mock` takes: devices, coherent, order, memory, heap, cycles, loops, trace, seed, seeds, reloads, residue, execute, fault"
    )]
    #[case("mock?devices=0", "devices", "0 devices")]
    #[case("mock?devices=65", "devices", "from 1 to 64")]
    #[case("mock?devices=two", "devices", "expected a number from 1 to 64")]
    #[case("mock?coherent=maybe", "coherent", "expected `true` or `false`")]
    #[case("mock?order=random", "order", "expected `reverse` or `recorded`")]
    #[case("mock?memory=1", "memory", "of at least 4096")]
    #[case("mock?memory=99999999999G", "memory", "of at least 4096")]
    #[case("mock?execute=code", "execute", "`code` is not valid, expected `reference`, `emulated` or `plan`")]
    #[case("mock?execute=plan&coherent=false", "coherent", "`execute=plan` computes nothing")]
    #[case("mock?heap=", "heap", "expected a number of bytes")]
    #[case("mock?cycles=-1", "cycles", "expected a number of device cycles")]
    #[case("mock?loops=twice", "loops", "expected `once` or `close`")]
    #[case("mock?devices=2&trace=t.json", "trace", "name one of them in the path")]
    #[case("mock?fault=melt@1", "fault", "an entry is timeout@N, abort@N")]
    #[case("mock?fault=stale@1", "fault", "need `coherent=false`")]
    #[case("mock?fault=late@1", "fault", "need `coherent=false`")]
    #[case("mock:aie2p/1", "mock:aie2p/1", "add the parameter `devices=2`")]
    #[case("mock:aie2p/1", "mock:aie2p/1", "available: mock:aie2p")]
    #[case("mock:aie2/4?devices=3", "there is no device 4 of 3", "available: mock:aie2/0 to mock:aie2/2")]
    #[case("mock:aie2p/x", "mock:aie2p/x", "`x` is not the number")]
    fn rejects(#[case] uri: &str, #[case] names: &str, #[case] reason: &str) {
        let message = parse(uri).unwrap_err().to_string();
        assert!(message.contains(names) && message.contains(reason), "{message}");
    }
}
