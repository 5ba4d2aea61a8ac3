"""What a wire case is made of: a running proxy, scripted backends, byte-exact clients and publishers.

A case reads as a transcript. It scripts a backend, sends bytes as a client or publisher, and compares the bytes that
come out. Nothing in here knows how the proxy works inside, so the same case runs against gripproxy and Pushpin.
"""

from tests.wire.wirekit.backend import CLOSE, RESET, Backend, Exchange, Script
from tests.wire.wirekit.certs import Certificate, self_signed
from tests.wire.wirekit.client import Aborted, Client, Silence
from tests.wire.wirekit.expecting import covers, expect, on_pushpin
from tests.wire.wirekit.messages import Request, Response, chunk, chunked, hold, instruct, request, response
from tests.wire.wirekit.proxy import UPDATED, Proxy, Setup, StartProblem
from tests.wire.wirekit.publisher import Publisher
from tests.wire.wirekit.site import Site

__all__ = [
    "CLOSE",
    "RESET",
    "UPDATED",
    "Aborted",
    "Backend",
    "Certificate",
    "Client",
    "Exchange",
    "Proxy",
    "Publisher",
    "Request",
    "Response",
    "Script",
    "Setup",
    "Silence",
    "Site",
    "StartProblem",
    "chunk",
    "chunked",
    "covers",
    "expect",
    "hold",
    "instruct",
    "on_pushpin",
    "request",
    "response",
    "self_signed",
]
