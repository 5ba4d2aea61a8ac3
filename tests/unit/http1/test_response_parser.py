"""The contract of the wrapper for responses: what its docstring promises over llhttp, and that nothing else escapes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.http1.response_parser import INTERIM_MAX, LINES_MAX, RESPONSE_HEAD_MAX, BadResponse, ResponseParser


class Responses:
    """Collects what a backend's bytes become."""

    def __init__(self, head: bool = False, upgrade: bool = False) -> None:
        self.told: list[Any] = []
        self.parser = ResponseParser(self)
        self.parser.expect(head, upgrade)

    def response_begun(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.told.append((code, reason, headers))

    def response_body(self, data: bytes) -> None:
        if self.told and isinstance(self.told[-1], bytes):
            self.told[-1] += data
        else:
            self.told.append(data)

    def response_complete(self) -> None:
        self.told.append("complete")

    def interim_response(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.told.append(("interim", code, reason, headers))

    def feed(self, *pieces: bytes) -> Responses:
        for piece in pieces:
            self.parser.feed(piece)
        return self

    @property
    def body(self) -> bytes:
        return b"".join(entry for entry in self.told if isinstance(entry, bytes))

    @property
    def complete(self) -> bool:
        return bool(self.told[-1] == "complete")


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class TestResponse:
    def test_with_length(self) -> None:
        responses = Responses().feed(OK)
        assert responses.told == [(200, b"OK", [(b"Content-Length", b"5")]), b"hello", "complete"]
        assert responses.parser.reusable

    def test_chunked_with_trailers_which_are_dropped_here_and_in_the_next(self) -> None:
        responses = Responses().feed(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"
        )
        assert responses.told[0][2] == [(b"Transfer-Encoding", b"chunked")]
        assert (responses.body, responses.complete) == (b"hello", True)
        responses.told.clear()
        responses.parser.expect(False)
        responses.feed(OK)
        assert responses.told[0] == (200, b"OK", [(b"Content-Length", b"5")])

    def test_without_length_it_ends_with_the_connection(self) -> None:
        responses = Responses().feed(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo")
        assert not responses.complete
        assert (responses.parser.to_eof, responses.parser.reusable) == (True, False)
        assert responses.parser.eof()
        assert (responses.body, responses.complete) == (b"hello", True)
        assert not responses.parser.eof()

    @pytest.mark.parametrize(
        "data", [b"", b"HTTP/1.1 2", OK[:-1], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5"]
    )
    def test_an_end_before_the_end_completes_nothing(self, data: bytes) -> None:
        responses = Responses().feed(*([data] if data else []))
        assert not responses.parser.eof()
        assert "complete" not in responses.told

    @pytest.mark.parametrize("framing", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b""])
    def test_head_has_no_body_whatever_it_says(self, framing: bytes) -> None:
        responses = Responses(head=True).feed(b"HTTP/1.1 200 OK\r\n%b\r\n" % framing)
        assert (responses.body, responses.complete) == (b"", True)
        if framing:
            responses.parser.expect(False)
            assert responses.feed(OK).body == b"hello"
        assert responses.parser.reusable == bool(framing)

    @pytest.mark.parametrize("code", [204, 304])
    def test_some_have_no_body(self, code: int) -> None:
        responses = Responses().feed(b"HTTP/1.1 %d X\r\n\r\n" % code)
        assert (responses.complete, responses.parser.to_eof) == (True, False)

    def test_interim_ones_come_before_the_final_one(self) -> None:
        responses = Responses().feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n", OK)
        assert responses.told == [
            ("interim", 100, b"Continue", []),
            ("interim", 103, b"Early", [(b"Link", b"x")]),
            (200, b"OK", [(b"Content-Length", b"5")]),
            b"hello",
            "complete",
        ]

    def test_an_interim_one_that_closes_does_not_hide_the_final_one_however_they_are_cut(self) -> None:
        data = b"HTTP/1.1 103 A\r\nConnection: close\r\n\r\nHTTP/1.1 102 B\r\nConnection: close\r\n\r\n" + OK
        whole = Responses().feed(data)
        assert [told[:2] for told in whole.told[:3]] == [("interim", 103), ("interim", 102), (200, b"OK")]
        assert whole.told[3:] == [b"hello", "complete"]
        assert whole.parser.reusable
        for place in range(1, len(data)):
            assert Responses().feed(data[:place], data[place:]).told[:3] == whole.told[:3]

    def test_identity_is_no_coding(self) -> None:
        responses = Responses().feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Identity\r\n\r\n2\r\nhi")
        assert responses.parser.eof()
        assert responses.told[1:] == [b"2\r\nhi", "complete"]
        assert not responses.parser.reusable

    def test_a_coding_on_http_1_0_is_the_last_on_its_connection(self) -> None:
        data = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        responses = Responses().feed(data)
        assert responses.told[1:] == [b"hi", "complete"]
        assert not responses.parser.reusable

    def test_http_1_0_and_close_are_not_reused(self) -> None:
        assert not Responses().feed(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").parser.reusable
        assert (
            not Responses().feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").parser.reusable
        )

    def test_a_reason_may_be_empty_or_cut(self) -> None:
        assert Responses().feed(b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n").told[0][1] == b""
        assert Responses().feed(b"HTTP/1.1 200 Fi", b"ne\r\nContent-Length: 0\r\n\r\n").told[0][1] == b"Fine"


def test_a_length_of_more_digits_than_python_reads() -> None:
    for _ in range(3):
        responses = Responses().feed(b"HTTP/1.1 200 OK\r\nContent-Length: %b2\r\n\r\nhi" % (b"0" * 5000))
        assert responses.told[1:] == [b"hi", "complete"]


class TestBadResponse:
    def test_bytes_nobody_asked_for(self) -> None:
        responses = Responses().feed(OK)
        with pytest.raises(BadResponse, match="answer no request"):
            responses.feed(b"x")

    @pytest.mark.parametrize("more", [b"x", OK, b"\r\n\r\nHTTP", b"\0"])
    def test_more_than_the_response_in_the_same_read(self, more: bytes) -> None:
        """The answer stands, the connection does not."""
        responses = Responses().feed(OK + more)
        assert responses.told[-2:] == [b"hello", "complete"]
        if more.strip():
            assert not responses.parser.reusable

    @pytest.mark.parametrize(
        "data",
        [
            b"hello",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
            b"HTTP/1.1 101 X\r\n\r\n",
            b"HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 20 X\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 2000 X\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/2.0 200 X\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 a\x00b\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 a\x7fb\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 103 a\x1bb\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
            b"HTTP/1.1 103 Early\r\nX: " + b"y" * INTERIM_MAX,
        ],
    )
    def test_what_is_no_response(self, data: bytes) -> None:
        with pytest.raises(BadResponse):
            Responses().feed(data)

    def test_a_head_has_a_bound_however_it_comes(self) -> None:
        start = b"HTTP/1.1 200 OK\r\n"
        line = b"X: " + b"y" * 1000 + b"\r\n"
        fine = start + line * (RESPONSE_HEAD_MAX // 1100) + b"Content-Length: 0\r\n\r\n"
        assert Responses().feed(fine).complete
        large = start + line * (RESPONSE_HEAD_MAX // 1000 + 2)
        with pytest.raises(BadResponse, match="head has more than"):
            Responses().feed(large + b"\r\n")
        with pytest.raises(BadResponse, match="head has more than"):
            Responses().feed(start, *[line] * 400)

    @pytest.mark.parametrize(
        ("status", "end"), [(b"200 OK", b"\r\n"), (b"200 OK", b"a"), (b"103 Early Hints", b"\r\n")]
    )
    def test_a_head_has_a_bound_of_lines(self, status: bytes, end: bytes) -> None:
        """Short lines take thirty times their bytes as objects: the bound in bytes alone allows megabytes."""
        start = b"HTTP/1.1 %b\r\n" % status
        fine = Responses().feed(start + b"a:b\r\n" * LINES_MAX + b"\r\n")
        assert len(fine.told) == 1
        bad = Responses()
        with pytest.raises(BadResponse, match=f"its head has {LINES_MAX + 1} lines and more, at most {LINES_MAX}"):
            bad.feed(start + b"a:b\r\n" * (LINES_MAX + 1) + end)
        assert bad.told == []

    def test_an_error_is_no_circle(self) -> None:
        """What a bad head left behind is freed at once, not when the collector comes by."""
        bad = Responses()
        with pytest.raises(BadResponse) as caught:
            bad.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n")
        names = set()
        trace = caught.value.__traceback__
        while trace is not None:
            names |= {name for name, value in trace.tb_frame.f_locals.items() if value is caught.value}
            trace = trace.tb_next
        assert names <= {"caught"}

    def test_a_switch_that_was_asked_for(self) -> None:
        responses = Responses(upgrade=True)
        responses.feed(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00")
        assert responses.told[0][0] == 101
        assert responses.parser.switched
        assert responses.parser.rest == b"\x81\x00"
        assert not responses.parser.reusable


# --- fuzzing: whatever comes and however it is cut, only the documented errors escape


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data cut at these places (taken modulo its length)."""
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


places = st.lists(st.integers(0, 10_000), max_size=12)


class TestFuzz:
    @given(
        st.sampled_from(
            [
                OK,
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x\r\ncde\r\n0\r\nT: 1\r\n\r\n",
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 No\r\n\r\nto the end",
                b"HTTP/1.1 204 No Content\r\n\r\n",
            ]
        ),
        places,
        st.booleans(),
    )
    def test_good_responses_are_the_same_however_they_are_cut(self, data: bytes, where: list[int], head: bool) -> None:
        if head:
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        once, cut_up = Responses(head), Responses(head)
        once.feed(data)
        cut_up.feed(*cut(data, where))
        assert once.parser.eof() == cut_up.parser.eof()
        assert once.told == cut_up.told
        assert once.parser.reusable == cut_up.parser.reusable

    @settings(max_examples=150)
    @given(
        st.lists(
            st.sampled_from(
                [OK, b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"]
            )
            | st.sampled_from(
                [b"HTTP/1.1 103 E\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n", b"5\r\nhello\r\n"]
            )
            | st.binary(max_size=10),
            max_size=6,
        ),
        places,
        st.booleans(),
        st.booleans(),
    )
    def test_mangled_responses_end_in_bad_response_or_none(
        self, pieces: list[bytes], where: list[int], head: bool, upgrade: bool
    ) -> None:
        responses = Responses(head, upgrade)
        try:
            responses.feed(*cut(b"".join(pieces), where))
            responses.parser.eof()
        except BadResponse:
            pass
        assert responses.told.count("complete") <= 1
