//! HTTP endpoints of a worker, for probes, Prometheus and people: `/livez`, `/readyz`, `/metrics`, `/status`.
//!
//! Every response is made from a copy of [`Status`]. Nothing here waits for storage, Kafka or the worker, so
//! a dependency that is down never makes the worker look dead.

pub mod collector;
mod costs;
mod document;
mod metrics;
mod page;
mod server;
#[cfg(test)]
mod tests;
mod view;

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prorata_connectors::SystemClock;
use prorata_worker::ports::Clock;
use prorata_worker::status::Status;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::failure::Failure;
use view::Snapshot;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum silence of a live worker. It exceeds the time of one call to an object store that does not
/// respond, because the client retries for three minutes.
const LIVE_WITHIN: Duration = Duration::from_secs(300);

/// Default of [`Limits::cost_series`]. It suffices for every organization of a typical installation, and is a
/// small load for Prometheus.
const COST_SERIES: usize = 1_000;

/// Limits of what the server reports.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum time between two signs of life of a live worker, and before the first. A sign of life is an
    /// iteration of the worker's loop or a response of storage.
    pub live_within: Duration,
    /// Maximum number of series of each metric of costs and budgets.
    pub cost_series: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { live_within: LIVE_WITHIN, cost_series: COST_SERIES }
    }
}

/// A server that responds until it is stopped.
#[derive(Debug)]
pub struct Serving {
    /// Address of the listener. The port is known even if port 0 was requested.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Serving {
    /// Waits until the last response is sent, after the server was asked to stop. A client that does not read
    /// its response is cut off after `within`.
    pub async fn finish(mut self, within: Duration) {
        if tokio::time::timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// Listens at `listen`, and serves until `stop` resolves.
///
/// # Errors
/// If the server cannot listen there. The message says how to fix `http.listen`.
pub async fn serve(
    listen: &str,
    status: Arc<Status>,
    limits: Limits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Serving, Failure> {
    serve_router(listen, router(status, limits, Arc::new(SystemClock)), stop).await
}

/// Listens at `listen`, and serves these paths until `stop` resolves.
///
/// # Errors
/// See [`serve`].
pub async fn serve_router(
    listen: &str,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Serving, Failure> {
    let failure = |error: &std::io::Error| Failure::usage(cannot_listen(listen, error));
    let listener = TcpListener::bind(listen).await.map_err(|error| failure(&error))?;
    let address = listener.local_addr().map_err(|error| failure(&error))?;
    let task = tokio::spawn(server::run(listener, router, server::Bounds::default(), stop));
    Ok(Serving { address, task })
}

fn cannot_listen(listen: &str, error: &std::io::Error) -> String {
    let remedy = "set it to another address, or to \"\" to serve nothing";
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("http.listen '{listen}' is in use by another program; {remedy}")
        }
        ErrorKind::AddrNotAvailable => {
            format!(
                "http.listen '{listen}' is not an address of this machine; {remedy} (0.0.0.0:8080 means all \
                 of its addresses)"
            )
        }
        ErrorKind::PermissionDenied => {
            format!(
                "http.listen '{listen}' may not be used by this user (ports below 1024 are privileged); \
                 {remedy}"
            )
        }
        ErrorKind::InvalidInput => {
            format!("http.listen '{listen}' is not an address and port such as 127.0.0.1:8080; {remedy}")
        }
        _ => format!("http.listen '{listen}' cannot be used: {error}; {remedy}"),
    }
}

/// State that the handlers share.
#[derive(Clone)]
struct Shared {
    status: Arc<Status>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    started: Instant,
}

impl Shared {
    fn snapshot(&self) -> Snapshot {
        // The status is copied under the lock and used without it, so the worker never waits for a reader.
        let status = self.status.lock().clone();
        Snapshot::new(status, self.clock.now(), self.started, self.limits)
    }
}

fn router(status: Arc<Status>, limits: Limits, clock: Arc<dyn Clock>) -> Router {
    let shared = Shared { status, limits, clock, started: Instant::now() };
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/status", get(status_page))
        .fallback(elsewhere)
        .with_state(shared)
}

async fn livez(State(shared): State<Shared>) -> Response {
    probe(shared.snapshot().live())
}

async fn readyz(State(shared): State<Shared>) -> Response {
    probe(shared.snapshot().ready())
}

async fn metrics(State(shared): State<Shared>) -> Response {
    match metrics::text(shared.snapshot()) {
        Ok(text) => answer(StatusCode::OK, OPEN_METRICS, text),
        Err(error) => {
            answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("metrics cannot be written: {error}\n"))
        }
    }
}

async fn status_page(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let snapshot = shared.snapshot();
    if wants_json(query.as_deref(), &headers) {
        return match document::json(&snapshot) {
            Ok(document) => answer(StatusCode::OK, JSON, format!("{document:#}\n")),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("no status: {error}\n")),
        };
    }
    let mut response = answer(StatusCode::OK, HTML, page::html(&snapshot));
    // The page has no scripts, and the policy stops injected scripts.
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    if let Ok(policy) = policy.parse() {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Returns whether the client wants JSON. A format in the query decides; otherwise, the type that `Accept`
/// names first.
fn wants_json(query: Option<&str>, headers: &HeaderMap) -> bool {
    let format = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("format="));
    if let Some(format) = format {
        return format == "json";
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match (accept.find(JSON), accept.find("text/html")) {
        (Some(json), Some(html)) => json < html,
        (json, _) => json.is_some(),
    }
}

async fn elsewhere() -> Response {
    let message = "not found; the paths are /livez, /readyz, /metrics and /status\n";
    answer(StatusCode::NOT_FOUND, TEXT, message.to_owned())
}

fn probe(verdict: Result<String, String>) -> Response {
    match verdict {
        Ok(message) => answer(StatusCode::OK, TEXT, format!("{message}\n")),
        Err(message) => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{message}\n")),
    }
}

fn answer(code: StatusCode, kind: &'static str, body: String) -> Response {
    (code, [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], body).into_response()
}
