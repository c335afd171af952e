//! The prices of a pod in its pool (RULES.md, section 5). `rules/pool.rs` decides which of these prices is in
//! force.

use std::sync::Arc;

use prorata_schemas::event::{PoolSet, QosPrice};
use prorata_schemas::rows::Unpriced;

/// The pricing of a pod by its pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PoolPricing {
    /// The pod names no pool.
    None,
    /// The pool has no price for the pod.
    Unpriced(Unpriced),
    /// The prices in force.
    Priced(Arc<PoolPrice>),
}

/// The prices of one quality of service in a pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolPrice {
    pub(crate) pool: Arc<PoolSet>,
    pub(crate) qos_price: QosPrice,
}
