//! The messages, as they are written. The types mirror those of the agent trait, so that a change of the trait does not
//! change the protocol unseen.

use super::frame::{FrameError, HEADER};
use crate::agent::{AgentCounts, AgentError, AgentInfo, Argument, Chain, ContextId, Packet, PacketInterface, PdiRef};
use aie_hal::MemoryPool;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Version of the protocol. Both sides must speak the same.
pub const PROTOCOL_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"AIEHOST\0";

/// A request of the client. `id` is never used twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub id: u64,
    pub agent: u32,
    pub call: Call,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Call {
    Allocate {
        pool: Pool,
        bytes: u64,
    },
    Free {
        allocation: u64,
    },
    CreateContext {
        pdis: Vec<(u64, u64)>,
    },
    DestroyContext {
        context: u64,
    },
    Submit {
        context: u64,
        packets: Vec<WirePacket>,
        arguments: Vec<(u64, u32)>,
    },
    /// The client is done; there is no answer, and nothing follows.
    Bye,
}

impl Call {
    /// Name for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Allocate { .. } => "allocate",
            Self::Free { .. } => "free",
            Self::CreateContext { .. } => "create_context",
            Self::DestroyContext { .. } => "destroy_context",
            Self::Submit { .. } => "submit",
            Self::Bye => "bye",
        }
    }

    pub fn submit(context: ContextId, chain: &Chain) -> Self {
        Self::Submit {
            context: context.0,
            packets: chain.packets.iter().map(WirePacket::from).collect(),
            arguments: chain.arguments.iter().map(|a| (a.address, a.bytes)).collect(),
        }
    }
}

/// What became of a request. It carries the agent's totals, so that asking for them needs no request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Response {
    pub id: u64,
    pub counts: Counts,
    pub result: Result<Answer, Fault>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// A descriptor comes with it; the memory starts at `offset` of it.
    Allocated {
        allocation: u64,
        length: u64,
        device_address: u64,
        offset: u64,
    },
    Context(u64),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Pool {
    Data,
    DeviceHeap,
}

impl From<MemoryPool> for Pool {
    fn from(pool: MemoryPool) -> Self {
        match pool {
            MemoryPool::Data => Self::Data,
            MemoryPool::DeviceHeap => Self::DeviceHeap,
        }
    }
}

