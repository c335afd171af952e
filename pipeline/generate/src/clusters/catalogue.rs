//! Prices and sizes: instance types, GPU models, capacity reservation units, and GPU cards of serverless
//! pods.
//!
//! Instance prices are public on-demand list prices in USD per hour, collected in mid-2026. Azure's price
//! list has no vCPU and memory; those two columns are from Azure's documentation of sizes. If a serverless
//! pod has no public price, ours is at the level of on-demand nodes with the same GPU.

use prorata_schemas::decimal::ONE;
use prorata_schemas::money::UnitPrice;

/// One instance type in one region.
#[derive(Clone, Copy, Debug)]
pub struct Instance {
    /// Name, such as `p5.48xlarge`.
    pub name: &'static str,
    /// Family, such as `p5`.
    pub family: &'static str,
    pub vcpu: u64,
    pub memory_gib: u64,
    /// Number of GPUs, or of other accelerators.
    pub gpus: u64,
    pub gpu_model: Option<&'static str>,
    /// Price per hour.
    pub on_demand: UnitPrice,
    /// Spot price per hour; `None` if none is published.
    pub spot: Option<UnitPrice>,
}

/// A price cut of an instance type, with the price before the cut. [`INSTANCES`] has the price after the cut.
#[derive(Clone, Copy, Debug)]
pub struct PriceCut {
    pub instance: &'static str,
    pub before: UnitPrice,
}

/// The capacity that one GPU of a model adds to a pool.
#[derive(Clone, Copy, Debug)]
pub struct GpuModel {
    pub name: &'static str,
    pub fp16_tflops: u64,
    pub vram_gib: u64,
}

/// Size of one unit that a serverless provider sells, by card and number of GPUs.
#[derive(Clone, Copy, Debug)]
pub struct ReservationUnit {
    pub card: &'static str,
    pub gpus: u64,
    pub vcpu: u64,
    pub memory_gib: u64,
}

/// Price of one GPU of a card for an hour.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    pub name: &'static str,
    pub per_gpu_hour: UnitPrice,
}

/// Price of one vCPU of a serverless pod for an hour.
pub const SERVERLESS_VCPU_HOUR: UnitPrice = usd("0.00936");
/// Price of one GiB of memory of a serverless pod for an hour.
pub const SERVERLESS_GIB_HOUR: UnitPrice = usd("0.004608");
/// Price of a best-effort pod in percent of the default rate.
pub const BEST_EFFORT_PERCENT: i128 = 20;

const fn cpu(
    name: &'static str,
    family: &'static str,
    size: (u64, u64),
    price: &str,
    spot: Option<UnitPrice>,
) -> Instance {
    Instance {
        name,
        family,
        vcpu: size.0,
        memory_gib: size.1,
        gpus: 0,
        gpu_model: None,
        on_demand: usd(price),
        spot,
    }
}

