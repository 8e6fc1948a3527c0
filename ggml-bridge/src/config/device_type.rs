//! As what llama.cpp sees the devices.
//!
//! What llama.cpp (0.7, observed with every type) makes of a device's type:
//!
//! - A **GPU** always gets layers, beside other GPUs, by free memory.
//! - An **integrated GPU** gets all layers, but only on a machine without a GPU.
//! - An **accelerator** never gets layers unless it is named with `--device`; its buffers come first for weights on the
//!   CPU side, and the scheduler gives it the nodes it supports, after GPUs and before the CPU.
//!
//! So the choice is: **integrated GPU** where there is no other GPU. Then nothing but `GGML_BACKEND_PATH` is needed
//! for the whole model, weights, KV cache and all, to be on the NPU, and a decoded token is one graph split. Where another GPU,
//! discrete or integrated, is registered, the type is **accelerator**: the GPU keeps its layers, and the user asks
//! for the NPU with `--device HSA0`, which makes it a layer device whatever its type. `GGML_HSA_DEVICE_TYPE` overrides both.
//!
//! ggml loads the file in `GGML_BACKEND_PATH` after all other backends, so the others are known when llama.cpp first asks.
//! A GPU and an integrated GPU must report their memory: llama.cpp divides by it. It also divides by zero when such a device
//! has host-visible buffers and less free memory than the margin of its `--fit` (1 GiB unless set), because it counts those
//! buffers as the CPU's. So a device with less than [`FIT_MEMORY`] in all is an accelerator, and the others never report less
//! than that as free; an allocation that does not fit fails with its own message.

/// Least free memory in bytes that llama.cpp's `--fit` sees: twice its default margin.
pub const FIT_MEMORY: u64 = 2 << 30;

/// The types a device can have, with ggml's numbers (`enum ggml_backend_dev_type`).
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceType {
    /// Discrete GPU.
    Gpu = 1,
    /// Integrated GPU, shares host memory.
    Igpu = 2,
    /// Accelerator beside the CPU.
    Accel = 3,
}

impl DeviceType {
    /// Reads a name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "igpu" => Some(Self::Igpu),
            "gpu" => Some(Self::Gpu),
            "accel" => Some(Self::Accel),
            _ => None,
        }
    }

    /// The type for a machine whose other devices have the types `others` (ggml's numbers), when ours have at least `memory`
    /// bytes.
    pub fn choose(forced: Option<Self>, others: &[i32], memory: u64) -> Self {
        let is_gpu = |kind: &i32| [Self::Gpu as i32, Self::Igpu as i32].contains(kind);
        let beside = others.iter().any(is_gpu) || memory < FIT_MEMORY;
        forced.unwrap_or(if beside { Self::Accel } else { Self::Igpu })
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceType::{self, Accel, Gpu, Igpu};
    use super::FIT_MEMORY;
    use rstest::rstest;

    #[rstest]
    #[case(None, &[], Igpu)]
    #[case(None, &[0, 3], Igpu)]
    #[case(None, &[0, 1], Accel)]
    #[case(None, &[2, 0], Accel)]
    #[case(Some(Gpu), &[0, 1], Gpu)]
    #[case(Some(Accel), &[0], Accel)]
    fn a_gpu_keeps_its_layers(
        #[case] forced: Option<DeviceType>,
        #[case] others: &[i32],
        #[case] expected: DeviceType,
    ) {
        assert_eq!(DeviceType::choose(forced, others, FIT_MEMORY), expected);
    }

    #[test]
    fn a_device_with_little_memory_gets_no_layers() {
        assert_eq!(DeviceType::choose(None, &[], FIT_MEMORY - 1), Accel);
        assert_eq!(DeviceType::choose(Some(Igpu), &[], FIT_MEMORY - 1), Igpu);
    }
}