impl From<Pool> for MemoryPool {
    fn from(pool: Pool) -> Self {
        match pool {
            Pool::Data => Self::Data,
            Pool::DeviceHeap => Self::DeviceHeap,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WirePacket {
    pdi_index: u64,
    pdi: (u64, u64),
    instructions: u64,
    instruction_bytes: u64,
    arguments: (u64, u64),
}

impl From<&Packet> for WirePacket {
    fn from(packet: &Packet) -> Self {
        Self {
            pdi_index: packet.pdi_index as u64,
            pdi: (packet.pdi.address, packet.pdi.bytes as u64),
            instructions: packet.instructions,
            instruction_bytes: packet.instruction_bytes as u64,
            arguments: (packet.arguments.0 as u64, packet.arguments.1 as u64),
        }
    }
}

fn size(value: u64) -> Result<usize, FrameError> {
    usize::try_from(value).map_err(|_| FrameError::Malformed(format!("{value} is no size here")))
}

/// The PDIs of a request.
pub(super) fn pdis(pdis: &[(u64, u64)]) -> Result<Vec<PdiRef>, FrameError> {
    pdis.iter().map(|&(address, bytes)| Ok(PdiRef { address, bytes: size(bytes)? })).collect()
}

/// Refills `chain` from a request, after checking that every packet's arguments exist.
pub(super) fn read_chain(
    packets: &[WirePacket],
    arguments: &[(u64, u32)],
    chain: &mut Chain,
) -> Result<(), FrameError> {
    chain.clear();
    chain.arguments.extend(arguments.iter().map(|&(address, bytes)| Argument { address, bytes }));
    for (index, packet) in packets.iter().enumerate() {
        let (start, count) = (size(packet.arguments.0)?, size(packet.arguments.1)?);
        if start.checked_add(count).is_none_or(|end| end > arguments.len()) {
            return Err(FrameError::Malformed(format!(
                "packet {index} names arguments {start} and {count} more of a chain that has {}",
                arguments.len()
            )));
        }
        chain.packets.push(Packet {
            pdi_index: size(packet.pdi_index)?,
            pdi: PdiRef { address: packet.pdi.0, bytes: size(packet.pdi.1)? },
            instructions: packet.instructions,
            instruction_bytes: size(packet.instruction_bytes)?,
            arguments: (start, count),
        });
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    doorbells: u64,
    contexts_created: u64,
    allocations: u64,
}

impl From<AgentCounts> for Counts {
    fn from(c: AgentCounts) -> Self {
        Self { doorbells: c.doorbells, contexts_created: c.contexts_created, allocations: c.allocations }
    }
}

impl Counts {
    /// Adds what is newer: answers of two threads may arrive in any order, and totals only grow.
    pub fn merge_into(self, totals: &mut AgentCounts) {
        totals.doorbells = totals.doorbells.max(self.doorbells);
        totals.contexts_created = totals.contexts_created.max(self.contexts_created);
        totals.allocations = totals.allocations.max(self.allocations);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fault {
    OutOfMemory(String),
    ContextsExhausted(String),
    Timeout { command: Option<u64>, reason: String },
    Failed { command: Option<u64>, reason: String },
    Lost(String),
    Unsupported(String),
}

impl From<AgentError> for Fault {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::OutOfMemory(reason) => Self::OutOfMemory(reason),
            AgentError::ContextsExhausted(reason) => Self::ContextsExhausted(reason),
            AgentError::Timeout { command, reason } => Self::Timeout { command: command.map(|c| c as u64), reason },
            AgentError::Failed { command, reason } => Self::Failed { command: command.map(|c| c as u64), reason },
            AgentError::Lost(reason) => Self::Lost(reason),
            AgentError::Unsupported(reason) => Self::Unsupported(reason),
        }
    }
}

impl From<Fault> for AgentError {
    fn from(fault: Fault) -> Self {
        let index = |command: Option<u64>| command.and_then(|c| usize::try_from(c).ok());
        match fault {
            Fault::OutOfMemory(reason) => Self::OutOfMemory(reason),
            Fault::ContextsExhausted(reason) => Self::ContextsExhausted(reason),
            Fault::Timeout { command, reason } => Self::Timeout { command: index(command), reason },
            Fault::Failed { command, reason } => Self::Failed { command: index(command), reason },
            Fault::Lost(reason) => Self::Lost(reason),
            Fault::Unsupported(reason) => Self::Unsupported(reason),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Info {
    name: String,
    library: Vec<u8>,
    runtime: String,
    kernel_dispatch: bool,
    data_bytes: u64,
    data_granule: u64,
    heap_bytes: u64,
}

impl From<&AgentInfo> for Info {
    fn from(info: &AgentInfo) -> Self {
        Self {
            name: info.name.clone(),
            library: info.library.as_os_str().as_bytes().to_vec(),
            runtime: info.runtime.clone(),
            kernel_dispatch: info.interface == PacketInterface::KernelDispatch,
            data_bytes: info.data_bytes,
            data_granule: info.data_granule as u64,
            heap_bytes: info.heap_bytes as u64,
        }
    }
}

impl TryFrom<Info> for AgentInfo {
    type Error = FrameError;

    fn try_from(info: Info) -> Result<Self, FrameError> {
        Ok(Self {
            name: info.name,
            library: PathBuf::from(OsString::from_vec(info.library)),
            runtime: info.runtime,
            interface: if info.kernel_dispatch { PacketInterface::KernelDispatch } else { PacketInterface::Ert },
            data_bytes: info.data_bytes,
            data_granule: size(info.data_granule)?,
            heap_bytes: size(info.heap_bytes)?,
        })
    }
}

/// Writes `message` into `frame`, behind the room for its header.
pub(super) fn encode<T: Serialize>(message: &T, frame: &mut Vec<u8>) -> Result<(), FrameError> {
    frame.clear();
    frame.resize(HEADER, 0);
    append(message, frame)
}

fn append<T: Serialize>(message: &T, frame: &mut Vec<u8>) -> Result<(), FrameError> {
    *frame = postcard::to_extend(message, std::mem::take(frame)).map_err(|e| FrameError::Malformed(e.to_string()))?;
    Ok(())
}

/// Reads a message that fills the whole payload.
pub(super) fn decode<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(FrameError::Malformed(format!("{} bytes are left behind its message", rest.len()))),
        Err(error) => Err(FrameError::Malformed(format!("not a message of {} bytes: {error}", payload.len()))),
    }
}

/// The first frame of the client: magic and version. Its form never changes, so that any two versions understand each other
/// well enough to say that they do not.
pub(super) fn encode_hello(version: u32, frame: &mut Vec<u8>) {
    frame.clear();
    frame.resize(HEADER, 0);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&version.to_le_bytes());
}

/// The first frame of the server: magic, its version, and, for those who speak it, its agents or why there are none.
pub(super) fn encode_welcome(agents: &Result<Vec<Info>, String>, frame: &mut Vec<u8>) -> Result<(), FrameError> {
    encode_hello(PROTOCOL_VERSION, frame);
    append(agents, frame)
}

/// Version and remainder of either first frame.
pub(super) fn split_hello(payload: &[u8]) -> Result<(u32, &[u8]), FrameError> {
    let version = payload.strip_prefix(&MAGIC).and_then(|rest| rest.split_first_chunk::<4>());
    match version {
        Some((version, rest)) => Ok((u32::from_le_bytes(*version), rest)),
        None => Err(FrameError::Malformed("it does not start with the greeting of this protocol".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn chain() -> Chain {
        let packet = |pdi_index, arguments| Packet {
            pdi_index,
            pdi: PdiRef { address: 0x1000, bytes: 64 },
            instructions: 0x2000,
            instruction_bytes: 128,
            arguments,
        };
        let argument = |address| Argument { address, bytes: 4096 };
        Chain { packets: vec![packet(0, (0, 2)), packet(1, (2, 1))], arguments: [1, 2, 3].map(argument).to_vec() }
    }

    fn round_trip<T: Serialize + for<'a> Deserialize<'a>>(message: &T) -> T {
        let mut frame = Vec::new();
        encode(message, &mut frame).unwrap();
        decode(&frame[HEADER..]).unwrap()
    }

    #[test]
    fn a_chain_arrives_as_it_was() {
        let request = Request { id: 7, agent: 1, call: Call::submit(ContextId(9), &chain()) };
        let Call::Submit { context, packets, arguments } = round_trip(&request).call else { panic!("no submit") };
        let mut arrived = Chain::default();
        read_chain(&packets, &arguments, &mut arrived).unwrap();
        assert_eq!((context, arrived), (9, chain()));
    }

    #[rstest]
    #[case::behind_the_end((2, 2))]
    #[case::far_away((usize::MAX, 0))]
    #[case::overflow((1, usize::MAX))]
    fn arguments_that_do_not_exist_are_refused(#[case] arguments: (usize, usize)) {
        let mut wrong = chain();
        wrong.packets[1].arguments = arguments;
        let Call::Submit { packets, arguments, .. } = Call::submit(ContextId(1), &wrong) else { panic!("no submit") };
        let error = read_chain(&packets, &arguments, &mut Chain::default()).unwrap_err().to_string();
        assert!(error.contains("packet 1 names arguments"), "{error}");
    }

    #[rstest]
    #[case(AgentError::OutOfMemory("m".into()))]
    #[case(AgentError::ContextsExhausted("c".into()))]
    #[case(AgentError::Timeout { command: Some(3), reason: "t".into() })]
    #[case(AgentError::Failed { command: None, reason: "f".into() })]
    #[case(AgentError::Lost("l".into()))]
    #[case(AgentError::Unsupported("u".into()))]
    fn every_error_arrives_as_it_was(#[case] error: AgentError) {
        assert_eq!(AgentError::from(round_trip(&Fault::from(error.clone()))), error);
    }

    #[rstest]
    fn who_an_agent_is_arrives_as_it_was(
        #[values(PacketInterface::Ert, PacketInterface::KernelDispatch)] interface: PacketInterface,
    ) {
        let info = AgentInfo {
            name: "aie2p".into(),
            library: PathBuf::from(OsString::from_vec(b"/lib/\xff.so".to_vec())),
            runtime: "1.15".into(),
            interface,
            data_bytes: 1 << 40,
            data_granule: 4096,
            heap_bytes: 64 << 20,
        };
        assert_eq!(AgentInfo::try_from(round_trip(&Info::from(&info))), Ok(info));
    }

    #[rstest]
    #[case::empty(b"")]
    #[case::cut(b"AIEHOST\0\x01")]
    #[case::other(b"GET / HTTP/1.1\r\n")]
    fn other_greetings_are_refused(#[case] payload: &[u8]) {
        assert!(split_hello(payload).unwrap_err().to_string().contains("greeting"));
    }

    #[test]
    fn bytes_behind_a_message_are_refused() {
        let mut frame = Vec::new();
        encode(&Answer::Done, &mut frame).unwrap();
        frame.push(0);
        let error = decode::<Answer>(&frame[HEADER..]).unwrap_err().to_string();
        assert!(error.contains("1 bytes are left"), "{error}");
    }
}
