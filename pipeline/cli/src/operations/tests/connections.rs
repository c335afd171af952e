//! Tests over real sockets with connections that request little or nothing.

use prorata_testkit::wait::PATIENCE;
use tokio::net::TcpSocket;

use super::*;

/// Returns whether the server closes a connection after a client sends these bytes and then waits.
async fn is_closed(address: SocketAddr, sent: &[u8]) -> bool {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.is_ok()
}

#[tokio::test]
async fn silent_clients_are_disconnected_and_keep_no_one_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bounds = server::Bounds {
        connections: 2,
        connections_of_address: 2,
        head_within: Duration::from_millis(100),
        connection_within: Duration::from_millis(400),
    };
    let router = router(working(), Limits::default(), Arc::new(StoppedClock(NOW)));
    tokio::spawn(server::run(listener, router, bounds, std::future::pending()));
    let mut silent = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HT").await.unwrap();
        silent.push(stream);
    }
    let request = b"GET /livez HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n";
    assert!(is_closed(address, request).await, "it is answered though others are silent");
    assert!(is_closed(address, b"GET /livez HT").await, "half a request");
    let kept = b"GET /livez HTTP/1.1\r\nHost: worker\r\n\r\n";
    assert!(is_closed(address, kept).await, "a connection that is kept and never used again");
    drop(silent);
}

/// Starts a server with these limits on connections and no other limit, and returns its address.
async fn crowded(connections: usize, connections_of_address: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (head_within, connection_within) = (PATIENCE, PATIENCE);
    let bounds = server::Bounds { connections, connections_of_address, head_within, connection_within };
    let router = router(working(), Limits::default(), Arc::new(StoppedClock(NOW)));
    tokio::spawn(server::run(listener, router, bounds, std::future::pending()));
    address
}

/// Opens a connection from `127.0.0.<host>` and sends these bytes.
async fn connected(address: SocketAddr, host: u8, sent: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    // The server may have closed the connection already.
    let _ = stream.write_all(sent).await;
    stream
}

/// Sends a request on a kept connection, and returns whether a response arrives.
async fn answered(stream: &mut TcpStream) -> bool {
    let mut answer = Vec::new();
    let asked = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: worker\r\n\r\n").await;
    while asked.is_ok() && !answer.ends_with(b" 0 s ago\n") {
        let mut part = [0; 1_024];
        match tokio::time::timeout(PATIENCE, stream.read(&mut part)).await {
            Ok(Ok(read)) if read > 0 => answer.extend_from_slice(&part[..read]),
            _ => return false,
        }
    }
    asked.is_ok()
}

#[tokio::test]
async fn a_probe_is_answered_next_to_300_connections_that_never_ask() {
    for (holder, probe) in [(1, 1), (1, 2)] {
        let server::Bounds { connections, connections_of_address, .. } = server::Bounds::default();
        let address = crowded(connections, connections_of_address).await;
        let mut held = Vec::new();
        for begun in [&b""[..], b"GET /livez HT"].iter().cycle().take(300) {
            held.push(connected(address, holder, begun).await);
        }
        let mut probe = connected(address, probe, b"").await;
        assert!(answered(&mut probe).await);
        assert!(answered(&mut probe).await, "it is answered again");
    }
}

#[tokio::test]
async fn connections_of_many_addresses_keep_none_out_that_asks() {
    let address = crowded(8, 8).await;
    let mut probe = connected(address, 1, b"").await;
    let mut held = Vec::new();
    for host in 2..100 {
        held.push(connected(address, host, b"GET /livez HT").await);
        assert!(answered(&mut probe).await, "after {host}");
    }
    let mut closed = [0];
    assert!(matches!(held[0].read(&mut closed).await, Ok(0) | Err(_)), "the first is disconnected");
}

#[tokio::test]
async fn connections_of_one_address_cost_no_other_address_one() {
    let address = crowded(8, 3).await;
    let mut other = connected(address, 2, b"").await;
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(connected(address, 1, b"GET /livez HT").await);
    }
    let mut last = connected(address, 1, b"").await;
    assert!(answered(&mut last).await, "all before it are accepted");
    assert!(answered(&mut other).await);
}
