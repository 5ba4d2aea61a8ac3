import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.grip.bounds import Bounds
from gripproxy.grip.headers import Headers
from gripproxy.grip.instruct import ChannelSpec, Instruct, InstructError, KeepAlive, is_grip
from gripproxy.grip.instruct_parser import parse_instruct, unescape_cstring
from gripproxy.grip.links import NextLink
from gripproxy.grip.response import Response

STREAM = (b"Grip-Hold", b"stream")
RESPONSE = (b"Grip-Hold", b"response")
INSTRUCT = (b"Content-Type", b"application/grip-instruct")


def parse(*headers: tuple[bytes, bytes], code: int = 200, reason: bytes = b"Fine", body: bytes = b"body") -> Instruct:
    return parse_instruct(Response(code, reason, list(headers), body))


def detail_of(*headers: tuple[bytes, bytes], code: int = 200, body: bytes = b"") -> str:
    with pytest.raises(InstructError) as caught:
        parse(*headers, code=code, body=body)
    assert str(caught.value) == caught.value.detail
    return caught.value.detail


class TestIsGrip:
    """docs/grip.md §2.5, last paragraph."""

    @pytest.mark.parametrize(
        "name",
        [
            b"Grip-Hold",
            b"Grip-Channel",
            b"Grip-Timeout",
            b"Grip-Keep-Alive",
            b"Grip-Status",
            b"Grip-Expose-Headers",
            b"Grip-Set-Meta",
            b"Grip-Link",
            b"Grip-Session-Id",
            b"Grip-Last",
            b"Grip-Sig",
            b"Grip-X",
            b"Grip-",
            b"grip-hold",
            b"GRIP-CHANNEL",
            b"gRiP-tImEoUt",
            b"Grip-Unknown",
        ],
    )
    def test_any_grip_header(self, name: bytes) -> None:
        assert is_grip([(b"Server", b"x"), (b"Content-Type", b"text/plain"), (name, b"")])

    @pytest.mark.parametrize(
        "value",
        [
            b"application/grip-instruct",
            b" application/grip-instruct ",
            b"application/grip-instruct; charset=utf-8",
            b"application/grip-instruct;charset=utf-8",
            b"Application/GRIP-Instruct",
        ],
    )
    def test_the_instruct_type(self, value: bytes) -> None:
        assert is_grip([(b"content-TYPE", value)])

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [(b"", b""), (b"A", b"1"), (b"Grip", b"1"), (b"Grips-Hold", b"1"), (b"X-Grip-Hold", b"stream")],
            [(b"Grap-Hold", b"stream"), (b"Gri--Hold", b"stream"), (b"Hold-Grip-A", b"")],
            [(b"Content-Type", b"application/grip-instructions")],
            [(b"Content-Type", b"application/json; a=application/grip-instruct")],
            [(b"Content-Typo", b"application/grip-instruct"), (b"Content-Types", b"application/grip-instruct")],
            [(b"Accept", b"application/grip-instruct"), (b"Content-Type", b"")],
        ],
    )
    def test_nothing_else(self, headers: Headers) -> None:
        assert not is_grip(headers)

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40))))
    def test_same_answer_as_the_plain_definition(self, headers: Headers) -> None:
        expected = any(
            name.lower().startswith(b"grip-")
            or (name.lower() == b"content-type" and value.split(b";")[0].strip().lower() == INSTRUCT[1])
            for name, value in headers
        )
        assert is_grip(headers) == expected


