//! Measured usage of pods, as intervals that cover time without gaps or overlaps.
//!
//! A shell reads its sources in rounds. It adds the results of a round to a [`UsageRound`]: the metrics API's
//! `PodMetrics`, the kubelet's resource metrics and DCGM exporter's metrics. [`UsageTiles`] turns the round
//! into one `PodUsage` for each pod, from the previous round to this one. So the intervals of a pod never
//! overlap. A pod that a round did not read has no interval for that round. After a pause, no pod has one:
//! time without a sample counts as no usage.
//!
//! Values of metrics are floats, as in Prometheus; no money is computed from them.

mod prometheus;
mod sources;
mod tiles;

pub use sources::{UsageError, UsageRound};
pub use tiles::{UsageTiles, UsageTotals};
