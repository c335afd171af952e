//! The schema registry's client and the decoders of messages, against a registry that misbehaves on demand.

mod client;
mod contract;
mod messages;
mod odd;

use std::time::Duration;

use prorata_connectors::registry::{Registry, RegistryFault, Settings};

/// Returns a client without credentials, with enough time for loopback.
fn client(url: &str) -> Registry {
    Registry::new(&settings(url)).unwrap()
}

fn settings(url: &str) -> Settings {
    Settings { url: url.to_owned(), timeout: Duration::from_secs(20), ..Settings::default() }
}

fn unavailable<T: std::fmt::Debug>(outcome: Result<T, RegistryFault>) -> String {
    match outcome {
        Err(RegistryFault::Unavailable(message)) => message,
        other => panic!("expected unavailable, got {other:?}"),
    }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, RegistryFault>) -> String {
    match outcome {
        Err(RegistryFault::Permission(message)) => message,
        other => panic!("expected refused credentials, got {other:?}"),
    }
}

fn misconfigured<T: std::fmt::Debug>(outcome: Result<T, RegistryFault>) -> String {
    match outcome {
        Err(RegistryFault::Configuration(message)) => message,
        other => panic!("expected an error of configuration, got {other:?}"),
    }
}
