//! What an adversarial review found: each test says what must hold in a life of years.

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
