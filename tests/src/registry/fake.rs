//! A schema registry that is controlled by the test, over real sockets.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method, such as `GET`.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers, by names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body's text.
    pub body: String,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Headers in addition to the headers of every reply.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// The delay of a slow registry. No test waits for it.
    pub delay: Duration,
    /// Number of bytes of the body that are sent before the connection is cut.
    pub cut: Option<usize>,
}

impl Reply {
    /// A registry's reply in JSON.
    pub fn json(status: u16, body: impl ToString) -> Self {
        Self::typed(status, "application/vnd.schemaregistry.v1+json", body)
    }

    /// A reply with this content type.
    pub fn typed(status: u16, kind: &str, body: impl ToString) -> Self {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let body = body.to_string().into_bytes();
        Self { status, headers, body, delay: Duration::ZERO, cut: None }
    }

    /// An error in a registry's form.
    pub fn error(status: u16, code: u32, message: &str) -> Self {
        Self::json(status, serde_json::json!({ "error_code": code, "message": message }))
    }

    /// A redirect to another URL.
    pub fn redirect(status: u16, to: &str) -> Self {
        let headers = vec![("location".to_owned(), to.to_owned())];
        Self { headers, ..Self::json(status, "") }
    }
}

type Answer = dyn Fn(&Request) -> Reply + Send + Sync;

/// Returns a function that answers as a correct registry does. See [`Fake::registry`].
pub fn registry() -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    let texts: Mutex<Vec<String>> = Mutex::default();
    move |request| {
        let mut texts = texts.lock().unwrap();
        if request.method == "POST" {
            let sent: serde_json::Value = serde_json::from_str(&request.body).unwrap();
            let text = format!("{} {}", request.path, sent["schema"].as_str().unwrap());
            let known = texts.iter().position(|known| *known == text);
            let place = known.unwrap_or_else(|| {
                texts.push(text);
                texts.len() - 1
            });
            return Reply::json(200, serde_json::json!({ "id": place + 1 }));
        }
        let id = request.path.rsplit('/').next().unwrap().parse::<usize>();
        let text = id.ok().and_then(|id| texts.get(id.checked_sub(1)?));
        match text.and_then(|text| text.split_once(' ')) {
            Some((_, schema)) => Reply::json(200, serde_json::json!({ "schema": schema })),
            None => Reply::error(404, 40403, "Schema not found"),
        }
    }
}

/// A server on its own loopback port, which ends when it is dropped.
pub struct Fake {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Request>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Starts a server that answers every request with this function.
    pub fn answering(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let answer: Arc<Answer> = Arc::new(answer);
        let thread = std::thread::spawn({
            let (asked, stopped) = (Arc::clone(&asked), Arc::clone(&stopped));
            move || {
                for connection in listener.incoming() {
                    if stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                    // A client may give up and break its connection, which is not a fault of the server.
                    std::thread::spawn(move || connection.map(|stream| serve(stream, &asked, &*answer)));
                }
            }
        });
        Self { address, asked, stopped, thread: Some(thread) }
    }

    /// Starts a correct registry. Equal texts under one subject have one id; ids start at 1.
    pub fn registry() -> Self {
        Self::answering(registry())
    }

    /// The server's base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far.
    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _woken = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, asked: &Mutex<Vec<Request>>, answer: &Answer) -> std::io::Result<()> {
    let request = read(&mut stream)?;
    asked.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    // The delay is under test: clients give up earlier.
    std::thread::sleep(reply.delay);
    let mut head = format!("HTTP/1.1 {} Status\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", reply.body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(&reply.body[..reply.cut.unwrap_or(reply.body.len())])
}

fn read(stream: &mut TcpStream) -> std::io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Request { method, path, headers, body: String::from_utf8(body).unwrap() })
}
