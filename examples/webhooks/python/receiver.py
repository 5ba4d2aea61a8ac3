"""Webhook receiver for the pushes of a hub, with Python's standard library only.

    WEBHOOK_KEY=whsec_… PORT=8001 python receiver.py

It verifies the signature, repeats the challenge, drops repetitions by the ids of the chain, and prints each event once.
Keep ``last`` where your data is, in one transaction with it, and the effect of an event is there once.
"""

from __future__ import annotations

import base64
import hmac
import http.server
import json
import os
import threading
import time

KEYS = [base64.b64decode(key.removeprefix("whsec_")) for key in os.environ["WEBHOOK_KEY"].split()]
TOLERANCE = 300  # seconds between the clock of the hub and this one
BODY_MAX = 64 * 1024 * 1024  # bytes; a text has 10 MB at most, and a control character six bytes in JSON

lock = threading.Lock()
last = 0  # id of the last event that was processed


def is_signed(id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Return whether the hub has signed the request with one of our keys, now."""
    if not timestamp.isdecimal() or len(timestamp) > 12 or abs(int(timestamp) - time.time()) > TOLERANCE:
        return False
    signed = f"{id}.{timestamp}.".encode() + body
    right = False
    for key in KEYS:
        expected = b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256"))
        for given in signatures.split(" ")[:16]:
            right |= hmac.compare_digest(expected, given.encode())
    return right


def take(event: dict) -> None:
    """Process an event that may be a repetition."""
    global last
    with lock:
        id, previous = int(event["id"]), int(event["prev_id"])
        if id <= last:
            return
        if last and previous > last:
            print(f"gap: read the history from {last} to {previous}", flush=True)
        data = json.dumps(event.get("data", event.get("data_base64")), separators=(",", ":"), ensure_ascii=False)
        print(id, event.get("key", "-"), data, flush=True)
        last = id


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers of the callback."""

    protocol_version = "HTTP/1.1"
    timeout = 20  # seconds of silence

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            return self.answer(411)
        if int(length) > BODY_MAX:
            return self.answer(413)
        body = self.rfile.read(int(length))
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        if not is_signed(*[self.headers.get(name, "") for name in names], body):
            return self.answer(401)
        event = json.loads(body)
        if event["type"] == "challenge":
            return self.answer(200, event["challenge"].encode())
        # Only when it was processed: with 2xx the hub goes on to the next event.
        take(event)
        return self.answer(204)

    def answer(self, status: int, body: bytes = b"") -> None:
        """Send an answer; a content that was not read ends the connection."""
        self.close_connection = status >= 400
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8001"))), Receiver)
server.daemon_threads = True
server.serve_forever()
