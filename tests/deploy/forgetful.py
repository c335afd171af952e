"""An API server whose watches forget an object: it passes on what the real one answers, but for that."""

import contextlib
import http.client
import http.server
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import api

HOST = urlsplit(api.SERVER).netloc


class _Forgetful(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    forgotten = b""

    def do_GET(self) -> None:
        asked = http.client.HTTPSConnection(HOST, context=api.TLS)
        with contextlib.closing(asked):
            # Answers are read here, so they must not be packed.
            headers = {name: self.headers[name] for name in ("Authorization", "Accept") if self.headers[name]}
            asked.request("GET", self.path, headers=headers)
            answer = asked.getresponse()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            if "watch=true" in self.path:
                self.pass_on_changes(answer)
            else:
                body = answer.read()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

    def pass_on_changes(self, answer: http.client.HTTPResponse) -> None:
        """Passes on a change a line, but for those of the object."""
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while line := answer.readline():
            if self.forgotten not in line:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A collector that hangs up is not a fault."""


@contextlib.contextmanager
def forgetful(name: str) -> Iterator[str]:
    """The URL of an API server that reports objects of this name only in lists."""
    handler = type("Handler", (_Forgetful,), {"forgotten": f'"name":"{name}"'.encode()})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
