//! Measured use of pods, as intervals that tile time.
//!
//! A shell reads its sources in rounds. What it has read of a round goes into a [`UsageRound`]: the metrics
//! API's `PodMetrics`, the kubelet's resource metrics, DCGM exporter's metrics. [`UsageTiles`] makes of it
//! one `PodUsage` for each pod, from the round before to this one. So intervals of a pod never overlap. A pod
//! that a round did not read has no interval there, and neither has any pod after a pause: time without a
//! sample counts as no use.
//!
//! Values of metrics are floats, as Prometheus has them; money is not made of them.

mod prometheus;
mod sources;
mod tiles;

pub use sources::{UsageError, UsageRound};
pub use tiles::{UsageTiles, UsageTotals};