class TestHold:
    @pytest.mark.parametrize("mode", ["response", "stream"])
    def test_mode(self, mode: str) -> None:
        assert parse((b"grip-hold", mode.encode())).mode == mode

    def test_defaults(self) -> None:
        instruct = parse((b"Grip-Foo", b"1"))
        assert instruct == Instruct(None, (), 55, None, {}, None, None, Response(200, b"Fine", [], b"body"))

    def test_only_the_first_occurrence_counts(self) -> None:
        assert parse(STREAM, RESPONSE).mode == "stream"

    @pytest.mark.parametrize("value", [b"", b"Stream", b"streams", b"stream, response", b"none"])
    def test_other_modes(self, value: bytes) -> None:
        assert detail_of((b"Grip-Hold", value)) == "Grip-Hold must be set to either 'response' or 'stream'"

    @pytest.mark.parametrize(
        ("value", "seconds"),
        [(b"0", 5), (b"4", 5), (b"5", 5), (b"6", 6), (b" 90 ", 90), (b"+7", 7), (b"2147483647", 2147483647)],
    )
    def test_timeout(self, value: bytes, seconds: int) -> None:
        assert parse(RESPONSE, (b"Grip-Timeout", value)).timeout == seconds

    @pytest.mark.parametrize("value", [b"", b"x", b"5s", b"1.5", b"1_0", b"2147483648", b"9" * 5000, b"0x10", b"\xb2"])
    def test_timeout_that_is_no_integer(self, value: bytes) -> None:
        assert detail_of(RESPONSE, (b"Grip-Timeout", value)) == "failed to parse Grip-Timeout"

    def test_negative_timeout(self) -> None:
        assert detail_of(RESPONSE, (b"Grip-Timeout", b"-1")) == "Grip-Timeout has invalid value"


class TestChannels:
    @pytest.mark.parametrize(
        ("values", "channels"),
        [
            ([b"a"], [ChannelSpec(b"a")]),
            ([b"a, b", b"c"], [ChannelSpec(b"a"), ChannelSpec(b"b"), ChannelSpec(b"c")]),
            ([b""], []),
            ([b"a; prev-id=7"], [ChannelSpec(b"a", b"7")]),
            ([b"a; Prev-Id=7; prev-id=8"], [ChannelSpec(b"a", b"7")]),
            ([b'a; prev-id="x,\\"y;"'], [ChannelSpec(b"a", b'x,"y;')]),
            ([b"a; prev-id"], [ChannelSpec(b"a")]),
            ([b'a; prev-id=""'], [ChannelSpec(b"a")]),
            ([b"a; filter=skip-self; filter=x"], [ChannelSpec(b"a", None, ("skip-self", "x"))]),
            ([b"a; FILTER=skip-self"], [ChannelSpec(b"a")]),
            ([b"a; filter=\xff"], [ChannelSpec(b"a", None, ("\ufffd",))]),
            ([b"; prev-id=1"], [ChannelSpec(b"", b"1")]),
            ([b"\xc3\xa4/%41"], [ChannelSpec(b"\xc3\xa4/%41")]),
        ],
    )
    def test_header(self, values: list[bytes], channels: list[ChannelSpec]) -> None:
        assert list(parse(STREAM, *((b"Grip-Channel", value) for value in values)).channels) == channels

    def test_an_item_with_an_unclosed_quote_is_skipped(self) -> None:
        assert parse(STREAM, (b"Grip-Channel", b'a, b; prev-id="1')).channels == (ChannelSpec(b"a"),)

    @pytest.mark.parametrize("value", [b"a\rb", b"a\nb", b"a\x00b", b'a; prev-id="1\r\nX: y"'])
    def test_line_breaks_would_get_into_grip_last(self, value: bytes) -> None:
        assert detail_of(STREAM, (b"Grip-Channel", value)) == "failed to parse Grip-Channel"

    def test_number_of_filters(self) -> None:
        assert len(parse((b"Grip-Channel", b"c" + b"; filter=f" * 5)).channels[0].filters) == 5
        assert detail_of((b"Grip-Channel", b"a, c" + b"; filter=f" * 6)) == "too many filters for channel 'c'"

    def test_a_long_name_is_not_remembered(self) -> None:
        header = (b"Grip-Channel", b"c" * 257)
        first, second = parse(header).channels[0], parse(header).channels[0]
        assert first == second == ChannelSpec(b"c" * 257)
        assert first is not second

    def test_equal_holds_share_their_channel(self) -> None:
        header = (b"Grip-Channel", b"shared; prev-id=1")
        assert parse(header).channels[0] is parse(header).channels[0]


