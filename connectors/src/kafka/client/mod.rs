//! Everything that all our Kafka clients share: settings, the client library's configuration, its callbacks,
//! its errors, and its call for many messages at once.

pub(super) mod batch;
pub(super) mod config;
pub(super) mod context;
pub(super) mod failure;
pub(super) mod settings;
mod token;
