//! `prorata ready`: asks workers over the network whether they are ready.

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use reqwest::{Client, redirect};
use tokio::runtime::Runtime;

use crate::failure::Failure;
use crate::{report, wiring};

/// Maximum time to wait for one response.
const ANSWER: Duration = Duration::from_secs(5);
/// Time between two rounds of requests.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum size of a response, in bytes.
const ANSWER_BYTES: usize = 64 * 1024;

/// Arguments of `prorata ready`.
#[derive(Clone, Debug, Args)]
pub struct ReadyArgs {
    /// Hosts and ports of workers or collectors; every address that a host name resolves to is checked
    #[arg(value_name = "HOST:PORT", required = true)]
    pub hosts: Vec<String>,
    /// Minimum number of ready addresses
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub min_ready: usize,
    /// Maximum seconds to wait until all are ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
}

/// Asks all addresses, prints each response, and exits with 0 if all are ready.
///
/// # Errors
/// If the responses cannot be printed, or the system refuses resources.
pub fn run(args: &ReadyArgs) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + Duration::from_secs(args.wait);
    let asker = Asker::new()?;
    loop {
        let answers = asker.ask_all(&args.hosts);
        let ready = answers.iter().filter(|answer| answer.is_ready).count();
        let all = ready == answers.len() && ready >= args.min_ready;
        if !all && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
            continue;
        }
        let lines: Vec<String> = answers.iter().map(|of| format!("{}: {}", of.address, of.message)).collect();
        report::print(&lines.join("\n"))?;
        if all {
            return Ok(ExitCode::SUCCESS);
        }
        let least = args.min_ready;
        let message =
            format!("{ready} of {} are ready; all must be, and at least {least}; see above", answers.len());
        return Err(Failure::storage(message).into());
    }
}

/// The response of one address.
struct Answer {
    address: String,
    is_ready: bool,
    message: String,
}

/// The client that asks.
struct Asker {
    runtime: Runtime,
    client: Client,
}

impl Asker {
    fn new() -> anyhow::Result<Self> {
        // Requests go directly to the workers, without proxies or redirects.
        let client = Client::builder().no_proxy().redirect(redirect::Policy::none()).timeout(ANSWER);
        Ok(Self { runtime: wiring::small_runtime()?, client: client.build()? })
    }

    fn ask_all(&self, hosts: &[String]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for host in hosts {
            match host.to_socket_addrs() {
                Err(error) => {
                    let (address, message) = (host.clone(), error.to_string());
                    answers.push(Answer { address, is_ready: false, message });
                }
                Ok(addresses) => answers.extend(addresses.map(|address| {
                    let answer = self.runtime.block_on(self.ask(address));
                    let is_ready = answer.as_ref().is_ok_and(|(code, _)| *code == 200);
                    let message = answer.map_or_else(|error| cause(&error), |(_, body)| body);
                    Answer { address: address.to_string(), is_ready, message }
                })),
            }
        }
        answers
    }

    /// Returns the status code and the message of `/readyz`.
    async fn ask(&self, address: SocketAddr) -> reqwest::Result<(u16, String)> {
        let request = self.client.get(format!("http://{address}/readyz"));
        let mut answer = request.send().await.map_err(reqwest::Error::without_url)?;
        let mut body = Vec::new();
        while body.len() < ANSWER_BYTES
            && let Some(piece) = answer.chunk().await?
        {
            body.extend_from_slice(&piece);
        }
        body.truncate(ANSWER_BYTES);
        Ok((answer.status().as_u16(), String::from_utf8_lossy(&body).trim().to_owned()))
    }
}

/// Returns the innermost cause of an error, which says what the system or the server did.
fn cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Starts a server that gives the same response to each of `questions` requests, and returns its address.
    fn server(answer: &'static str, questions: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming().take(questions) {
                let mut stream = stream.unwrap();
                let mut question = [0; 512];
                let read = stream.read(&mut question).unwrap();
                assert!(question[..read].starts_with(b"GET /readyz HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    const READY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready";
    const NOT: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 18\r\n\r\nnot ready: loading";

    #[test]
    fn all_must_be_ready() {
        let ready = run(&ReadyArgs { hosts: vec![server(READY, 1)], min_ready: 1, wait: 0 });
        assert_eq!(ready.unwrap(), ExitCode::SUCCESS);
        let hosts = vec![server(READY, 1), server(NOT, 1)];
        let one_is_not = run(&ReadyArgs { hosts, min_ready: 1, wait: 0 }).unwrap_err();
        assert_eq!(one_is_not.to_string(), "1 of 2 are ready; all must be, and at least 1; see above");
        let too_few = run(&ReadyArgs { hosts: vec![server(READY, 1)], min_ready: 2, wait: 0 }).unwrap_err();
        assert_eq!(too_few.to_string(), "1 of 1 are ready; all must be, and at least 2; see above");
    }

    #[test]
    fn a_host_that_does_not_answer_in_http_is_not_ready() {
        let hosts = ["127.0.0.1:1".to_owned(), "no-port".to_owned(), server("SSH-2.0\r\n", 1)];
        let answers = Asker::new().unwrap().ask_all(&hosts);
        assert_eq!(answers.iter().filter(|answer| answer.is_ready).count(), 0);
        assert!(answers[0].message.starts_with("Connection refused"), "{}", answers[0].message);
        assert_eq!(answers[2].message, "invalid HTTP version parsed");
    }

    #[test]
    fn an_answer_without_an_end_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let _question = stream.read(&mut [0; 512]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            // The loop ends when the client closes the connection.
            while stream.write_all(&[b'x'; 8_192]).is_ok() {}
        });
        let answers = Asker::new().unwrap().ask_all(&[address]);
        assert!(answers[0].is_ready);
        assert_eq!(answers[0].message.len(), ANSWER_BYTES);
    }
}
