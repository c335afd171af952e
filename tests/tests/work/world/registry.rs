//! A schema registry that has lost a schema: a proxy that does not know one id, in front of the real
//! registry.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Maximum number of bytes that are read of a request's head.
const HEAD_MAX: usize = 16 * 1024;

/// Starts the proxy, which runs until the runtime ends. Returns its URL.
pub fn without(schema: u32, url: &str, runtime: &Runtime) -> String {
    let (server, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (server, missing) = (server.to_owned(), format!("GET /{path}/schemas/ids/{schema} "));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, server.clone(), missing.clone()));
        }
    });
    format!("http://{address}/{path}")
}

/// Serves the one request of a connection. Any error ends the connection.
async fn serve(mut client: TcpStream, server: String, missing: String) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    if head.starts_with(&missing) {
        let body = r#"{"error_code":40403,"message":"Schema not found"}"#;
        let answer = format!(
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n{body}",
            body.len()
        );
        return client.write_all(answer.as_bytes()).await.ok();
    }
    let mut server = TcpStream::connect(server).await.ok()?;
    // A second request on this connection would pass unread, so the connection closes after the first.
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    server.write_all(head.as_bytes()).await.ok()?;
    copy_bidirectional(&mut client, &mut server).await.ok()?;
    Some(())
}
