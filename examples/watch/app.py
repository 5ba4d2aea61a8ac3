"""The backend of the watch example: a page, and the watcher for browsers as the package ``griphub`` ships it.

The events are in the hub, which gripproxy runs beside this program: the page's requests go to /hub/.
"""

from __future__ import annotations

import http.server
import os
import pathlib
import urllib.parse

import griphub.client

HTML = "text/html; charset=utf-8"
CODE = pathlib.Path(griphub.client.__file__).parent / "javascript" / "watcher.js"
FILES = {
    "/": (HTML, (pathlib.Path(__file__).parent / "page.html").read_bytes()),
    "/watcher.js": ("text/javascript; charset=utf-8", CODE.read_bytes()),
}


class Backend(http.server.BaseHTTPRequestHandler):
    """Two files."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart: the second would wait for the first one's ACK

    def do_GET(self) -> None:
        """Answer a file, or 404."""
        missing = ("text/plain", b"Not here. Try /.\n")
        path = urllib.parse.urlsplit(self.path).path
        kind, content = FILES.get(path, missing)
        self.send_response(200 if path in FILES else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: gripproxy logs requests.

        Args:
            format: text with places for the arguments.
            args: arguments.
        """


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Backend) as server:
        server.serve_forever()
