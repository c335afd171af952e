//! Classes of pods: their share of the load, their sizes and their lifetimes.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::clusters::{
    AZURE_GENERAL, AZURE_GPU, AZURE_SPOT, DEV_GENERAL, DEV_GPU, DEV_SPOT, DEV_TRAIN, GCP_GENERAL, GCP_MIG,
    GCP_POOL, GCP_SPOT, GCP_TRAIN, GCP_TRAIN_SPOT, PROD_GENERAL, PROD_GPU, PROD_MEMORY, PROD_NEURON,
    PROD_POOL,
};
use crate::random::span;
use crate::{HOUR, MINUTE, SECOND};

/// A class of pods.
#[derive(Clone, Copy, Debug)]
pub struct PodClass {
    /// Prefix of workload names.
    pub name: &'static str,
    /// Kind of workload, such as Deployment.
    pub kind: &'static str,
    /// Share of the pods that run at once, in thousandths.
    pub share: u64,
    pub placement: Placement,
    pub lifetime: Lifetime,
    pub namespaces: &'static [&'static str],
    /// Requested vCPU in thousandths.
    pub cpu_millis: &'static [u64],
    /// Requested memory in MiB.
    pub memory_mib: &'static [u64],
    /// Numbers of accelerators that a pod may request.
    pub gpus: &'static [u64],
    /// Numbers of pods that may start together.
    pub gang: &'static [u64],
    pub priority: i32,
}

/// The place where pods of a class run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On nodes of one of these groups.
    Nodes(&'static [usize]),
    /// On MIG slices of the nodes of this group.
    Slices(usize),
    /// On no node, priced by the rate card.
    Serverless,
    /// In a pool, on nodes of one of these groups.
    PoolNodes(&'static [usize]),
    /// In a pool, on no node.
    PoolOnly,
}

/// The lengths of time for which pods of a class run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Replicas follow the time of day. Each is replaced after hours or days.
    Diurnal,
    /// Seconds to days, most of them minutes.
    Batch,
    /// Half an hour to two days.
    Long,
}

/// Mean of [`Lifetime::Batch`] in seconds; it sets the rate of arrivals.
const BATCH_MEAN_SECONDS: u64 = 7_150;
/// Mean of [`Lifetime::Long`] in seconds.
const LONG_MEAN_SECONDS: u64 = 25_000;

/// Lifetimes of batch pods: the percentage of pods, and the bounds in seconds.
const BATCH_LIFETIMES: &[(u32, i64, i64)] = &[
    (30, 3, 60),
    (30, 60, 600),
    (20, 600, 3_600),
    (14, 3_600, 21_600),
    (5, 21_600, 86_400),
    (1, 86_400, 345_600),
];

/// Load of services by hour of the day, in percent of the mean load.
const DAY_CURVE: [u64; 24] = [
    50, 43, 40, 39, 40, 50, 71, 100, 129, 143, 150, 154, 150, 154, 157, 154, 143, 131, 121, 114, 103, 89, 71,
    58,
];

const SMALL: &[u64] = &[100, 250, 500, 500, 1000];
const NONE: &[u64] = &[0];
const ALONE: &[u64] = &[1];

