//! Showing what compilers print, when the user wants to see it.

use crate::config::log;
use crate::config::{CompilerOutput, JitConfig};
use crate::settings::GGML_HSA_JIT_STDOUT_REDIRECT;
use aie_jit_iron::WorkerCompiler;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{Write, stderr};

/// Has a compiler's output shown where `config` says, if it says so at all. What cannot be shown there is not lost: failures
/// keep the whole output.
pub fn listen(compiler: WorkerCompiler, config: &JitConfig) -> WorkerCompiler {
    if !config.verbose {
        return compiler;
    }
    match &config.output {
        CompilerOutput::Log => compiler.verbose(lines(log::say)),
        CompilerOutput::StandardError => compiler.verbose(|_, bytes| drop(stderr().write_all(bytes))),
        CompilerOutput::File(path) => match File::options().create(true).append(true).open(path) {
            Ok(file) => compiler.verbose(move |_, bytes| drop((&file).write_all(bytes))),
            Err(cause) => {
                log::error(&format!(
                    "{GGML_HSA_JIT_STDOUT_REDIRECT}: {} cannot be written: {cause}; compilers' output goes to the log",
                    path.display()
                ));
                compiler.verbose(lines(log::say))
            }
        },
    }
}

/// Puts lines together from pieces that begin and end anywhere, and names the kernel before each. Kernels that are compiled at
/// the same time have their own lines.
fn lines(show: impl Fn(&str) + Send + Sync) -> impl Fn(&str, &[u8]) + Send + Sync {
    let open: Mutex<Vec<(String, Vec<u8>)>> = Mutex::default();
    move |kernel, bytes| {
        let mut open = open.lock();
        let at = open.iter().position(|(name, _)| name == kernel).unwrap_or_else(|| {
            open.push((kernel.to_owned(), Vec::new()));
            open.len() - 1
        });
        let rest = &mut open[at].1;
        rest.extend_from_slice(bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let name = if kernel.is_empty() { "compiler" } else { kernel };
            show(&format!("{name}: {}", line.trim_end()));
        }
        if rest.is_empty() {
            open.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn lines_are_put_together_by_kernel() {
        let shown = Arc::new(Mutex::new(Vec::new()));
        let target = Arc::clone(&shown);
        let listener = lines(move |line| target.lock().push(line.to_owned()));
        listener("a", b"one\ntw");
        listener("b", b"other ");
        listener("a", b"o\n");
        listener("b", b"line\xff\n");
        listener("", b"starting\n");
        assert_eq!(*shown.lock(), ["a: one", "a: two", "b: other line\u{fffd}", "compiler: starting"]);
    }
}
