//! Random choices, and the degree to which the objects of one history agree.

use std::str::FromStr;

use prorata_schemas::Text;
use prorata_schemas::event::Quantities;
use prorata_schemas::ids::ClusterId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::quantity::Quantity;
use prorata_schemas::time::{HOUR_MICROS, Timestamp};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

pub(super) const NODES: [&str; 3] = ["n1", "n2", "n3"];
pub(super) const PODS: [&str; 5] = ["p1", "p2", "p3", "p4", "p5"];
pub(super) const NAMESPACES: [&str; 3] = ["a", "b", "x"];
pub(super) const RESERVATIONS: [&str; 3] = ["r1", "r2", "r3"];
pub(super) const COMMITMENTS: [&str; 3] = ["k1", "k2", "k3"];
pub(super) const QUOTAS: [&str; 3] = ["q1", "q2", "q3"];
pub(super) const POOLS: [&str; 2] = ["g1", "g2"];

/// The source of random objects.
pub(super) struct Choices {
    pub rng: ChaCha8Rng,
    /// Instants at which something happens.
    instants: Vec<Timestamp>,
    /// The probability that a choice is the first of its list.
    agree: f64,
    /// The probabilities that a pod names a node, and a pool.
    pub on_node: f64,
    pub in_pool: f64,
    /// The probability that pods and nodes have slices of GPUs, besides whole GPUs.
    pub slices: f64,
    /// The probability that a pod or a node names its physical GPUs, and that a pod shares GPUs.
    pub shares: f64,
}

impl Choices {
    pub fn new(mut rng: ChaCha8Rng, instants: Vec<Timestamp>) -> Self {
        let mut of = |of: &[f64]| of[rng.random_range(0..of.len())];
        let agree = of(&[0.0, 0.6, 0.9, 0.95, 0.98]);
        let (on_node, in_pool) = (of(&[0.0, 0.5, 0.9, 1.0]), of(&[0.0, 0.0, 0.3, 1.0]));
        let slices = of(&[0.0, 0.0, 0.3]);
        let shares = of(&[0.0, 0.0, 0.4, 0.9]);
        Self { rng, instants, agree, on_node, in_pool, slices, shares }
    }

    /// Returns any of the choices.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.random_range(0..of.len())]
    }

    /// Returns the first choice if this history agrees, and any choice otherwise.
    pub fn agreed<T: Copy>(&mut self, of: &[T]) -> T {
        if self.rng.random_bool(self.agree) { of[0] } else { self.pick(of) }
    }

    pub fn text<T: for<'a> From<&'a str>>(&mut self, of: &[&str]) -> T {
        self.pick(of).into()
    }

    pub fn agreed_text(&mut self, of: &[&str]) -> Text {
        self.agreed(of).into()
    }

    pub fn maybe<T: for<'a> From<&'a str>>(&mut self, often: f64, of: &[&str]) -> Option<T> {
        if self.rng.random_bool(often) { Some(self.text(of)) } else { None }
    }

    pub fn decimal<D: FromStr + Default>(&mut self, of: &[&str]) -> D {
        self.pick(of).parse().unwrap_or_default()
    }

    pub fn maybe_decimal<D: FromStr>(&mut self, of: &[Option<&str>]) -> Option<D> {
        self.pick(of).and_then(|text| text.parse().ok())
    }

    pub fn instant(&mut self) -> Timestamp {
        let index = self.rng.random_range(0..self.instants.len());
        self.instants[index]
    }

    /// Returns an instant of the history, or an instant some time before or after it.
    pub fn around(&mut self) -> Timestamp {
        let at = self.instant();
        match self.rng.random_range(0..8) {
            0 => Timestamp(at.0 - 2 * HOUR_MICROS),
            1 => Timestamp(at.0 + HOUR_MICROS / 2),
            _ => at,
        }
    }

    /// Returns the start of something scheduled, mostly before the history.
    pub fn begin(&mut self) -> Timestamp {
        Timestamp(self.around().0 - self.pick(&[0, 3, 3]) * HOUR_MICROS)
    }

    /// Returns the end of something scheduled; `None` if it does not end. Sometimes the end is the start
    /// itself.
    pub fn end(&mut self, begin: Timestamp) -> Option<Timestamp> {
        let end = self.around();
        match self.rng.random_range(0..8) {
            0 => Some(begin),
            1..4 if end > begin => Some(end),
            _ => None,
        }
    }

    pub fn cluster(&mut self) -> ClusterId {
        self.agreed(&["c", "c", "c", "d"]).into()
    }

    pub fn region(&mut self) -> Text {
        self.agreed_text(&["r", "r", "s", "R"])
    }

    pub fn provider(&mut self) -> Text {
        self.agreed_text(&["aws", "aws", "gcp", "AWS", "gce"])
    }

    pub fn price(&mut self) -> UnitPrice {
        self.decimal(&[
            "0",
            "1",
            "10",
            "2",
            "0.333333333333",
            "0.000000000001",
            "7.123456789012",
            "98.32",
            "3",
        ])
    }

    /// Returns a number of physical GPUs with probability `shares`, and `None` otherwise.
    pub fn gpus(&mut self, of: &[&str]) -> Option<Quantity> {
        if self.rng.random_bool(self.shares) {
            Quantity::parse("nvidia.com/gpu", self.agreed(of)).ok()
        } else {
            None
        }
    }

    /// Returns some of the resources, each with one of its amounts.
    pub fn quantities(&mut self, choices: &[(&str, &[&str])], often: f64) -> Quantities {
        let mut quantities = Quantities::new();
        for (resource, amounts) in choices {
            if self.rng.random_bool(often)
                && let Ok(quantity) = Quantity::parse(resource, self.agreed(amounts))
            {
                quantities.insert((*resource).into(), quantity);
            }
        }
        quantities
    }
}
