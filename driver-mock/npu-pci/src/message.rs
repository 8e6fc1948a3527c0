//! What the kernel driver and the firmware say to each other: the messages with the bytes of their payloads, and reading and writing
//! these. Source: `aie2_msg_priv.h` of Linux 7.2. The kernel driver takes an answer only with exactly the bytes it expects.

use aie_driver_mock::npu::status;

#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub opcode: u32,
    /// Its name without `MSG_OP_`.
    pub name: &'static str,
    /// Bytes of the question.
    pub request: usize,
    /// Bytes of the answer.
    pub response: usize,
    /// Whether it is for the channel of a context, not for the management.
    pub in_context: bool,
    /// Bytes of the answer in front of its status.
    status_at: usize,
}

const fn kind(opcode: u32, name: &'static str, request: usize, response: usize, in_context: bool) -> Kind {
    Kind { opcode, name, request, response, in_context, status_at: 0 }
}

macro_rules! kinds {
    ($($name:ident = $opcode:literal, $request:literal, $response:literal, $in_context:ident;)*) => {
        $(
            #[doc = concat!("`MSG_OP_", stringify!($name), "`")]
            pub static $name: Kind = kind($opcode, stringify!($name), $request, $response, $in_context);
        )*
        /// All that have their status first.
        static KINDS: &[&Kind] = &[$(&$name),*];
    };
}

// Opcode, bytes of question and answer, whether it is for a context.
kinds! {
    CREATE_CONTEXT = 0x2, 28, 76, false;
    DESTROY_CONTEXT = 0x3, 4, 4, false;
    SYNC_BO = 0x7, 24, 4, true;
    EXECUTE_BUFFER_CF = 0xc, 80, 4, true;
    QUERY_COL_STATUS = 0xd, 20, 8, false;
    QUERY_AIE_TILE_INFO = 0xe, 4, 48, false;
    QUERY_AIE_VERSION = 0xf, 4, 8, false;
    EXEC_DPU = 0x10, 160, 4, true;
    CONFIG_CU = 0x11, 132, 4, true;
    CHAIN_EXEC_BUFFER_CF = 0x12, 24, 12, true;
    CHAIN_EXEC_DPU = 0x13, 24, 12, true;
    CONFIG_DEBUG_BO = 0x14, 20, 4, true;
    CHAIN_EXEC_NPU = 0x18, 24, 12, true;
    SUSPEND = 0x101, 4, 4, false;
    RESUME = 0x102, 4, 4, false;
    ASSIGN_MGMT_PASID = 0x103, 4, 4, false;
    INVOKE_SELF_TEST = 0x104, 4, 4, false;
    MAP_HOST_BUFFER = 0x106, 20, 4, false;
    GET_FIRMWARE_VERSION = 0x108, 4, 20, false;
    SET_RUNTIME_CONFIG = 0x10a, 12, 4, false;
    GET_RUNTIME_CONFIG = 0x10b, 4, 12, false;
    REGISTER_ASYNC_EVENT = 0x10c, 12, 8, false;
    UPDATE_PROPERTY = 0x113, 20, 4, false;
    GET_APP_HEALTH = 0x114, 16, 36, false;
    ADD_HOST_BUFFER = 0x115, 20, 4, false;
    GET_DEV_REVISION = 0x117, 4, 12, false;
    GET_PROTOCOL_VERSION = 0x301, 4, 12, false;
}

/// The one that has its status last.
pub static GET_TELEMETRY: Kind = Kind { status_at: 12, ..kind(0x4, "GET_TELEMETRY", 16, 16, false) };

impl Kind {
    pub fn of(opcode: u32) -> Option<&'static Self> {
        Self::all().find(|kind| kind.opcode == opcode)
    }

    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::all().find(|kind| kind.name == name)
    }

    pub fn all() -> impl Iterator<Item = &'static Self> {
        KINDS.iter().copied().chain([&GET_TELEMETRY])
    }

    /// An answer with this status and nothing else.
    pub fn answer(&self, status: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.response];
        bytes[self.status_at..self.status_at + 4].copy_from_slice(&status.to_le_bytes());
        bytes
    }

    /// A good answer, with `parts` behind the status.
    pub fn success(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = self.answer(status::SUCCESS);
        let mut at = self.status_at + 4;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }
}

/// Reads the payload of a question, whose length was checked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a>(pub &'a [u8]);

impl Request<'_> {
    pub fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    pub fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_le_bytes(bytes.unwrap_or_default())
    }

    pub fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// All words from `at` on.
    pub fn words(&self, at: usize) -> Vec<u32> {
        (at..self.0.len()).step_by(4).map(|at| self.word(at)).collect()
    }
}

pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_are_found_and_distinguished() {
        assert_eq!(Kind::of(0x18), Some(&CHAIN_EXEC_NPU));
        assert_eq!(Kind::by_name("GET_TELEMETRY"), Some(&GET_TELEMETRY));
        assert_eq!((Kind::of(0x999), Kind::by_name("PING")), (None, None));
        assert_eq!(Kind::all().map(|kind| kind.opcode).collect::<BTreeSet<_>>().len(), Kind::all().count());
        assert!(Kind::all().all(|kind| kind.request % 4 == 0 && kind.response % 4 == 0));
    }

    #[test]
    fn answers_have_their_status_where_it_belongs() {
        assert_eq!(DESTROY_CONTEXT.answer(5), [5, 0, 0, 0]);
        assert_eq!(GET_TELEMETRY.answer(5)[12..], [5, 0, 0, 0]);
        assert_eq!(QUERY_AIE_VERSION.success(&[&[2, 0], &[1, 0]]), [0, 0, 0, 0, 2, 0, 1, 0]);
    }

    #[test]
    fn requests_are_read_within_their_bounds() {
        let request = Request(&[1, 2, 3, 4, 5, 0, 0, 0, 9]);
        assert_eq!((request.word(0), request.long(0), request.byte(8)), (0x0403_0201, 0x5_0403_0201, 9));
        assert_eq!((request.word(8), request.byte(99)), (0, 0));
    }
}
