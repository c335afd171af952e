//! Kubernetes quantities: the text as delivered, and its amount in whole bytes or thousandths.
//!
//! `memory`, `ephemeral-storage` and `tensor-fusion.ai/vram` count bytes, every other resource thousandths of a
//! unit. Both round up, as Kubernetes does (`k8s.io/apimachinery`, `resource.Quantity`).

use serde::{Deserialize, Serialize};

use crate::Text;

/// Resource name of CPU time.
pub const CPU: &str = "cpu";
/// Resource name of memory.
pub const MEMORY: &str = "memory";
/// Resource name of local disk.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Resource name of NVIDIA GPUs.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// Resource name of FP16 TFLOPs, per GPU.
pub const TFLOPS: &str = "tensor-fusion.ai/tflops";
/// Resource name of VRAM, per GPU.
pub const VRAM: &str = "tensor-fusion.ai/vram";
/// Resource name of GPU memory in GB, computed by the engine and never read from requests.
pub const GPU_MEMORY: &str = "nos.nebuly.com/gpu-memory";

/// Largest amount in units of the resource, as in Kubernetes: 2^63 - 1.
pub const UNITS_MAX: u128 = i64::MAX as u128;

/// A quantity as delivered, with its amount. Never negative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// As the producer wrote it; part of the canonical body.
    pub text: Text,
    /// Whole bytes, or thousandths of a unit, by the resource's name; rounded up.
    pub amount: u128,
}

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form that Kubernetes defines.
    #[error("'{0}' is not a Kubernetes quantity such as 500m, 16, 100Gi or 1e3")]
    Syntax(String),
    /// Below zero.
    #[error("'{0}' is negative; quantities are zero or more")]
    Negative(String),
    /// Above 2^63 - 1 units.
    #[error("'{0}' is above 2^63 - 1 units, the largest Kubernetes quantity")]
    TooLarge(String),
}

/// Whether amounts of this resource are whole bytes; all others are thousandths.
pub fn counts_bytes(resource: &str) -> bool {
    matches!(resource, MEMORY | EPHEMERAL_STORAGE | VRAM)
}
