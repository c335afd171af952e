//! A TCP proxy between a worker and a server that subjects their connections to network faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;

/// Number of bytes passed on at a time.
const CHUNK: usize = 16 * 1024;

/// The treatment of connections, new and existing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Passes everything on.
    Clear,
    /// Passes everything on, each chunk after this delay.
    Slow(Duration),
    /// Breaks each connection after this many bytes in both directions together.
    Cut(usize),
    /// Accepts no connection.
    Refusing,
    /// Answers every request with 503, as an overloaded S3 does.
    Unavailable,
    /// Refuses every request that would change something, as a store does for a key without the permission to
    /// write. Each connection serves one request.
    ReadOnly,
    /// Refuses every request that would change something, as a store with a full disk does.
    Full,
    /// Accepts connections and requests, and never answers.
    Silent,
}

impl Weather {
    /// Returns whether existing connections continue.
    const fn passes(self) -> bool {
        matches!(self, Self::Clear | Self::Slow(_) | Self::Cut(_))
    }
}

/// A proxy in front of one server.
pub struct Proxy {
    /// The address on which it listens.
    pub address: SocketAddr,
    weather: watch::Sender<Weather>,
    harmed: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl Proxy {
    /// Starts a proxy in front of the server of a URL such as `http://127.0.0.1:1234/path`.
    pub fn before(url: &str) -> Self {
        let server = url.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (weather, changes) = watch::channel(Weather::Clear);
        let harmed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&harmed);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *changes.borrow() != Weather::Clear {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                let (server, changes, count) = (server.clone(), changes.clone(), Arc::clone(&count));
                tokio::spawn(serve(client, server, changes, count));
            }
        });
        Self { address, weather, harmed, _runtime: runtime }
    }

    /// Returns the URL with the proxy in place of its server.
    pub fn url(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap();
        let path = rest.split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
        format!("{scheme}://{}{path}", self.address)
    }

    /// Returns the number of connections that were made in any weather but clear, or that ended when the
    /// weather changed.
    pub fn harmed(&self) -> u64 {
        self.harmed.load(Ordering::Relaxed)
    }

    /// Changes the weather.
    pub fn set(&self, weather: Weather) {
        println!("{weather:?}");
        self.weather.send(weather).unwrap();
    }
}

/// Serves one connection. Any error ends it.
async fn serve(
    mut client: TcpStream,
    server: String,
    mut changes: watch::Receiver<Weather>,
    harmed: Arc<AtomicU64>,
) -> Option<()> {
    let weather = *changes.borrow_and_update();
    match weather {
        Weather::Refusing => client.set_zero_linger().ok()?,
        Weather::Silent => changes.changed().await.ok()?,
        Weather::Unavailable => {
            let mut request = [0; CHUNK];
            if client.read(&mut request).await.ok()? > 0 {
                refuse(client, "503 Slow Down", "SlowDown").await?;
            }
        }
        Weather::ReadOnly => read_only(client, server, ("403 Forbidden", "AccessDenied")).await?,
        Weather::Full => read_only(client, server, ("507 Insufficient Storage", "XMinioStorageFull")).await?,
        Weather::Clear | Weather::Slow(_) | Weather::Cut(_) => {
            let mut server = TcpStream::connect(server).await.ok()?;
            let mut left = if let Weather::Cut(bytes) = weather { bytes } else { usize::MAX };
            while left > 0 && pass(&mut client, &mut server, &mut changes, &mut left).await? {}
            if !changes.borrow().passes() {
                harmed.fetch_add(1, Ordering::Relaxed);
            }
            client.set_zero_linger().ok()?;
        }
    }
    None
}

/// Passes one chunk on. Returns `false` if the connection must end, and `None` if it is broken.
async fn pass(
    client: &mut TcpStream,
    server: &mut TcpStream,
    changes: &mut watch::Receiver<Weather>,
    left: &mut usize,
) -> Option<bool> {
    let (mut up, mut down) = ([0; CHUNK], [0; CHUNK]);
    let weather = *changes.borrow();
    let (from, to, bytes) = tokio::select! {
        read = client.read(&mut up) => (up, server, read.ok()?),
        read = server.read(&mut down) => (down, client, read.ok()?),
        changed = changes.changed() => {
            changed.ok()?;
            let weather = *changes.borrow_and_update();
            if weather == Weather::Silent {
                changes.changed().await.ok()?;
            }
            return Some(weather.passes());
        }
    };
    if let Weather::Slow(pause) = weather {
        // The delay is the network under test.
        sleep(pause).await;
    }
    let passed = bytes.min(*left);
    to.write_all(&from[..passed]).await.ok()?;
    *left -= passed;
    Some(bytes > 0)
}

/// Serves one request, or refuses it if it would change something.
async fn read_only(mut client: TcpStream, server: String, refusal: (&str, &str)) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < CHUNK {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    if !head.starts_with("GET ") && !head.starts_with("HEAD ") {
        let (status, code) = refusal;
        return refuse(client, status, code).await;
    }
    let mut server = TcpStream::connect(server).await.ok()?;
    // A second request on this connection would pass unread, so the connection closes after the first.
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    server.write_all(head.as_bytes()).await.ok()?;
    copy_bidirectional(&mut client, &mut server).await.ok()?;
    Some(())
}

/// Answers any request with an error of S3.
async fn refuse(mut client: TcpStream, status: &str, code: &str) -> Option<()> {
    let mut request = [0; CHUNK];
    let body = format!("<Error><Code>{code}</Code><Message>The test says so.</Message></Error>");
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{body}"
    );
    client.write_all(answer.as_bytes()).await.ok()?;
    // Reads the rest of a large request, because the answer may be lost with it otherwise.
    while tokio::time::timeout(Duration::from_millis(200), client.read(&mut request)).await.ok()?.ok()? > 0 {}
    Some(())
}