/// All classes. Their shares sum to 1000.
pub const CLASSES: &[PodClass] = &[
    PodClass {
        name: "web",
        kind: "Deployment",
        share: 280,
        placement: Placement::Nodes(&[PROD_GENERAL, PROD_GENERAL, AZURE_GENERAL]),
        lifetime: Lifetime::Diurnal,
        namespaces: &["shop", "search", "payments"],
        cpu_millis: SMALL,
        memory_mib: &[256, 512, 1024, 1536],
        gpus: NONE,
        gang: ALONE,
        priority: 1000,
    },
    PodClass {
        name: "cache",
        kind: "StatefulSet",
        share: 40,
        placement: Placement::Nodes(&[PROD_MEMORY]),
        lifetime: Lifetime::Long,
        namespaces: &["shop", "search"],
        cpu_millis: &[1000, 2000],
        memory_mib: &[16_384, 32_768, 65_536],
        gpus: NONE,
        gang: ALONE,
        priority: 1000,
    },
    PodClass {
        name: "inference",
        kind: "Deployment",
        share: 90,
        placement: Placement::Nodes(&[PROD_GPU, PROD_GPU, AZURE_GPU]),
        lifetime: Lifetime::Diurnal,
        namespaces: &["models", "search"],
        cpu_millis: &[2000, 3500],
        memory_mib: &[8_192, 12_288],
        gpus: &[1],
        gang: ALONE,
        priority: 1000,
    },
    PodClass {
        name: "neuron",
        kind: "Deployment",
        share: 30,
        placement: Placement::Nodes(&[PROD_NEURON]),
        lifetime: Lifetime::Diurnal,
        namespaces: &["models"],
        cpu_millis: &[4000, 8000],
        memory_mib: &[16_384, 32_768],
        gpus: &[1, 2],
        gang: ALONE,
        priority: 1000,
    },
    PodClass {
        name: "etl",
        kind: "Job",
        share: 180,
        placement: Placement::Nodes(&[DEV_SPOT, DEV_SPOT, GCP_GENERAL, GCP_SPOT, DEV_GENERAL]),
        lifetime: Lifetime::Batch,
        namespaces: &["team-a", "team-b", "etl"],
        cpu_millis: &[500, 1000, 2000, 3500],
        memory_mib: &[1024, 2048, 4096, 7168],
        gpus: NONE,
        gang: &[1, 1, 1, 3],
        priority: 0,
    },
    PodClass {
        name: "experiment",
        kind: "Job",
        share: 60,
        placement: Placement::Nodes(&[DEV_GPU, GCP_TRAIN_SPOT]),
        lifetime: Lifetime::Batch,
        namespaces: &["team-a", "team-b", "research"],
        cpu_millis: &[2000, 3500],
        memory_mib: &[8_192, 14_336],
        gpus: &[1],
        gang: ALONE,
        priority: 10,
    },
    PodClass {
        name: "train",
        kind: "PyTorchJob",
        share: 50,
        placement: Placement::Nodes(&[DEV_TRAIN, DEV_TRAIN, GCP_TRAIN, GCP_TRAIN_SPOT, AZURE_SPOT]),
        lifetime: Lifetime::Long,
        namespaces: &["team-a", "research"],
        cpu_millis: &[16_000, 32_000],
        memory_mib: &[131_072, 262_144],
        gpus: &[2, 4, 8],
        gang: &[1, 1, 2],
        priority: 100,
    },
    PodClass {
        name: "notebook",
        kind: "StatefulSet",
        share: 70,
        placement: Placement::Slices(GCP_MIG),
        lifetime: Lifetime::Long,
        namespaces: &["notebooks", "research"],
        cpu_millis: &[1000, 2000, 4000],
        memory_mib: &[4_096, 8_192, 16_384],
        gpus: NONE,
        gang: ALONE,
        priority: 50,
    },
    PodClass {
        name: "acs",
        kind: "Job",
        share: 110,
        placement: Placement::Serverless,
        lifetime: Lifetime::Batch,
        namespaces: &["render", "evaluation"],
        cpu_millis: &[1000, 2000, 4000],
        memory_mib: &[2048, 4096, 8192],
        gpus: NONE,
        gang: &[1, 1, 2],
        priority: 0,
    },
    PodClass {
        name: "fusion",
        kind: "Deployment",
        share: 60,
        placement: Placement::PoolNodes(&[PROD_POOL, PROD_POOL, GCP_POOL]),
        lifetime: Lifetime::Diurnal,
        namespaces: &["models", "notebooks"],
        cpu_millis: &[500, 1000, 2000],
        memory_mib: &[2048, 4096],
        gpus: &[0, 1, 1, 2],
        gang: ALONE,
        priority: 500,
    },
    PodClass {
        name: "remote",
        kind: "Job",
        share: 30,
        placement: Placement::PoolOnly,
        lifetime: Lifetime::Batch,
        namespaces: &["evaluation"],
        cpu_millis: &[500],
        memory_mib: &[1024],
        gpus: &[1, 2],
        gang: ALONE,
        priority: 0,
    },
];

impl PodClass {
    /// Returns the mean number of gangs that start per minute, in millionths, if `pods` pods of all classes
    /// run at once. Returns 0 for a class whose replicas follow the time of day.
    pub fn arrivals_per_minute(&self, pods: u64) -> u64 {
        let mean_seconds = match self.lifetime {
            Lifetime::Diurnal => return 0,
            Lifetime::Batch => BATCH_MEAN_SECONDS,
            Lifetime::Long => LONG_MEAN_SECONDS,
        };
        let count = u64::try_from(self.gang.len()).unwrap_or(1);
        let per_gang = 1000 * self.gang.iter().sum::<u64>() / count.max(1);
        pods * self.share * 60_000_000 / (mean_seconds * per_gang.max(1))
    }
}

impl Lifetime {
    /// Draws the lifetime of one pod, in microseconds.
    pub fn draw(self, rng: &mut ChaCha8Rng) -> i64 {
        match self {
            Self::Diurnal => span(rng, 2 * HOUR, 60 * HOUR),
            Self::Long => match rng.random_range(0..4_u32) {
                0..=2 => span(rng, 30 * MINUTE, 6 * HOUR),
                _ => span(rng, 6 * HOUR, 30 * HOUR),
            },
            Self::Batch => {
                let mut draw = rng.random_range(0..100_u32);
                for &(weight, low, high) in BATCH_LIFETIMES {
                    if draw < weight {
                        return span(rng, low * SECOND, high * SECOND);
                    }
                    draw -= weight;
                }
                MINUTE
            }
        }
    }
}

/// Returns the load of services at this time, in hundredths of a percent of the mean load. Between the hours
/// of the curve, the load is linear.
pub fn day_load(micros: i64) -> u64 {
    let minute = u64::try_from(micros.div_euclid(MINUTE).rem_euclid(24 * 60)).unwrap_or(0);
    let at = |hour: u64| usize::try_from(hour % 24).ok().and_then(|hour| DAY_CURVE.get(hour)).copied();
    let (from, to) = (at(minute / 60).unwrap_or(100), at(minute / 60 + 1).unwrap_or(100));
    (from * (60 - minute % 60) + to * (minute % 60)) * 100 / 60
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn shares_sum_to_the_whole_load() {
        assert_eq!(CLASSES.iter().map(|class| class.share).sum::<u64>(), 1000);
    }

    #[test]
    fn the_day_curve_has_a_mean_of_one_hundred_percent() {
        let total: u64 = DAY_CURVE.iter().sum();
        assert!((2_330..=2_470).contains(&total), "{total}");
    }

    #[test]
    fn lifetimes_have_the_means_that_set_the_rate_of_arrivals() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (lifetime, mean) in [(Lifetime::Batch, BATCH_MEAN_SECONDS), (Lifetime::Long, LONG_MEAN_SECONDS)] {
            let total: i64 = (0..100_000).map(|_| lifetime.draw(&mut rng) / SECOND).sum();
            let drawn = u64::try_from(total / 100_000).unwrap();
            assert!(drawn.abs_diff(mean) * 10 < mean, "{lifetime:?}: {drawn} s");
        }
    }
}