const fn gpu(
    name: &'static str,
    family: &'static str,
    size: (u64, u64),
    gpus: (u64, &'static str),
    price: &str,
    spot: Option<UnitPrice>,
) -> Instance {
    Instance {
        name,
        family,
        vcpu: size.0,
        memory_gib: size.1,
        gpus: gpus.0,
        gpu_model: Some(gpus.1),
        on_demand: usd(price),
        spot,
    }
}

const fn some(price: &str) -> Option<UnitPrice> {
    Some(usd(price))
}

/// Every instance type that the generated clusters use.
pub const INSTANCES: &[Instance] = &[
    gpu("g4dn.xlarge", "g4dn", (4, 16), (1, "t4"), "0.526", None),
    gpu("g4dn.12xlarge", "g4dn", (48, 192), (4, "t4"), "3.912", None),
    gpu("g5.xlarge", "g5", (4, 16), (1, "a10g"), "1.006", None),
    gpu("g5.12xlarge", "g5", (48, 192), (4, "a10g"), "5.672", None),
    gpu("g5.48xlarge", "g5", (192, 768), (8, "a10g"), "16.288", None),
    gpu("g6.xlarge", "g6", (4, 16), (1, "l4"), "0.8048", None),
    gpu("g6.12xlarge", "g6", (48, 192), (4, "l4"), "4.6016", None),
    gpu("g6e.xlarge", "g6e", (4, 32), (1, "l40s"), "1.861", None),
    gpu("g6e.12xlarge", "g6e", (48, 384), (4, "l40s"), "10.49264", None),
    gpu("p4d.24xlarge", "p4d", (96, 1152), (8, "a100"), "21.957642", None),
    gpu("p4de.24xlarge", "p4de", (96, 1152), (8, "a100"), "27.44705", None),
    gpu("p5.48xlarge", "p5", (192, 2048), (8, "h100"), "55.04", None),
    gpu("p5en.48xlarge", "p5en", (192, 2048), (8, "h200"), "63.296", None),
    gpu("p6-b200.48xlarge", "p6-b200", (192, 2048), (8, "b200"), "113.9328", None),
    gpu("inf2.24xlarge", "inf2", (96, 384), (6, "inferentia2"), "6.49063", None),
    gpu("trn1.32xlarge", "trn1", (128, 512), (16, "trainium1"), "21.5", None),
    cpu("m5.xlarge", "m5", (4, 16), "0.192", None),
    cpu("m6i.4xlarge", "m6i", (16, 64), "0.768", None),
    cpu("c6i.8xlarge", "c6i", (32, 64), "1.36", None),
    cpu("r6i.8xlarge", "r6i", (32, 256), "2.016", None),
    cpu("m7i.4xlarge", "m7i", (16, 64), "0.8064", None),
    gpu("a2-highgpu-1g", "a2", (12, 85), (1, "a100"), "3.673385", some("1.92802")),
    gpu("a2-highgpu-8g", "a2", (96, 680), (8, "a100"), "29.38708", some("15.42416")),
    gpu("a2-ultragpu-8g", "a2", (96, 1360), (8, "a100-80gb"), "40.550383123288", some("22.076370410959")),
    gpu("a3-highgpu-8g", "a3", (208, 1872), (8, "h100-80gb"), "88.489999902575", some("50.609540821918")),
    cpu("c2d-highcpu-16", "c2d", (16, 32), "0.599696", some("0.20144")),
    cpu("e2-standard-8", "e2", (8, 32), "0.26804568", some("0.160848")),
    gpu("g2-standard-4", "g2", (4, 16), (1, "l4"), "0.706832255", some("0.397336")),
    gpu("g2-standard-48", "g2", (48, 192), (4, "l4"), "4.001665148", some("2.249632")),
    gpu("g2-standard-96", "g2", (96, 384), (8, "l4"), "8.003330296", some("4.499264")),
    cpu("n2-standard-16", "n2", (16, 64), "0.776944", some("0.36848")),
    cpu("Standard_D16as_v4", "Dasv4", (16, 64), "0.768", None),
    cpu("Standard_D32as_v4", "Dasv4", (32, 128), "1.536", None),
    gpu("Standard_NC24ads_A100_v4", "NCads_A100_v4", (24, 220), (1, "a100-80gb"), "3.673", None),
    gpu("Standard_NC40ads_H100_v5", "NCads_H100_v5", (40, 320), (1, "h100-nvl"), "6.98", None),
    gpu("Standard_NC48ads_A100_v4", "NCads_A100_v4", (48, 440), (2, "a100-80gb"), "7.346", None),
    gpu("Standard_NC96ads_A100_v4", "NCads_A100_v4", (96, 880), (4, "a100-80gb"), "14.692", None),
    gpu("Standard_ND96isr_H100_v5", "NDisr_H100_v5", (96, 1900), (8, "h100"), "98.32", None),
];

/// The price cuts of mid-2025.
pub const PRICE_CUTS: &[PriceCut] = &[
    PriceCut { instance: "p5.48xlarge", before: usd("98.32") },
    PriceCut { instance: "p4d.24xlarge", before: usd("32.77") },
];

/// GPU models of the pools, with dense FP16 TFLOPs.
pub const POOL_GPUS: &[GpuModel] = &[
    GpuModel { name: "l40s", fp16_tflops: 362, vram_gib: 48 },
    GpuModel { name: "l4", fp16_tflops: 121, vram_gib: 24 },
];

const fn unit(card: &'static str, gpus: u64, vcpu: u64, memory_gib: u64) -> ReservationUnit {
    ReservationUnit { card, gpus, vcpu, memory_gib }
}

/// Units of the serverless provider (Alibaba Cloud ACS), by card and number of GPUs.
pub const UNITS: &[ReservationUnit] = &[
    unit("L20", 1, 16, 128),
    unit("L20", 2, 32, 230),
    unit("L20", 4, 64, 460),
    unit("L20", 8, 128, 920),
    unit("T4", 1, 24, 90),
    unit("T4", 2, 48, 180),
    unit("A10", 1, 16, 60),
    unit("A10", 2, 32, 120),
    unit("A10", 4, 64, 240),
    unit("A10", 8, 128, 480),
    unit("P16EN", 1, 10, 80),
    unit("P16EN", 2, 22, 225),
    unit("P16EN", 4, 46, 450),
    unit("P16EN", 8, 92, 900),
    unit("P16EN", 16, 184, 1800),
    unit("GU8TF", 1, 16, 128),
    unit("GU8TF", 2, 46, 230),
    unit("GU8TF", 4, 92, 460),
    unit("GU8TF", 8, 184, 920),
    unit("GU8TEF", 1, 22, 225),
    unit("GU8TEF", 2, 46, 450),
    unit("GU8TEF", 4, 92, 900),
    unit("GU8TEF", 8, 184, 1800),
    unit("L20X", 1, 22, 225),
    unit("L20X", 2, 46, 450),
    unit("L20X", 4, 92, 900),
    unit("L20X", 8, 184, 1800),
];

/// Cards of serverless pods.
pub const CARDS: &[Card] = &[
    Card { name: "T4", per_gpu_hour: usd("0.58") },
    Card { name: "A10", per_gpu_hour: usd("1.26") },
    Card { name: "L20", per_gpu_hour: usd("1.94") },
    Card { name: "P16EN", per_gpu_hour: usd("2.47") },
    Card { name: "GU8TF", per_gpu_hour: usd("5.72") },
    Card { name: "GU8TEF", per_gpu_hour: usd("7.85") },
    Card { name: "L20X", per_gpu_hour: usd("6.93") },
];

/// Returns the instance type of this name.
pub fn instance(name: &str) -> Option<&'static Instance> {
    INSTANCES.iter().find(|instance| instance.name == name)
}