class TestKeepAlive:
    @pytest.mark.parametrize(
        ("value", "keep_alive"),
        [
            (b"k", KeepAlive(b"k", "idle", 55)),
            (b"k; mode=interval", KeepAlive(b"k", "interval", 55)),
            (b"k; Mode=idle; Timeout=20", KeepAlive(b"k", "idle", 20)),
            (b"k; mode; format", KeepAlive(b"k", "idle", 55)),
            (b"k; timeout=0", KeepAlive(b"k", "idle", 1)),
            (b"k; timeout=1", KeepAlive(b"k", "idle", 1)),
            (b"k, l; format=raw", KeepAlive(b"k, l", "idle", 55)),
            (b"\\n; format=raw", KeepAlive(b"\\n", "idle", 55)),
            (b'"k"', KeepAlive(b'"k"', "idle", 55)),
            (b":\\n\\n; format=cstring", KeepAlive(b":\n\n", "idle", 55)),
            (b"\\x00\\xfF\\\\\\r; format=cstring", KeepAlive(b"\x00\xff\\\r", "idle", 55)),
            (b"a2EK; format=base64", KeepAlive(b"ka\n", "idle", 55)),
            (b"a2E; format=base64", KeepAlive(b"ka", "idle", 55)),
            (b"a2!!EK =; format=base64", KeepAlive(b"ka\n", "idle", 55)),
            (b"a2EKa; format=base64", KeepAlive(b"ka\n", "idle", 55)),
        ],
    )
    def test_header(self, value: bytes, keep_alive: KeepAlive) -> None:
        assert parse(STREAM, (b"Grip-Keep-Alive", value)).keep_alive == keep_alive

    @pytest.mark.parametrize("value", [b"", b" ", b'k; mode="idle', b"!; format=base64", b"a; format=base64"])
    def test_nothing_to_send_is_no_keep_alive(self, value: bytes) -> None:
        assert parse(STREAM, (b"Grip-Keep-Alive", value)).keep_alive is None

    @pytest.mark.parametrize(
        ("value", "detail"),
        [
            (b"; timeout=3", "Grip-Keep-Alive cannot be empty"),
            (b"k; mode=x", "no such Grip-Keep-Alive mode 'x'"),
            (b"k; mode=IDLE", "no such Grip-Keep-Alive mode 'IDLE'"),
            (b"k; format=x", "no such Grip-Keep-Alive format 'x'"),
            (b"k; format=\xff", "no such Grip-Keep-Alive format '\ufffd'"),
            (b"k; timeout=x", "failed to parse Grip-Keep-Alive timeout value"),
            (b"k; timeout", "failed to parse Grip-Keep-Alive timeout value"),
            (b"k; timeout=-1", "Grip-Keep-Alive timeout has invalid value"),
            (b"k\\; format=cstring", "failed to parse Grip-Keep-Alive cstring format"),
            (b"k\\x; format=cstring", "failed to parse Grip-Keep-Alive cstring format"),
            (b"k\\x1; format=cstring", "failed to parse Grip-Keep-Alive cstring format"),
            (b"k\\x1g; format=cstring", "failed to parse Grip-Keep-Alive cstring format"),
            (b"\\q; format=cstring", "failed to parse Grip-Keep-Alive cstring format"),
        ],
    )
    def test_errors(self, value: bytes, detail: str) -> None:
        assert detail_of(STREAM, (b"Grip-Keep-Alive", value)) == detail

    def test_long_data(self) -> None:
        assert parse((b"Grip-Keep-Alive", b"k" * 5000)).keep_alive == KeepAlive(b"k" * 5000)

    def test_equal_holds_share_their_keep_alive(self) -> None:
        header = (b"Grip-Keep-Alive", b"shared\\n; format=cstring")
        assert parse(header).keep_alive is parse(header).keep_alive


