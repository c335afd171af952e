//! The test environment: the cluster, real or played by the test; collectors; and all accounts of the pods.

pub mod cluster;
pub mod collector;
pub mod lives;
pub mod meters;
pub mod played;
pub mod scene;
