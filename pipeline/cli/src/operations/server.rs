//! Connections: few at a time, and none forever, so that clients that disappear cost nothing.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections at a time; further ones wait in the system's queue.
    pub connections: usize,
    /// How long the head of a request may take.
    pub head_within: Duration,
    /// How long a connection may last, with all of its requests.
    pub connection_within: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let (head_within, connection_within) = (Duration::from_secs(10), Duration::from_secs(120));
        Self { connections: 64, head_within, connection_within }
    }
}

/// How long to wait after the system gave no connection, for example because file descriptors ran out.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Answers until `stop` comes back, and then what was asked already.
pub(super) async fn run(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    let permits = Arc::new(Semaphore::new(bounds.connections));
    let connections = GracefulShutdown::new();
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(bounds.head_within);
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(&listener, &permits) => accepted,
        };
        let Some((stream, permit)) = accepted else { continue };
        let service = TowerToHyperService::new(router.clone());
        let connection = connections.watch(protocol.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A client's faults are its own.
            let _ended = tokio::time::timeout(bounds.connection_within, connection).await;
            drop(permit);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::debug!(%error, "no connection");
            tokio::time::sleep(AFTER_FAILURE).await;
            None
        }
    }
}
