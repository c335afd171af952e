//! Findings of an adversarial review. Each test asserts a property that must hold for years of operation.

mod absence;
mod clocks;
mod currency;
mod damaged;
mod first_start;
mod held;
mod kafka;
mod lost;
mod poison;
mod rig;
mod tenants;
mod way_out;
