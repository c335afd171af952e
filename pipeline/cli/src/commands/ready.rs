//! `prorata ready`: asks workers, over the network, whether they are ready.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::Failure;
use crate::report;

/// Longest time for one answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Time between two rounds of questions.
const PAUSE: Duration = Duration::from_secs(1);
/// Most bytes of an answer.
const ANSWER_BYTES: u64 = 64 * 1024;

/// Arguments of `prorata ready`.
#[derive(Clone, Debug, Args)]
pub struct ReadyArgs {
    /// Host and port of workers or a collector, as in http.listen; all addresses that the host's name has
    /// are asked
    #[arg(value_name = "HOST:PORT", required = true)]
    pub hosts: Vec<String>,
    /// Fewest addresses that must answer
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub least: usize,
    /// Seconds to wait until all are ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
}

/// Asks all of them, prints what each says, and ends with 0 when all are ready.
///
/// # Errors
/// When the answers cannot be printed.
pub fn run(args: &ReadyArgs) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + Duration::from_secs(args.wait);
    loop {
        let answers = ask_all(&args.hosts);
        let ready = answers.iter().filter(|answer| answer.is_ready).count();
        let all = ready == answers.len() && ready >= args.least;
        if !all && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
            continue;
        }
        let lines: Vec<String> =
            answers.iter().map(|of| format!("{}: {}", of.address, of.sentence)).collect();
        report::print(&lines.join("\n"))?;
        if all {
            return Ok(ExitCode::SUCCESS);
        }
        let least = args.least;
        let sentence = format!("{ready} of {} are ready, of {least} at least; see above", answers.len());
        return Err(Failure::storage(sentence).into());
    }
}

/// What one address says.
struct Answer {
    address: String,
    is_ready: bool,
    sentence: String,
}

fn ask_all(hosts: &[String]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for host in hosts {
        match host.to_socket_addrs() {
            Err(error) => {
                answers.push(Answer { address: host.clone(), is_ready: false, sentence: error.to_string() });
            }
            Ok(addresses) => {
                answers.extend(addresses.map(|address| {
                    let answer = ask(address);
                    let is_ready = answer.as_ref().is_ok_and(|(code, _)| *code == 200);
                    let sentence = answer.map_or_else(|error| error.to_string(), |(_, body)| body);
                    Answer { address: address.to_string(), is_ready, sentence }
                }));
            }
        }
    }
    answers
}

/// The code and the sentence that `/readyz` answers.
fn ask(address: SocketAddr) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let question = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let parts = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let code = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
        Some((code, body.trim().to_owned()))
    });
    parts.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that gives one answer to each of so many questions.
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
        let ready = run(&ReadyArgs { hosts: vec![server(READY, 1)], least: 1, wait: 0 });
        assert_eq!(ready.unwrap(), ExitCode::SUCCESS);
        let hosts = vec![server(READY, 1), server(NOT, 1)];
        let one_is_not = run(&ReadyArgs { hosts, least: 1, wait: 0 }).unwrap_err();
        assert_eq!(one_is_not.to_string(), "1 of 2 are ready, of 1 at least; see above");
        let too_few = run(&ReadyArgs { hosts: vec![server(READY, 1)], least: 2, wait: 0 }).unwrap_err();
        assert_eq!(too_few.to_string(), "1 of 1 are ready, of 2 at least; see above");
    }

    #[test]
    fn what_does_not_answer_or_not_in_http_is_not_ready() {
        let answers = ask_all(&["127.0.0.1:1".to_owned(), "no-port".to_owned(), server("SSH-2.0\r\n", 1)]);
        assert_eq!(answers.iter().filter(|answer| answer.is_ready).count(), 0);
        assert_eq!(answers[2].sentence, "the answer is not HTTP");
    }
}