/// Returns the price per hour before the cut; `None` if this instance type had no cut.
pub fn price_before_cut(name: &str) -> Option<UnitPrice> {
    PRICE_CUTS.iter().find(|cut| cut.instance == name).map(|cut| cut.before)
}

/// Returns a price from its number of atoms (10^-12), at most the largest price.
pub const fn price(atoms: i128) -> UnitPrice {
    match UnitPrice::from_atoms(atoms) {
        Some(price) => price,
        None => UnitPrice::MAX,
    }
}

/// Returns `percent` of a price, rounded down in the last place.
pub const fn percent(amount: UnitPrice, percent: i128) -> UnitPrice {
    price(amount.atoms() * percent / 100)
}

/// Parses a price with at most twelve places. An invalid text does not compile.
pub const fn usd(text: &str) -> UnitPrice {
    let bytes = text.as_bytes();
    let (mut atoms, mut places, mut index) = (0_i128, None, 0);
    while index < bytes.len() {
        match bytes[index] {
            b'.' => {
                assert!(places.is_none(), "two points");
                places = Some(0);
            }
            digit => {
                assert!(digit.is_ascii_digit(), "not a digit");
                atoms = atoms * 10 + (digit - b'0') as i128;
                places = match places {
                    Some(count) => Some(count + 1),
                    None => None,
                };
            }
        }
        index += 1;
    }
    let mut scale = match places {
        Some(count) => count,
        None => 0,
    };
    assert!(scale <= 12, "more than twelve places");
    let mut whole = ONE;
    while scale > 0 {
        whole /= 10;
        scale -= 1;
    }
    price(atoms * whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_parsed_to_the_last_place() {
        for text in ["0", "55.04", "0.26804568", "88.489999902575", "21.5"] {
            assert_eq!(usd(text), text.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_cut_lowers_a_price_of_the_catalogue() {
        for cut in PRICE_CUTS {
            assert!(instance(cut.instance).unwrap().on_demand < cut.before, "{}", cut.instance);
        }
    }

    #[test]
    fn every_unit_has_a_card_with_a_price() {
        for unit in UNITS {
            assert!(CARDS.iter().any(|card| card.name == unit.card), "{}", unit.card);
        }
    }
}
