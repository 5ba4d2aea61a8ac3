"""The demo's backend: a plain web server from the standard library that knows nothing of held connections.

It answers each request at once. Two of its answers carry ``Grip-Hold``, and gripproxy, standing in front, does the
waiting. What is posted to /publish goes to gripproxy's control port, and from there to everyone who waits.
"""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).parent
PAGE = (HERE / "page.html").read_bytes()
HUB_PAGE = (HERE.parent / "hub" / "page.html").read_bytes()
CHANNEL = "demo"
MAX_TEXT = 10_000  # bytes of a posted message; more is refused so that nobody fills the memory


class Backend(http.server.BaseHTTPRequestHandler):
    """Two pages, two kinds of hold, and publish."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart: the second would wait for the first one's ACK

    def do_GET(self) -> None:
        match urllib.parse.urlsplit(self.path).path:
            case "/":
                self.answer(200, "text/html; charset=utf-8", PAGE)
            case "/hub.html":
                # The page's requests go to /hub/, which gripproxy routes to its hub: not to this program.
                self.answer(200, "text/html; charset=utf-8", HUB_PAGE)
            case "/events":
                self.answer(
                    200,
                    "text/event-stream",
                    b": connected\n\n",
                    ("Grip-Hold", "stream"),
                    ("Grip-Channel", CHANNEL),
                    ("Grip-Keep-Alive", r":\n\n; format=cstring; timeout=20"),
                    ("Cache-Control", "no-cache"),
                )
            case "/poll":
                # The body is what the client gets when nothing was published within Grip-Timeout seconds.
                self.answer(
                    200, "text/plain", b"", ("Grip-Hold", "response"), ("Grip-Channel", CHANNEL), ("Grip-Timeout", "30")
                )
            case _:
                self.answer(404, "text/plain", b"Not here. Try /, /events or /poll.\n")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= MAX_TEXT:
            self.close_connection = True
            self.answer(400, "text/plain", b"Post a text of at most %d bytes.\n" % MAX_TEXT)
            return
        text = self.rfile.read(length).decode(errors="replace")
        if urllib.parse.urlsplit(self.path).path != "/publish":
            self.answer(404, "text/plain", b"Not here. Post to /publish.\n")
            return
        try:
            publish(text)
        except urllib.error.URLError as error:
            self.answer(503, "text/plain", f"gripproxy did not take it: {error}\n".encode())
            return
        self.answer(200, "text/plain", b"Published\n")

    def answer(self, code: int, kind: str, body: bytes, *headers: tuple[str, str]) -> None:
        """Send one whole response."""
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: gripproxy logs the same requests."""


def publish(text: str) -> None:
    """Send ``text`` to everyone: as an event to the streams, as a line to the long-polls.

    Raises ``urllib.error.URLError`` when gripproxy cannot be reached or refuses it.
    """
    event = "".join(f"data: {line}\n" for line in text.splitlines() or [""]) + "\n"
    item = {
        "channel": CHANNEL,
        "formats": {"http-stream": {"content": event}, "http-response": {"body": text + "\n"}},
    }
    control = urllib.parse.urlsplit(os.environ["GRIP_URL"])._replace(query="", path="/publish").geturl()
    request = urllib.request.Request(control, json.dumps({"items": [item]}).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        response.read()


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Backend)
    server.daemon_threads = True
    server.serve_forever()
