//! The client of a cluster, and the requests that are sent once: the cluster's id, and whether a kind can be
//! listed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::DATE;
use http::{Request, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::params::ListParams;
use kube::{Client, Config};
use prorata_collector::object::ObjectKind;
use prorata_schemas::Text;
use prorata_schemas::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use super::time::ServerClock;
use super::{KubeFault, kinds};
use crate::store::causes;

/// The silence after which a connection counts as dead. A silent watch is opened again earlier.
const SILENCE: Duration = Duration::from_secs(90);
/// Maximum time that connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Maximum number of requests for one check of the server's time. Six are enough unless answers are slow.
const TIME_REQUESTS: usize = 8;

/// The settings by which a client reaches a cluster.
#[derive(Clone, Debug, Default)]
pub struct KubeSettings {
    /// Path of the kubeconfig. If `None`, `KUBECONFIG` or `~/.kube/config` is used if it exists, otherwise
    /// the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig; `None` for the current context.
    pub context: Option<String>,
}

/// The answer to whether a kind can be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listable {
    /// The kind can be listed.
    Yes,
    /// The server has no such kind.
    Absent,
    /// The kind may not be listed. The message says which permission is missing.
    Refused(String),
}

/// A client of one cluster.
#[derive(Clone)]
pub struct KubeCluster {
    client: Client,
    clock: Arc<ServerClock>,
    url: String,
}

/// The metadata that every object and list has.
#[derive(Debug, Deserialize)]
struct Named {
    metadata: Uid,
}

#[derive(Debug, Deserialize)]
struct Uid {
    #[serde(default)]
    uid: String,
}

impl KubeCluster {
    /// Makes the client without sending a request.
    ///
    /// # Errors
    /// [`KubeFault::Configuration`] if there is no kubeconfig, or it is wrong.
    pub async fn open(settings: &KubeSettings) -> Result<Self, KubeFault> {
        let wrong = |why: String| KubeFault::Configuration(why);
        let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
        let config = match &settings.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| wrong(causes(&error)))?;
                Config::from_custom_kubeconfig(file, &options).await
            }
            None => Config::from_kubeconfig(&options).await,
        };
        let mut config = match config {
            Ok(config) => config,
            Err(error) if settings.kubeconfig.is_none() && settings.context.is_none() => Config::incluster()
                .map_err(|inside| {
                    let (kubeconfig, inside) = (causes(&error), causes(&inside));
                    wrong(format!(
                        "no cluster is configured: name a kubeconfig (its error: {kubeconfig}), or run in \
                         the cluster ({inside})"
                    ))
                })?,
            Err(error) => return Err(wrong(causes(&error))),
        };
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| wrong(causes(&error)))?;
        Ok(Self { client, clock: Arc::default(), url })
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the API server's time now, at most a second late; soon after watches start, at most 50 ms
    /// late.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the earliest time that the API server's clock may show now.
    pub fn earliest_now(&self) -> Timestamp {
        self.clock.earliest()
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request only to learn the server's time.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the credentials.
    pub async fn learn_time(&self) -> Result<(), KubeFault> {
        self.get("/version").await.map(drop)
    }

    /// Checks the server's time again after every `pause`, so that it stays known to fractions of a second
    /// while the clocks drift apart.
    pub(super) async fn keep_time(self, pause: fn() -> Duration) {
        loop {
            for _ in 0..TIME_REQUESTS {
                let Some(wait) = self.clock.until_halved() else { break };
                sleep(wait).await;
                // If the server does not answer now, it will answer later.
                drop(self.learn_time().await);
            }
            sleep(pause()).await;
            self.clock.doubt();
        }
    }

    /// Returns the uid of the namespace `kube-system`, which usually identifies a cluster.
    ///
    /// # Errors
    /// If the server does not answer, or the namespace may not be read.
    pub async fn cluster_id(&self) -> Result<Text, KubeFault> {
        let path = "/api/v1/namespaces/kube-system";
        let body = self.get(path).await?;
        let named: Named = serde_json::from_slice(&body).map_err(|error| unreadable(path, &error))?;
        Ok(Text::from(named.metadata.uid.as_str()))
    }

    /// Returns whether a kind can be listed.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the credentials.
    pub async fn listable(&self, kind: ObjectKind) -> Result<Listable, KubeFault> {
        let request = kube::core::Request::new(kinds::path(kind)).list(&ListParams::default().limit(1));
        let request = request.map_err(|error| KubeFault::Configuration(causes(&error)))?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(Listable::Yes),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Listable::Absent),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(Listable::Refused(missing(kind))),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Returns the body of a resource, and notes the server's time.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, KubeFault> {
        let request = Request::get(path)
            .body(Body::empty())
            .map_err(|error| KubeFault::Configuration(format!("{path}: {error}")))?;
        let sent = SystemTime::now();
        let response = self.client.send(request).await.map_err(|error| fault(&error))?;
        let received = SystemTime::now();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| httpdate::parse_http_date(date).ok()) {
            self.clock.responded(date, sent, received);
        }
        let status = response.status();
        let body = response.into_body().collect_bytes().await.map_err(|error| fault(&error))?;
        match status {
            StatusCode::UNAUTHORIZED => Err(KubeFault::Permission(refused())),
            StatusCode::FORBIDDEN => Err(KubeFault::Permission(format!("get of {path} is forbidden"))),
            status if status.is_success() => Ok(body.to_vec()),
            status => Err(KubeFault::Unavailable(format!("{path}: {status}"))),
        }
    }
}

fn unreadable(path: &str, error: &serde_json::Error) -> KubeFault {
    KubeFault::Unavailable(format!("{path} cannot be read: {error}"))
}

fn refused() -> String {
    "it refuses the credentials; renew the credentials in the kubeconfig, or the service account's token"
        .to_owned()
}

/// Returns the message for a kind that may not be listed.
pub(super) fn missing(kind: ObjectKind) -> String {
    let (resource, group) = kinds::resource(kind);
    format!(
        "list and watch of {resource} are forbidden: grant both in a ClusterRole (apiGroups: [\"{group}\"], \
         resources: [\"{resource}\"])"
    )
}

/// Returns the meaning of a client error.
pub(super) fn fault(error: &kube::Error) -> KubeFault {
    match error {
        kube::Error::Api(status) if status.code == 401 => KubeFault::Permission(refused()),
        kube::Error::Api(status) if status.code == 403 => KubeFault::Permission(status.message.clone()),
        kube::Error::Api(status) => KubeFault::Unavailable(format!("{} {}", status.code, status.message)),
        kube::Error::Auth(error) => KubeFault::Permission(causes(error)),
        error => KubeFault::Unavailable(causes(error)),
    }
}

#[cfg(test)]
mod tests {
    use prorata_testkit::wait::eventually;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_clock_is_doubted_every_few_minutes() {
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let cluster = KubeCluster { client, clock: Arc::default(), url: String::new() };
        // The server is 20 to 30 ms ahead.
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let millis = |millis| start + Duration::from_millis(millis);
        cluster.clock.responded(millis(1_000), millis(980), millis(980));
        cluster.clock.responded(start, millis(970), millis(970));
        let apart = || cluster.now().0 - cluster.earliest_now().0;
        assert!(apart() < 20_000, "{}", apart());
        let keeping = tokio::spawn(cluster.clone().keep_time(|| Duration::ZERO));
        eventually("the bounds are wider", || if apart() > 120_000 { Ok(()) } else { Err(apart()) });
        keeping.abort();
    }
}
