//! Sources of usage, played by a test: a kubelet and metrics-server over TLS, a GPU exporter without TLS.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::cluster::kubeconfig;

/// Answers by the beginning of the path. A path without an answer gets 503.
pub type Answers = Arc<Mutex<BTreeMap<String, Answer>>>;

/// A function that returns the body of the answer to a request.
pub type Answer = Box<dyn Fn() -> String + Send>;

/// A server of answers, which ends when it is dropped.
pub struct Meter {
    pub address: SocketAddr,
    answers: Answers,
    task: tokio::task::JoinHandle<()>,
}

impl Meter {
    /// Starts a server on a free port of an address.
    pub fn start(runtime: &Runtime, address: IpAddr, has_tls: bool) -> Self {
        let listener = runtime.block_on(TcpListener::bind((address, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Answers::default();
        let shared = Arc::clone(&answers);
        let tls = has_tls.then(acceptor);
        let task = runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    // A peer that hangs up is not a fault of the server.
                    drop(serve(stream, tls, &shared).await);
                });
            }
        });
        Self { address, answers, task }
    }

    pub fn answer(&self, path: &str, answer: impl Fn() -> String + Send + 'static) {
        self.answers.lock().unwrap().insert(path.to_owned(), Box::new(answer));
    }

    /// Answers 503 from now on.
    pub fn fail(&self, path: &str) {
        self.answers.lock().unwrap().remove(path);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns an acceptor of TLS with the certificate of the test servers.
pub fn acceptor() -> TlsAcceptor {
    let folder = kubeconfig().parent().unwrap().parent().unwrap().to_owned();
    let file = |name: &str| folder.join(name);
    let certificate = CertificateDer::from_pem_file(file("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, answers: &Answers) -> std::io::Result<()> {
    let stream: BoxFuture<'_, std::io::Result<()>> = match tls {
        Some(tls) => Box::pin(async move { one(tls.accept(stream).await?, answers).await }),
        None => Box::pin(one(stream, answers)),
    };
    stream.await
}

/// Answers one request of a connection.
async fn one(mut stream: impl AsyncRead + AsyncWrite + Unpin, answers: &Answers) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 64 << 10 {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let found = {
        let answers = answers.lock().unwrap();
        let longest = answers.iter().rev().find(|(known, _)| path.starts_with(known.as_str()));
        longest.map(|(_, answer)| answer())
    };
    let (status, body) = found.map_or(("503 Service Unavailable", String::new()), |body| ("200 OK", body));
    let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns an address of this machine. The API server refuses to call loopback, so it is another address.
pub fn machine_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: the system only chooses the source address.
    socket.connect("198.51.100.1:9").expect("an address besides loopback");
    socket.local_addr().unwrap().ip()
}

/// Writes a kubeconfig with a token alone.
pub fn kubeconfig_of(token: &str, folder: &Path) -> std::path::PathBuf {
    let text = std::fs::read_to_string(kubeconfig()).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["users"] = serde_json::json!([{ "name": "token", "user": { "token": token } }]);
    let path = folder.join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}
