"""gripproxy.cli.publish: the items that options make, files of items, and what the other side answers."""

from __future__ import annotations

import base64
import http.client
import io
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy import __version__
from gripproxy.cli import publish
from gripproxy.cli.publish import Progress, read_item, read_lines
from gripproxy.cli.publish_transport import Batch, PublishError
from tests.support.control_port import Answer, Port


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    port = Port()
    port.put_in_place(monkeypatch)
    monkeypatch.delenv("GRIP_URL", raising=False)
    return port


def sent(port: Port, *argv: str) -> Any:
    """Publish, and return the one item that was posted."""
    assert publish.main(argv) == 0
    (item,) = port.items
    return item


def failed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert publish.main(argv) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    return err[7:-1]


class TestItem:
    """What pushpin-publish 1.36 sends for the same options was recorded, and is expected here."""

    def test_content(self, port: Port, capsys: pytest.CaptureFixture[str]) -> None:
        assert sent(port, "c", "hello") == {
            "channel": "c",
            "formats": {
                "http-response": {"body": "hello\n", "code": 200},
                "http-stream": {"content": "hello\n"},
                "ws-message": {"content": "hello"},
            },
        }
        assert capsys.readouterr().out == "Published\n"
        place, method, path, _, headers = port.requests[0]
        assert (place, method, path) == ("http://localhost:5561", "POST", "/publish/")
        assert headers == {"Content-Type": "application/json"}

    def test_no_eol(self, port: Port) -> None:
        assert sent(port, "--no-eol", "c", "hello")["formats"]["http-stream"] == {"content": "hello"}

    def test_empty_content(self, port: Port) -> None:
        item = sent(port, "c", "")
        assert item["formats"]["http-stream"] == {"content": "\n"}
        assert item["formats"]["ws-message"] == {"content": ""}

    def test_an_empty_channel_is_refused(self, port: Port, capsys: pytest.CaptureFixture[str]) -> None:
        assert publish.main(["", "hello"]) == 1
        assert "'channel' with an empty value" in capsys.readouterr().err

    def test_everything(self, port: Port) -> None:
        item = sent(port, "--code", "404", "-H", "A: b", "-H", "C:d", "-M", "a=b", "-M", "e=f=g", "--sender", "me",
                    "--id", "1", "--prev-id", "0", "--no-seq", "c", "x")  # fmt: skip
        assert item.pop("formats")["http-response"] == {"body": "x\n", "code": 404, "headers": [["A", "b"], ["C", "d"]]}
        assert item == {
            "channel": "c", "id": "1", "prev-id": "0", "no-seq": True, "meta": {"a": "b", "e": "f=g", "sender": "me"}
        }  # fmt: skip

    def test_several_values_after_one_option(self, port: Port) -> None:
        item = sent(port, "c", "x", "-M", "a=1", "b=2", "-H", "A:b", "C: d", "--id", "7")
        assert (item["meta"], item["id"]) == ({"a": "1", "b": "2"}, "7")
        assert item["formats"]["http-response"]["headers"] == [["A", "b"], ["C", "d"]]

    def test_double_dash(self, port: Port) -> None:
        assert sent(port, "--id", "1", "--", "c", "-x")["formats"]["ws-message"] == {"content": "-x"}

    def test_hint(self, port: Port) -> None:
        hint = {"action": "hint"}
        assert sent(port, "--hint", "c")["formats"] == dict.fromkeys(
            ["http-response", "http-stream", "ws-message"], hint
        )

    def test_close(self, port: Port) -> None:
        close = {"action": "close"}
        assert sent(port, "c", "--close")["formats"] == {"http-stream": close, "ws-message": close}

    def test_patch(self, port: Port) -> None:
        operations = [{"op": "add", "path": "/a", "value": 1}]
        item = sent(port, "--patch", "c", orjson.dumps(operations).decode())
        assert item["formats"] == {"http-response": {"code": 200, "body-patch": operations}}

    def test_file_is_sent_as_it_is(self, port: Port, tmp_path: pathlib.Path) -> None:
        (tmp_path / "f").write_text("text\n")
        assert sent(port, "c", f"@{tmp_path}/f")["formats"]["ws-message"] == {"content": "text\n"}
        assert port.items[0]["formats"]["http-stream"] == {"content": "text\n"}

    def test_what_is_no_text_is_sent_as_binary(self, port: Port, tmp_path: pathlib.Path) -> None:
        (tmp_path / "f").write_bytes(b"h\xff")
        formats = sent(port, "c", f"@{tmp_path}/f")["formats"]
        binary = base64.b64encode(b"h\xff").decode()
        assert formats["http-response"] == {"code": 200, "body-bin": binary}
        assert formats["http-stream"] == formats["ws-message"] == {"content-bin": binary}

    def test_argument_that_is_no_text(self, port: Port) -> None:
        formats = sent(port, "c", os.fsdecode(b"\xff"))["formats"]
        assert base64.b64decode(formats["http-stream"]["content-bin"]) == b"\xff\n"

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["c"], "content is missing (or --hint, --close, --file)"),
            (["c", "x", "--code", "1000"], "--code must be a final status, 200 to 999, not '1000'"),
            (["c", "x", "--code", "abc"], "--code must be a final status, 200 to 999, not 'abc'"),
            (["c", "x", "-H", "bad"], "--header must be of the form 'name: value', not 'bad'"),
            (["c", "x", "-M", "bad"], "--meta must be of the form 'name=value', not 'bad'"),
            (["c", "x", "--patch"], "the patch is not valid JSON"),
            (["c", "@/no/such"], "cannot read file '/no/such': No such file or directory"),
            (["\udcff", "x"], "channel is not UTF-8"),
            (["c", "x", "--code", "1"], "--code must be a final status, 200 to 999, not '1'"),
            (["c", "x", "--code", "199"], "--code must be a final status, 200 to 999, not '199'"),
            (["c", "x", "--code", "0200"], "--code must be a final status, 200 to 999, not '0200'"),
            (["c", "x", "-H", "A: a\x01b"], "'http-response' contains 'headers' with invalid value"),
            (["c", "x", "--timeout", "0"], "--timeout must be a number of seconds above 0, not '0'"),
            (["c", "x", "--timeout", "soon"], "--timeout must be a number of seconds above 0, not 'soon'"),
            (["c", "x", "-u", "a:b", "-B", "t"], "--user and --bearer exclude each other"),
            (["c", "x", "-B", "t\r\nX: y"], "--bearer must have no line end in it"),
            (["c", "x", "-B", "t", "--spec", "http://example.com"], "authentication requires https"),
            (["c", "x", "-B", "t", "--spec", "tcp://x:1"], "authentication is for http and https only"),
            (["c", "x", "--count", "--spec", "tcp://x:1"], "--count needs a control port (http or https)"),
            (["c", "x", "--spec", "http://[x"], "--spec 'http://[x' is no URL"),
            (["c", "x", "--spec", "http://"], "--spec 'http://' has no host"),
            (["c", "x", "--spec", "http://h:99999"], "--spec 'http://h:99999' is no URL"),
            (["c", "x", "--spec", "nonsense"], "--spec 'nonsense' is neither a URL nor a ZeroMQ address"),
            (["c", "x", "--spec", "http://h/?key=base64:!"], "the key in --spec cannot be used"),
        ],
    )
    def test_errors(self, port: Port, capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
        assert failed(capsys, *argv).startswith(message)
        assert port.requests == []

    @pytest.mark.parametrize("argv", [[], ["--bad"], ["c", "x", "y"], ["--file", "f", "c", "x"]])
    def test_usage(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            publish.main(argv)
        assert stop.value.code == 2
        assert capsys.readouterr().err.startswith("gripproxy publish: error: ")

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            publish.main(["-V"])
        assert capsys.readouterr().out == f"gripproxy publish {__version__}\n"


class TestHttp:
    @pytest.mark.parametrize(
        ("spec", "place", "path"),
        [
            ("http://localhost:5561", "http://localhost:5561", "/publish/"),
            ("http://localhost:5561/", "http://localhost:5561", "/publish/"),
            ("HTTP://h", "http://h:80", "/publish/"),
            ("https://h/base/", "https://h:443", "/base/publish/"),
            ("http://[::1]:1/", "http://::1:1", "/publish/"),
        ],
    )
    def test_address(self, port: Port, spec: str, place: str, path: str) -> None:
        publish.main(["--spec", spec, "c", "x"])
        assert port.requests[0][0] == place
        assert port.requests[0][2] == path

    def test_address_from_the_environment(self, port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GRIP_URL", "http://h:1/x")
        publish.main(["c", "x"])
        assert port.requests[0][:3] == ("http://h:1", "POST", "/x/publish/")

    def test_basic(self, port: Port) -> None:
        publish.main(["--spec", "https://h", "-u", "a:b", "c", "x"])
        assert port.requests[0][4]["Authorization"] == "Basic YTpi"

    def test_bearer(self, port: Port) -> None:
        publish.main(["-B", "tok", "c", "x"])  # on the own machine, nobody reads along
        assert port.requests[0][4]["Authorization"] == "Bearer tok"

    def test_key_in_the_address(self, port: Port) -> None:
        secret = b"0123456789abcdef0123456789abcdef"
        key = "base64:" + base64.b64encode(secret).decode().replace("+", "%2B")
        publish.main(["--spec", f"http://h/?iss=me&key={key}", "c", "x"])
        scheme, _, token = port.requests[0][4]["Authorization"].partition(" ")
        assert scheme == "Bearer"
        assert jwt.decode(token, secret, ["HS256"])["iss"] == "me"
        assert port.requests[0][2] == "/publish/"

    def test_refused_by_the_port(self, port: Port, capsys: pytest.CaptureFixture[str]) -> None:
        port.answers = [Answer(400, b"Invalid format: no formats specified\n")]
        assert failed(capsys, "c", "x") == "localhost:5561 answered 400: Invalid format: no formats specified"
        port.answers = [Answer(502, b"")]
        assert failed(capsys, "c", "x") == "localhost:5561 answered 502: A Reason"

    def test_count(self, port: Port, capsys: pytest.CaptureFixture[str]) -> None:
        port.answers = [Answer(body=b'{"message":"Published","subscribers":[3]}\n')]
        assert publish.main(["--count", "c", "x"]) == 0
        assert capsys.readouterr().out == "Published\nsubscribers: 3\n"

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (ConnectionRefusedError(111, "Connection refused"), "localhost:5561: Connection refused"),
            (TimeoutError("timed out"), "localhost:5561: timed out"),
            (http.client.BadStatusLine("x"), "localhost:5561: x"),
            (http.client.RemoteDisconnected("it closed"), "localhost:5561: it closed"),
            (http.client.InvalidURL(), "localhost:5561: InvalidURL"),
        ],
    )
    def test_no_answer(self, port: Port, capsys: pytest.CaptureFixture[str], error: Exception, message: str) -> None:
        port.answers = [error]
        assert failed(capsys, "c", "x") == message


class TestZmq:
    """An address where nobody can be: ZeroMQ without a socket of the machine."""

    def test_nobody_is_there(self, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        spec = f"ipc://{tmp_path}/x"
        assert (
            failed(capsys, "c", "x", "--spec", spec, "--timeout", "0.01") == f"{spec}: no socket takes messages there"
        )


def pieces(data: bytes, sizes: Iterator[int]) -> Callable[[int], bytes]:
    """Return a ``read`` that gives ``data`` in pieces."""
    stream = io.BytesIO(data)
    return lambda limit: stream.read(min(limit, next(sizes)))


class TestLines:
    @given(st.lists(st.binary(max_size=5)), st.lists(st.integers(1, 4), min_size=1))
    def test_any_cut(self, lines: list[bytes], sizes: list[int]) -> None:
        data = b"\n".join(lines)
        expected = data.split(b"\n")
        if expected[-1] == b"":
            expected.pop()
        found = [entry for entry in read_lines(pieces(data, itertools.cycle(sizes)), "f") if entry[0] is not None]
        assert found == [(line, number) for number, line in enumerate(expected, 1)]

    def test_pause_after_what_arrived(self) -> None:
        read = pieces(b"a\nb", itertools.cycle([3]))
        assert list(read_lines(read, "f")) == [(b"a", 1), (None, 0), (b"b", 2)]

    def test_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(publish, "MAX_LINE", 5)
        assert next(read_lines(pieces(b"12345\n", itertools.repeat(9)), "f")) == (b"12345", 1)
        with pytest.raises(PublishError, match="f:2: line has more than 5 bytes"):
            list(read_lines(pieces(b"\n123456", itertools.repeat(9)), "f"))

    def test_item(self) -> None:
        line = b'{"http-stream": {"content": "x"}}'
        assert read_item(line, "f:1", "c")["channel"] == "c"
        assert read_item(b'{"channel": "d", ' + line[1:], "f:1", "c")["channel"] == "d"

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b"{", "f:1: not valid JSON"),
            (b"[]", "f:1: publish item object is not an object"),
            (b"{}", "f:1: publish item object does not contain 'channel'"),
            (b'{"channel":"c"}', "f:1: no formats specified"),
            (
                b'{"channel":"c","http-stream":{"action":"x"}}',
                "f:1: 'http-stream' contains 'action' with the unknown value 'x'",
            ),
        ],
    )
    def test_bad_item(self, line: bytes, message: str) -> None:
        with pytest.raises(PublishError) as caught:
            read_item(line, "f:1", None)
        assert str(caught.value).startswith(message)


