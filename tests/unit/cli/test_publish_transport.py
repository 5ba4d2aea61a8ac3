"""gripproxy.cli.publish_transport: where items go, batches of them, and how many subscribers they had."""

from __future__ import annotations

import base64
import pathlib
import socket
import threading
from collections.abc import Iterator
from typing import ClassVar

import orjson
import pytest
import zmq

from gripproxy.cli.publish_transport import Audience, HttpSender, PublishError, ZmqSender, to_tnet
from gripproxy.grip import tnetstring
from gripproxy.grip.item import parse_tnet
from gripproxy.grip.item_json import parse_json
from gripproxy.grip.item_pack import pack_item
from tests.support.control_port import Answer, Port


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    port = Port()
    port.put_in_place(monkeypatch)
    return port


class TestHttp:
    def test_kept_connection_that_was_closed_meanwhile(self, port: Port) -> None:
        sender = HttpSender("http://h", None, 1.0)
        port.answers = [Answer(will_close=False), BrokenPipeError(), Answer(will_close=False)]
        sender.send([{"channel": "a"}])
        sender.send([{"channel": "b"}])
        assert [item["channel"] for item in port.items] == ["a", "b", "b"]
        assert port.closed == 1


class TestAudience:
    def test_asks_only_when_wanted(self, port: Port) -> None:
        HttpSender("http://h", None, 1.0).send([{"channel": "a"}])
        HttpSender("http://h", None, 1.0, Audience()).send([{"channel": "a"}])
        plain, counted = [request[4] for request in port.requests]
        assert plain == {"Content-Type": "application/json"}
        assert counted == plain | {"Accept": "application/json", "Gripproxy-Count": "yes"}

    def test_adds_up_over_requests(self, port: Port) -> None:
        audience = Audience()
        sender = HttpSender("http://h", None, 1.0, audience)
        port.answers = [
            Answer(body=b'{"message":"Published","subscribers":[3,0]}'),
            Answer(body=b'{"subscribers":[5]}'),
        ]
        sender.send([{"channel": "a"}, {"channel": "b"}])
        sender.send([{"channel": "c"}])
        assert str(audience) == "8 (1 of 3 items had none)"

    @pytest.mark.parametrize(
        ("answers", "text"),
        [
            ([(b'{"subscribers":[2]}', 1)], "2"),
            ([(b'{"subscribers":[0]}', 1)], "0"),
            ([(b'{"subscribers":[0,0]}', 2)], "0 (2 of 2 items had none)"),
            ([(b"Published\n", 1)], "unknown: this control port does not tell"),
            ([(b'{"message":"Published"}', 2)], "unknown: this control port does not tell"),
            ([(b'{"subscribers":[1]}', 1), (b"", 2)], "1 (unknown for 2 of 3 items)"),
            ([(b'{"subscribers":[1]}', 2)], "unknown: this control port does not tell"),
            ([(b'{"subscribers":["1"]}', 1)], "unknown: this control port does not tell"),
            ([(b'{"subscribers":1}', 1)], "unknown: this control port does not tell"),
            ([(b"[1]", 1)], "unknown: this control port does not tell"),
        ],
    )
    def test_text(self, answers: list[tuple[bytes, int]], text: str) -> None:
        audience = Audience()
        for answer, items in answers:
            audience.add(answer, items)
        assert str(audience) == text


class TestTnet:
    def test_same_item_as_json(self) -> None:
        binary = base64.b64encode(b"\x00\xff").decode()
        for formats in (
            {"http-response": {"code": 201, "body-bin": binary, "headers": [["A", "b"]]}},
            {"http-stream": {"content": "é"}, "ws-message": {"content": "x"}},
            {"http-stream": {"content-bin": binary}, "ws-message": {"content-bin": binary}},
            {"http-response": {"body-patch": [{"op": "add", "path": "/a", "value": [1.5, None, True]}]}},
            {"ws-message": {"action": "close", "code": 4001, "reason": "r"}},
        ):
            item = {"channel": "c", "id": "1", "prev-id": "0", "no-seq": True, "size": 3, "meta": {"a": "b"}}
            for whole in (item | {"formats": formats}, item | formats):
                before = orjson.dumps(whole)
                _, decoded = tnetstring.decode_payload(to_tnet(whole))
                assert pack_item(parse_tnet(decoded)) == pack_item(parse_json(whole))
                assert orjson.dumps(whole) == before


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(0)


class TestZmq:
    ITEM: ClassVar = {"channel": "a", "http-stream": {"content": "x"}}

    def test_publish(self, context: zmq.Context[zmq.Socket[bytes]], tmp_path: pathlib.Path) -> None:
        with context.socket(zmq.PULL) as pull:
            pull.bind(f"ipc://{tmp_path}/pull")
            sender = ZmqSender(f"ipc://{tmp_path}/pull", 5.0)
            sender.send([self.ITEM])
            assert pull.recv() == to_tnet(self.ITEM)
            sender.close()

    @pytest.mark.parametrize("kind", [zmq.REP, zmq.PUB, zmq.ROUTER])
    def test_a_socket_of_another_kind(
        self, context: zmq.Context[zmq.Socket[bytes]], tmp_path: pathlib.Path, kind: int
    ) -> None:
        with context.socket(kind) as other:
            other.bind(f"ipc://{tmp_path}/other")
            with pytest.raises(PublishError, match="what listens there is no PULL socket"):
                ZmqSender(f"ipc://{tmp_path}/other", 5.0)

    @pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
    def test_a_server_of_another_protocol(self, tmp_path: pathlib.Path, answer: bytes) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"{tmp_path}/http")
        server.listen()

        def serve() -> None:
            client, _ = server.accept()
            client.recv(1)
            client.sendall(answer)
            client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PublishError, match="what listens there does not speak ZeroMQ"):
            ZmqSender(f"ipc://{tmp_path}/http", 5.0)
        thread.join()
        server.close()

    def test_nobody(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(PublishError, match="no socket takes messages there"):
            ZmqSender(f"ipc://{tmp_path}/none", 0.05)