class TestCstring:
    """docs/grip.md §3.1."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (b"", b""),
            (b"plain", b"plain"),
            (b"\\n", b"\n"),
            (b"\\r\\n", b"\r\n"),
            (b"\\\\", b"\\"),
            (b"\\\\n", b"\\n"),
            (b"\\\\\\n", b"\\\n"),
            (b"\\x41", b"A"),
            (b"\\x41\\x0a1", b"A\n1"),
            (b"\\x5cn", b"\\n"),
            (b"\\xAb\\xaB", b"\xab\xab"),
            (b"\\t", b""),
            (b"a\\qb", b"ab"),
            (b"\\X41", b"41"),
            (b'\\"', b""),
            (b"\\\n", b""),
        ],
    )
    def test_escapes(self, text: bytes, expected: bytes) -> None:
        assert unescape_cstring(text) == expected

    @pytest.mark.parametrize(
        "text", [b"\\", b"a\\", b"\\\\\\", b"\\x", b"\\x4", b"\\xg0", b"\\x0g", b"\\x+1", b"\\x 1"]
    )
    def test_broken(self, text: bytes) -> None:
        assert unescape_cstring(text) is None

    @settings(deadline=None)
    @given(st.binary())
    def test_any_bytes_can_be_written(self, data: bytes) -> None:
        assert unescape_cstring(b"".join(b"\\x%02x" % byte for byte in data)) == data

    @settings(deadline=None)
    @given(st.binary())
    def test_any_text_is_read_or_refused(self, text: bytes) -> None:
        result = unescape_cstring(text)
        assert result is None or len(result) <= len(text)


class TestMeta:
    @pytest.mark.parametrize(
        ("values", "meta"),
        [
            ([b"user=alice; x=1, name=Al", b'q="a,b"'], {b"user": b"alice", b"name": b"Al", b"q": b"a,b"}),
            ([b"a=1", b"a=2"], {b"a": b"2"}),
            ([b"a"], {b"a": b""}),
            ([b""], {}),
            ([b";"], {}),
            ([b'b=1, a="x'], {b"b": b"1"}),
        ],
    )
    def test_header(self, values: list[bytes], meta: dict[bytes, bytes]) -> None:
        assert parse(STREAM, *((b"Grip-Set-Meta", value) for value in values)).meta == meta


class TestLinks:
    @pytest.mark.parametrize(
        ("value", "link"),
        [
            (b"</n>; rel=next", NextLink(b"/n", 120)),
            (b"</n>; rel=next; timeout=4", NextLink(b"/n", 4)),
            (b'</n>; rel="next"; Timeout=0', NextLink(b"/n", 0)),
            (b"<n?x=1>; REL=next", NextLink(b"n?x=1", 120)),
            (b"<http://h/n>; rel=next", NextLink(b"http://h/n", 120)),
            (b"</a>; rel=next, </b>; rel=next; timeout=7", NextLink(b"/b", 7)),
            (b"</n x>; rel=next", NextLink(b"/n%20x", 120)),
            (b"</n>", None),
            (b"</n>; rel=prev", None),
            (b"</n>; rel=NEXT", None),
            (b"junk; rel=other", None),
            (b"</n>; rel=other; timeout=x", None),
            (b'</n>; rel="next', None),
            (b"", None),
        ],
    )
    def test_next(self, value: bytes, link: NextLink | None) -> None:
        assert parse((b"Grip-Link", value)).next == link

    def test_a_long_link(self) -> None:
        assert parse((b"Grip-Link", b"</" + b"n" * 5000 + b">; rel=next")).next == NextLink(b"/" + b"n" * 5000)

    def test_gone(self) -> None:
        instruct = parse(STREAM, (b"Grip-Link", b"</n>; rel=next"), (b"Grip-Link", b"</g1>; rel=gone, </g>; rel=gone"))
        assert instruct.next == NextLink(b"/n")
        assert instruct.gone == b"/g"

    @pytest.mark.parametrize(
        ("value", "detail"),
        [
            (b"/n; rel=next", "failed to parse Grip-Link value"),
            (b"<>; rel=next", "failed to parse Grip-Link value"),
            (b"; rel=next", "failed to parse Grip-Link value"),
            (b"</n; rel=next", "failed to parse Grip-Link value"),
            (b"<; rel=gone", "failed to parse Grip-Link value"),
            (b"<http://h:99999/>; rel=next", "Grip-Link contains invalid link"),
            (b"<http://a b/>; rel=gone", "Grip-Link contains invalid link"),
            (b"<1:2>; rel=next", "Grip-Link contains invalid link"),
            (b"<ftp://h/>; rel=next", "Grip-Link contains invalid link"),
            (b"</n>; rel=next; timeout=x", "failed to parse Grip-Link timeout value"),
            (b"</n>; rel=next; timeout", "failed to parse Grip-Link timeout value"),
            (b"</n>; rel=next; timeout=-1", "Grip-Link timeout has invalid value"),
        ],
    )
    def test_errors(self, value: bytes, detail: str) -> None:
        assert detail_of((b"Grip-Link", value)) == detail


class TestClientResponse:
    @pytest.mark.parametrize(
        ("value", "code", "reason"),
        [
            (b"404", 404, b"Not Found"),
            (b"404 ", 404, b"Not Found"),
            (b"404 Nothing here", 404, b"Nothing here"),
            (b"200", 200, b"OK"),
            (b"999", 999, b"Undefined Reason"),
            (b"299 Odd", 299, b"Odd"),
            (b"", 200, b"Fine"),
        ],
    )
    def test_status(self, value: bytes, code: int, reason: bytes) -> None:
        response = parse((b"Grip-Status", value)).response
        assert (response.code, response.reason) == (code, reason)

    @pytest.mark.parametrize(
        "value",
        [
            b"x",
            b"1000",
            b"-1 x",
            b"200x",
            b"200.0",
            b"OK 200",
            b"0",
            b"1",
            b"100",
            b"103 Early Hints",
            b"199",
            b"0200",
            b"+20",
        ],
    )
    def test_status_that_is_none(self, value: bytes) -> None:
        assert detail_of((b"Grip-Status", value)) == "Grip-Status contains invalid status code"

    @pytest.mark.parametrize("code", [0, 99, 101, 199])
    def test_a_response_that_is_not_final(self, code: int) -> None:
        with pytest.raises(InstructError, match=f"the response has the status {code}; expected a final one"):
            parse(STREAM, code=code)

    @pytest.mark.parametrize("code", [*range(9), *range(10, 32), 127])
    def test_status_reason_with_a_control_character(self, code: int) -> None:
        assert detail_of((b"Grip-Status", b"200 a%cb" % code)) == "Grip-Status contains invalid reason"

    def test_status_reason_with_a_line_break(self) -> None:
        assert detail_of((b"Grip-Status", b"200 OK\r\nX: y")) == "Grip-Status contains invalid reason"

    def test_any_status_may_hold(self) -> None:
        instruct = parse(STREAM, code=404, reason=b"Nope")
        assert (instruct.mode, instruct.response.code, instruct.response.reason) == ("stream", 404, b"Nope")

    def test_grip_and_framing_headers_are_stripped(self) -> None:
        instruct = parse(
            STREAM,
            (b"ETag", b"x"),
            (b"gRIP-Unknown", b"1"),
            (b"Content-Length", b"4"),
            (b"connection", b"close"),
            (b"Keep-Alive", b"1"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Set-Cookie", b"a"),
            (b"set-cookie", b"b"),
        )
        assert instruct.response.headers == [(b"ETag", b"x"), (b"Set-Cookie", b"a"), (b"set-cookie", b"b")]

    @pytest.mark.parametrize(
        ("exposed", "names"),
        [
            ([b"x-a"], [b"X-A", b"x-a"]),
            ([b"X-A, x-b"], [b"X-A", b"X-B", b"x-a"]),
            ([b"X-B", b"content-type"], [b"X-B", b"Content-Type"]),
            ([b"X-None"], []),
            ([b""], [b"X-A", b"X-B", b"x-a", b"Content-Type"]),
        ],
    )
    def test_expose_headers(self, exposed: list[bytes], names: list[bytes]) -> None:
        headers = [(b"X-A", b"1"), (b"X-B", b"2"), (b"x-a", b"3"), (b"Content-Type", b"text/plain")]
        instruct = parse(*headers, *((b"Grip-Expose-Headers", value) for value in exposed))
        assert [name for name, _ in instruct.response.headers] == names

    def test_the_backends_response_is_left_alone(self) -> None:
        headers = [STREAM, (b"X-A", b"1"), (b"Grip-Status", b"404")]
        response = Response(200, b"OK", list(headers), b"x")
        parse_instruct(response)
        assert response == Response(200, b"OK", headers, b"x")


# --- whatever a backend sends, only InstructError may escape

_VALUES = st.one_of(
    st.binary(max_size=60),
    st.text('ab0159;=,"\\<>/:xn- \r\n', max_size=40).map(str.encode),
    st.sampled_from(
        [b"stream", b"response", b"</a>; rel=next; timeout=1", b"k\\n; format=cstring", b"404 x", b"a; prev-id=1"]
    ),
)
_NAMES = st.sampled_from(
    [
        b"Grip-Hold",
        b"Grip-Channel",
        b"Grip-Timeout",
        b"Grip-Keep-Alive",
        b"Grip-Status",
        b"Grip-Expose-Headers",
        b"Grip-Set-Meta",
        b"Grip-Link",
        b"Grip-Foo",
        b"Content-Type",
        b"X-A",
        b"Content-Length",
    ]
)


def check_promises(instruct: Instruct) -> None:
    """What the docstrings of Instruct and its parts promise to the code behind them."""
    assert instruct.mode in (None, "response", "stream")
    assert instruct.timeout >= 5
    assert all(len(channel.filters) <= 5 for channel in instruct.channels)
    for channel in instruct.channels:
        assert not set(channel.name + (channel.prev_id or b"")) & set(b"\r\n\0")
    assert instruct.keep_alive is None or (instruct.keep_alive.data and instruct.keep_alive.timeout >= 1)
    assert instruct.next is None or instruct.next.timeout >= 0
    response = instruct.response
    assert 200 <= response.code <= 999
    assert not set(response.reason) & set(b"\r\n\0")
    for name, _ in response.headers:
        assert not name.lower().startswith(b"grip-")
        assert name.lower() != b"content-length"


@settings(deadline=None)
@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=6), st.integers(0, 999), st.binary(max_size=20))
def test_any_headers(headers: Headers, code: int, body: bytes) -> None:
    try:
        instruct = parse_instruct(Response(code, b"R", headers, body))
    except InstructError:
        return
    check_promises(instruct)


class TestBounds:
    SMALL = Bounds(channel=4, id=3, meta=10)

    def refused(self, *headers: tuple[bytes, bytes]) -> str:
        with pytest.raises(InstructError) as caught:
            parse_instruct(Response(200, b"OK", [STREAM, *headers]), self.SMALL)
        return caught.value.detail

    def test_they_may_be_reached(self) -> None:
        headers = [STREAM, (b"Grip-Channel", b"chan; prev-id=123"), (b"Grip-Set-Meta", b"12345=67890")]
        assert parse_instruct(Response(200, b"OK", headers), self.SMALL).channels[0].name == b"chan"

    def test_beyond_them_is_an_error(self) -> None:
        assert self.refused((b"Grip-Channel", b"a, chann")) == (
            "channel has a name of 5 bytes, at most 4 are allowed (channel_max)"
        )
        assert self.refused((b"Grip-Channel", b"a; prev-id=1234")) == (
            "channel has a prev-id of 4 bytes, at most 3 are allowed (id_max)"
        )
        assert self.refused((b"Grip-Set-Meta", b"12345=67890, a=")) == (
            "connection has meta of 11 bytes, at most 10 are allowed (meta_max)"
        )

    @pytest.mark.parametrize(
        "response",
        [
            Response(200, b"OK", [STREAM, (b"Grip-Channel", b"a, hub/1")]),
            Response(200, b"OK", [STREAM, (b"Grip-Channel", b"hub/1; prev-id=5; filter=skip-self")]),
            Response(200, b"OK", [(b"Grip-Channel", b"hub/1")]),
            Response(
                200,
                b"OK",
                [(b"Content-Type", b"application/grip-instruct")],
                b'{"hold": {"mode": "stream", "channels": [{"name": "a"}, {"name": "hub/1"}]}}',
            ),
        ],
    )
    def test_a_reserved_channel(self, response: Response) -> None:
        assert any(channel.name == b"hub/1" for channel in parse_instruct(response).channels)
        with pytest.raises(InstructError) as caught:
            parse_instruct(response, Bounds().with_reserved(b"hub/", b""))
        assert caught.value.detail == (
            "channel 'hub/1' is reserved: only routes with the property 'reserved' may use it (reserved_prefix)"
        )
        assert parse_instruct(response, Bounds().with_reserved(b"hub/", b"app-")).channels
