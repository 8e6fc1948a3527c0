//! The messages between host and worker, version 1: JSON Lines in UTF-8 over the worker's standard input and output.
//!
//! 1. The worker's first line is a [`Greeting`]. After [`Greeting::Unavailable`] it ends.
//! 2. The host sends a [`Request`] per kernel, one at a time.
//! 3. The worker answers each with exactly one [`Reply`].
//! 4. At the end of its standard input the worker ends at once, also in the middle of a compilation, and takes its process
//!    group with it.
//!
//! The worker's standard error is the compiler's output. Nothing but these lines may reach its standard output: before a worker
//! runs anything, it duplicates it for itself and points descriptor 1 at descriptor 2.

use aie_ops::Node;
use serde::{Deserialize, Serialize};

/// The version of the messages.
pub const VERSION: u32 = 1;
/// The longest line that is read, in bytes. Requests and replies are a few kilobytes; causes may be longer.
pub const LINE_BYTES: usize = 1 << 20;

/// The first line of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Greeting {
    /// It is ready.
    Hello {
        /// Version of the messages it speaks.
        protocol: u32,
        /// Its compiler, for messages.
        compiler: String,
        /// See [`KernelCompiler::identity`](aie_ops::compiler::KernelCompiler::identity).
        identity: String,
    },
    /// Its toolchain is missing; the reason.
    Unavailable(String),
}

/// A line of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Compile this kernel.
    Compile(Job),
}

/// A kernel to compile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Comes back with the reply.
    pub id: u64,
    /// Kernel name.
    pub kernel: String,
    /// Name of the generation.
    pub arch: String,
    /// The normalised node.
    pub node: Node,
    /// File of the design, below the designs' folder.
    pub source: String,
    /// Function in it.
    pub function: String,
    /// An existing empty folder, absolute. Everything that is written belongs in it; it is removed after the reply.
    pub work_dir: String,
    /// Whether the compiler should print what it does.
    pub verbose: bool,
}

/// The answer to a [`Job`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is compiled.
    Done {
        /// Of the job.
        id: u64,
        /// The PDI: the name of a file in the job's folder.
        pdi: String,
        /// The instructions, likewise.
        instructions: String,
    },
    /// The kernel does not compile: why.
    Failed(NoKernel),
    /// There is no design for it.
    Unsupported(NoKernel),
    /// It could not be tried: something is missing.
    Unavailable(NoKernel),
}

/// Why there is no kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoKernel {
    /// Of the job.
    pub id: u64,
    /// Why.
    pub cause: String,
}

impl Reply {
    /// Of the job that it answers.
    pub fn id(&self) -> u64 {
        match self {
            Self::Done { id, .. } => *id,
            Self::Failed(no) | Self::Unsupported(no) | Self::Unavailable(no) => no.id,
        }
    }
}

/// A message as its line, with the line's end.
pub(super) fn line(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// An excerpt for messages: readable, and short.
pub(super) fn quote(line: &[u8]) -> String {
    const SHOWN: usize = 120;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    let end = if line.len() > SHOWN { "..." } else { "" };
    format!("\"{}{end}\"", text.trim_end().escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::{DataType, OpParams, Tensor};

    #[test]
    fn greetings_and_replies_are_spelled_as_documented() {
        let hello = r#"{"hello":{"protocol":1,"compiler":"iron","identity":"mlir_aie 1.3.1"}}"#;
        let expected =
            Greeting::Hello { protocol: VERSION, compiler: "iron".into(), identity: "mlir_aie 1.3.1".into() };
        assert_eq!(serde_json::from_str::<Greeting>(hello).unwrap(), expected);
        assert_eq!(line(&expected).unwrap(), format!("{hello}\n").into_bytes());
        let greeting: Greeting = serde_json::from_str(r#"{"unavailable":"no Python"}"#).unwrap();
        assert_eq!(greeting, Greeting::Unavailable("no Python".into()));
        let reply: Reply = serde_json::from_str(r#"{"done":{"id":7,"pdi":"a","instructions":"b"}}"#).unwrap();
        assert_eq!(reply, Reply::Done { id: 7, pdi: "a".into(), instructions: "b".into() });
        for kind in ["failed", "unsupported", "unavailable"] {
            let text = format!(r#"{{"{kind}":{{"id":7,"cause":"c"}}}}"#);
            let reply: Reply = serde_json::from_str(&text).unwrap();
            assert_eq!((reply.id(), serde_json::to_string(&reply).unwrap()), (7, text));
        }
    }

    #[test]
    fn requests_are_spelled_as_documented() {
        let tensor = Tensor::contiguous(DataType::F32, [1024, 1, 1, 1]);
        let job = Job {
            id: 7,
            kernel: "add-1024f32-1024f32-1024f32".into(),
            arch: "aie2p".into(),
            node: Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor), None]),
            source: "binary_ops.py".into(),
            function: "ggml_op_add".into(),
            work_dir: "/abs/dir".into(),
            verbose: false,
        };
        let request = Request::Compile(job);
        let tensor = r#"{"dtype":"f32","ne":[1024,1,1,1],"nb":[4,4096,4096,4096]}"#;
        let expected = format!(
            r#"{{"compile":{{"id":7,"kernel":"add-1024f32-1024f32-1024f32","arch":"aie2p","node":{{"op":"ADD","params":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"output":{tensor},"sources":[{tensor},null]}},"source":"binary_ops.py","function":"ggml_op_add","work_dir":"/abs/dir","verbose":false}}}}"#
        );
        assert_eq!(String::from_utf8(line(&request).unwrap()).unwrap(), expected + "\n");
    }

    #[test]
    fn quotes_are_short_and_printable() {
        assert_eq!(quote(b"\x1b[1mhi\n"), r#""\u{1b}[1mhi""#);
        let long = quote(&[b'x'; 1 << 20]);
        assert!(long.len() < 130 && long.ends_with("...\""), "{long}");
    }
}
