//! Connections: their number and duration are limited, so that clients that disappear cost nothing.
//!
//! A new connection is always accepted. If one address has too many connections, the server ends the
//! connection of this address with the oldest last request. If there are too many connections in total, it
//! ends the connection with the oldest last request of all. So no client can block probes by holding
//! connections.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum number of connections at a time.
    pub connections: usize,
    /// Maximum number of connections at a time from one address. A browser opens six.
    pub connections_of_address: usize,
    /// Maximum time from the start or the last response of a connection to the end of the next request's
    /// head.
    pub head_within: Duration,
    /// Maximum duration of a connection, over all of its requests.
    pub connection_within: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let (head_within, connection_within) = (Duration::from_secs(5), Duration::from_secs(120));
        Self { connections: 64, connections_of_address: 8, head_within, connection_within }
    }
}

/// Pause after the system refused a connection, for example because file descriptors ran out.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A connection that the server serves.
struct Open {
    address: IpAddr,
    /// Number of the connection's last request, or of the connection itself before its first request. All
    /// connections share one numbering.
    last: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// All connections that the server serves.
struct Connections {
    open: Vec<Open>,
    bounds: Bounds,
}

impl Connections {
    /// Ends connections until one more connection from this address is within the bounds.
    fn make_room(&mut self, address: IpAddr) {
        self.open.retain(|open| !open.task.is_finished());
        self.keep(self.bounds.connections_of_address, |open| open.address == address);
        self.keep(self.bounds.connections, |_| true);
    }

    /// Ends the matching connections with the oldest requests, until fewer than `fewer_than` are left.
    fn keep(&mut self, fewer_than: usize, is_one: impl Fn(&Open) -> bool) {
        while self.open.iter().filter(|open| is_one(open)).count() >= fewer_than.max(1) {
            let ones = self.open.iter().enumerate().filter(|(_, open)| is_one(open));
            let oldest = ones.min_by_key(|(_, open)| open.last.load(Ordering::Relaxed));
            let Some((at, _)) = oldest else { return };
            self.open.swap_remove(at).task.abort();
        }
    }
}

/// Serves until `stop` resolves, and then finishes the requests that have already arrived.
pub(super) async fn run(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) {
    let mut connections = Connections { open: Vec::new(), bounds };
    let graceful = GracefulShutdown::new();
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(bounds.head_within);
    let count = Arc::new(AtomicU64::new(0));
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(&listener) => accepted,
        };
        let Some((stream, peer)) = accepted else { continue };
        let address = peer.ip().to_canonical();
        connections.make_room(address);
        let last = Arc::new(AtomicU64::new(count.fetch_add(1, Ordering::Relaxed)));
        let (answers, asked, next) =
            (TowerToHyperService::new(router.clone()), Arc::clone(&last), Arc::clone(&count));
        let service = service_fn(move |request: Request<Incoming>| {
            asked.store(next.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            answers.call(request)
        });
        let connection = graceful.watch(protocol.serve_connection(TokioIo::new(stream), service));
        let task = tokio::spawn(async move {
            // A client's errors are not errors of the server.
            let _ended = tokio::time::timeout(bounds.connection_within, connection).await;
        });
        connections.open.push(Open { address, last, task });
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::debug!(%error, "no connection");
            tokio::time::sleep(AFTER_FAILURE).await;
            None
        }
    }
}
