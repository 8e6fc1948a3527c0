//! What repeats the innermost loops of native kernels.

use aie_jit_native::codegen::LoopForm;

/// Which form of loops native kernels have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NativeLoops {
    /// On an NPU what the self-test of hardware loops shows; else hardware loops.
    #[default]
    Auto,
    /// This one, without a test.
    Always(LoopForm),
}

impl NativeLoops {
    /// Reads a value.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [
            ("auto", Self::Auto),
            ("hardware", Self::Always(LoopForm::Hardware)),
            ("jnz", Self::Always(LoopForm::Jnz)),
        ];
        all.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| value)
    }

    /// The form where nothing is tested.
    pub fn untested(self) -> LoopForm {
        match self {
            Self::Auto => LoopForm::default(),
            Self::Always(form) => form,
        }
    }
}
