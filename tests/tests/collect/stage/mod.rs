//! What tests play on: the cluster, real or played by the test; collectors; what pods did, by all accounts.

pub mod cluster;
pub mod collector;
pub mod lives;
pub mod meters;
pub mod played;
pub mod scene;