def item_line(content: str, channel: str = "c") -> str:
    return f'{{"channel": "{channel}", "formats": {{"http-stream": {{"content": "{content}"}}}}}}\n'


class TestFiles:
    def test_batches(self, port: Port, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "items"
        path.write_text("".join(item_line(str(number)) + "\n  \n" for number in range(250)))
        assert publish.main(["--file", str(path)]) == 0
        assert [len(request[3]["items"]) for request in port.requests] == [100, 100, 50]
        contents = [item["formats"]["http-stream"]["content"] for item in port.items]
        assert contents == [str(number) for number in range(250)]
        assert capsys.readouterr() == ("Published 250 items\n", "")

    def test_count(self, port: Port, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "items"
        path.write_text(item_line("1") * 3)
        port.answers = [Answer(body=b'{"subscribers":[2,0,1]}')]
        assert publish.main(["--count", "--file", str(path)]) == 0
        assert capsys.readouterr().out == "Published 3 items\nsubscribers: 3 (1 of 3 items had none)\n"

    def test_batches_by_size(self, port: Port, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "items"
        path.write_text(item_line("x" * 300_000) * 3)
        assert publish.main(["--file", str(path)]) == 0
        assert [len(request[3]["items"]) for request in port.requests] == [1, 1, 1]

    def test_channel_for_lines_without_one(self, port: Port, tmp_path: pathlib.Path) -> None:
        (tmp_path / "items").write_text('{"http-stream": {"content": "x"}}')
        publish.main(["--file", str(tmp_path / "items"), "here"])
        assert [item["channel"] for item in port.items] == ["here"]

    def test_standard_input_is_not_kept_waiting(self, port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, writing = os.pipe()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reading, "rb")))
        os.write(writing, item_line("1").encode())
        seen: list[int] = []
        read = os.read

        def note(descriptor: int, limit: int) -> bytes:
            seen.append(len(port.items))
            if len(seen) == 2:
                os.write(writing, item_line("2").encode())
                os.close(writing)
            return read(descriptor, limit)

        monkeypatch.setattr(os, "read", note)
        assert publish.main(["--file", "-"]) == 0
        assert seen == [0, 1, 2]

    def test_error_says_how_many_came_before(
        self, port: Port, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "items"
        path.write_text(item_line("1") * 120 + "nonsense\n")
        assert failed(capsys, "--file", str(path)).startswith(f"{path}:121: not valid JSON")
        assert len(port.items) == 100
        port.answers = [Answer(), Answer(400, b"no")]
        path.write_text(item_line("1") * 120)
        assert failed(capsys, "--file", str(path)) == (
            "localhost:5561 answered 400: no (100 items were published before)"
        )

    def test_interrupted(self, port: Port, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "items"
        path.write_text(item_line("1"))

        def interrupt(self: Batch) -> int:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Batch, "flush", interrupt)
            assert failed(capsys, "--file", str(path)) == "interrupted (0 items were published before)"

    def test_missing(self, port: Port, capsys: pytest.CaptureFixture[str]) -> None:
        assert failed(capsys, "--file", "/no/such") == "cannot read file '/no/such': No such file or directory"


class TestProgress:
    def test_terminal(self) -> None:
        stream = io.StringIO()
        progress = Progress(stream, True, 200, 100.0)
        progress.update(1, 10, 100.1)
        assert stream.getvalue() == ""
        progress.update(30, 100, 101.0)
        progress.update(30, 100, 101.1)
        progress.update(9, 200, 102.0)
        progress.close()
        first, second = "30 items published, 30/s, 50%", "9 items published, 4/s, 100%"
        assert stream.getvalue() == f"\r{first}\r{second.ljust(len(first))}\n"

    def test_elsewhere_only_when_it_takes_long(self) -> None:
        stream = io.StringIO()
        progress = Progress(stream, False, None, 0.0)
        progress.update(1, None, 9.0)
        progress.update(20, 5, 10.0)
        progress.update(30, 5, 19.0)
        progress.close()
        assert stream.getvalue() == "20 items published, 2/s\n"
