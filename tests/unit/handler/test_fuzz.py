"""Whatever publishers send: only the documented errors, and no connection left waiting without a deadline."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.item import Item, ItemError
from gripproxy.grip.tnetstring import FrameError
from handler.control.api import Api
from handler.control.authenticator import Authenticator
from handler.control.command_socket import RequestError, parse_request
from handler.control.http_server import HttpServer, Limits
from handler.dispatch.dispatcher import Dispatcher
from handler.sources.ingest import BadJson, NoObject, items_of_json, parse_message
from tests.unit.handler.control.test_http_server import Client

PIECES = st.sampled_from(
    [
        b"POST /publish HTTP/1.1\r\n",
        b"GET / HTTP/1.0\r\n",
        b"Content-Length: 12\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Upgrade: x\r\nConnection: upgrade\r\n",
        b"Accept: ",
        b"\r\n",
        b"\n",
        b": ",
        b'{"items":[]}',
    ]
)


@given(st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=12))
def test_the_control_port_survives_anything(pieces: list[bytes]) -> None:
    async def scenario() -> None:
        server = HttpServer(Api(Dispatcher(), Authenticator(None), lambda: 0.0, lambda: 0.0), Limits(200, 200))
        client = Client(server)
        for piece in pieces:
            reply = client.send(piece)
            assert not reply or reply.startswith(b"HTTP/1.")
        assert client.connection.deadline > 0

    asyncio.run(scenario())


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=5)))
def test_messages(data: bytes, topic: bytes | None) -> None:
    for prefix in (b"", b"T", b"J"):
        try:
            assert isinstance(parse_message(prefix + data, topic), Item)
        except (ItemError, FrameError):
            pass


@given(st.binary(max_size=60))
def test_requests(data: bytes) -> None:
    try:
        parse_request(data)
    except RequestError:
        pass


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(
            st.sampled_from(["items", "channel", "id", "formats", "http-stream", "content", "action"]), below
        ),
    ),
    max_leaves=20,
)


@given(JSON)
def test_bodies(document: object) -> None:
    import orjson

    try:
        body = orjson.dumps({"items": [document]})
    except (TypeError, orjson.JSONEncodeError):
        return
    try:
        items_of_json(body)
    except (BadJson, NoObject, ItemError):
        pass
