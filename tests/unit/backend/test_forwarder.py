"""Request heads for backends (docs/grip.md §2.1 to §2.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gripproxy.backend.forwarder import FEATURES, Forwarder
from gripproxy.grip.signature import Signer, load_key, verify
from gripproxy.grip.x_forwarded_for import ForwardedFor
from gripproxy.http1.request_parser import Request
from gripproxy.routing.forward_settings import ForwardSettings
from gripproxy.routing.grammar import parse_routes
from gripproxy.routing.match import host_name

KEY = load_key("secret", Path())
assert KEY is not None
NOW = 1_700_000_000.5


def forwarder(line: str = "* one:80", signed: bool = True, **changes: Any) -> Forwarder:
    """The forwarder of a route line's first target; ``changes`` are fields of ForwardSettings."""
    settings: dict[str, Any] = {
        "forwarded_for": ForwardedFor.parse(""),
        "forwarded_for_trusted": ForwardedFor.parse(""),
        "accept_proto": False,
        "set_proto": "false",
        "need_mark": frozenset(),
        "accept_route": False,
        "cdn_token": b"",
        "upstream_key": None,
    }
    table, problems = parse_routes(line, "routes")
    assert not problems
    (route,) = table.routes
    assert KEY is not None
    signer = Signer(KEY, "me") if signed else None
    return Forwarder(route, route.targets[0], ForwardSettings(**{**settings, **changes}), signer, lambda: NOW)


def request(*headers: tuple[bytes, bytes], method: bytes = b"GET", target: bytes = b"/x") -> Request:
    made = Request(method, target, list(headers), 1)
    made.host = next((value for name, value in headers if name.lower() == b"host"), None)
    return made


HOST = (b"Host", b"h")


def lines(
    made: Forwarder, sent: Request, length: int | None = 0, secure: bool = False, trusted: bool = False, **more: Any
) -> list[bytes]:
    """The lines of the head but for the signature, request line first."""
    head = made.head(sent, length, lambda: b"192.0.2.1", secure, trusted, **more)
    assert head.endswith(b"\r\n\r\n")
    return [line for line in head[:-4].split(b"\r\n") if not line.startswith((b"Grip-Sig:", b"Grip-Feature:"))]


class TestHeaders:
    def test_a_plain_request(self) -> None:
        made = lines(forwarder(), request(HOST, (b"X-Y", b"z"), (b"Cookie", b"c")))
        assert made == [b"GET /x HTTP/1.1", b"Host: h", b"X-Y: z", b"Cookie: c"]

    def test_some_stay_behind(self) -> None:
        dropped = [
            b"Connection",
            b"Keep-Alive",
            b"Accept-Encoding",
            b"content-encoding",
            b"Transfer-Encoding",
            b"Expect",
        ]
        sent = request(HOST, *((name, b"x") for name in dropped), (b"Grip-Any", b"x"), (b"TE", b"trailers"))
        assert lines(forwarder(), sent) == [b"GET /x HTTP/1.1", b"Host: h", b"TE: trailers"]

    def test_names_alike_stay_behind_where_theirs_do(self) -> None:
        alike = [b"Accept_Encoding", b"Content_Length", b"grip_sig", b"eb9bf0f5_x", b"Transfer.Encoding"]
        sent = request(HOST, *((name, b"x") for name in alike), (b"X_Forwarded_For", b"y"), (b"CDN_Loop", b"z"))
        made = [b"GET /x HTTP/1.1", b"Host: h"]
        assert lines(forwarder(), sent) == [*made, b"X_Forwarded_For: y", b"CDN_Loop: z"]
        rule = ForwardedFor.parse("append")
        assert lines(forwarder(forwarded_for=rule), sent) == [*made, b"CDN_Loop: z", b"X-Forwarded-For: 192.0.2.1"]
        looped = lines(forwarder(cdn_token=b"me"), sent)
        assert looped == [*made, b"X_Forwarded_For: y", b"CDN-Loop: me"]

    def test_names_alike_pass_from_a_trusted_client_where_theirs_do(self) -> None:
        sent = request(HOST, (b"Grip_Any", b"x"), (b"Accept_Encoding", b"x"))
        assert lines(forwarder(), sent, trusted=True) == [b"GET /x HTTP/1.1", b"Host: h", b"Grip_Any: x"]

    def test_a_missing_host_is_made(self) -> None:
        assert lines(forwarder(), request())[1] == b"Host: localhost"

    def test_the_length_is_ours(self) -> None:
        sent = request(HOST, (b"Content-Length", b"99"), method=b"POST")
        assert lines(forwarder(), sent, 5)[-1] == b"Content-Length: 5"
        assert lines(forwarder(), request(HOST, method=b"POST"), 5)[-1] == b"Content-Length: 5"
        chunked = lines(forwarder(), sent, None)
        assert (b"Transfer-Encoding: chunked" in chunked, b"Content-Length: 99" in chunked) == (True, False)

    def test_headers_of_the_route_replace_the_clients(self) -> None:
        made = forwarder("*,header=X-Y:new,header=X-Z:z one:80")
        assert lines(made, request(HOST, (b"x-y", b"old")))[2:] == [b"X-Y: new", b"X-Z: z"]

    def test_last_ids(self) -> None:
        made = lines(forwarder(), request(HOST), last_ids=[(b"a", b"1"), (b"b", b"2")])
        assert made[-2:] == [b"Grip-Last: a; last-id=1", b"Grip-Last: b; last-id=2"]

    @pytest.mark.parametrize("code", [*range(9), *range(10, 32), 127])
    def test_last_ids_with_control_characters_stay_behind(self, code: int) -> None:
        bad = b"1%c2" % code
        made = lines(forwarder(), request(HOST), last_ids=[(bad, b"1"), (b"a", bad), (b"b\t\xe9", b"2")])
        assert [line for line in made if line.startswith(b"Grip-Last")] == [b"Grip-Last: b\t\xe9; last-id=2"]


class TestHost:
    @pytest.mark.parametrize(
        ("line", "sent", "expected"),
        [
            ("* one:80", b"H:81", b"H:81"),
            ("* one:80", b"h:80", b"h"),
            ("* one:443,ssl", b"h:443", b"h"),
            ("* one:443,ssl", b"h:80", b"h:80"),
            ("* one:80", b"[::1]:80", b"[::1]"),
            ("* one:80", b"[::80]", b"[::80]"),
            ("*,as_host=other one:80", b"h", b"other"),
            ("*,as_host=other one:80,host=third", b"h", b"third"),
        ],
    )
    def test_what_the_backend_is_asked_for(self, line: str, sent: bytes, expected: bytes) -> None:
        assert b"Host: " + expected in lines(forwarder(line), request((b"Host", sent)))

    @pytest.mark.parametrize(
        ("host", "name"), [(b"H:80", b"h"), (b"h", b"h"), (b"[::1]:80", b"::1"), (b"[FE80::1]", b"fe80::1")]
    )
    def test_the_name_alone(self, host: bytes, name: bytes) -> None:
        assert host_name(host) == name


class TestSignature:
    def test_every_request_is_signed_and_says_what_it_knows(self) -> None:
        head = forwarder().head(request(HOST), 0, lambda: b"", False, False)
        (sig,) = [line[10:] for line in head.split(b"\r\n") if line.startswith(b"Grip-Sig: ")]
        assert verify(sig, KEY, int(NOW), "me")
        assert b"Grip-Feature: " + FEATURES in head

    def test_without_key_the_features_only(self) -> None:
        assert forwarder(signed=False).grip_headers() == b"Grip-Feature: " + FEATURES + b"\r\n"

    def test_a_route_without_grip_says_nothing(self) -> None:
        assert forwarder("*,no_grip one:80").grip_headers() == b""


class TestTrusted:
    def signed(self, secret: str) -> Request:
        key = load_key(secret, Path())
        assert key is not None
        return request(HOST, (b"Grip-Sig", Signer(key, "x").token(int(NOW))), (b"Grip-Any", b"1"))

    def test_a_proxy_before_us(self) -> None:
        made = forwarder(upstream_key=load_key("up", Path()))
        sent = self.signed("up")
        assert made.trusted(sent)
        head = made.head(sent, 0, lambda: b"", False, True)
        assert b"Grip-Any: 1\r\n" in head
        assert head.count(b"Grip-Sig: ") == 1
        assert b"Grip-Feature" not in head

    def test_others_are_not(self) -> None:
        made = forwarder(upstream_key=load_key("up", Path()))
        assert not made.trusted(self.signed("other"))
        assert not made.trusted(request(HOST))
        assert not made.trusted(request(HOST, (b"Grip-Sig", b"nonsense")))

    def test_no_key_trusts_nobody(self) -> None:
        assert not forwarder().trusted(self.signed("up"))


class TestForwarded:
    def test_the_address_of_the_client(self) -> None:
        rule = ForwardedFor.parse("truncate:1,append")
        sent = request(HOST, (b"X-Forwarded-For", b"1.1.1.1, 2.2.2.2"))
        assert lines(forwarder(forwarded_for=rule), sent)[-1] == b"X-Forwarded-For: 2.2.2.2, 192.0.2.1"
        assert lines(forwarder(), sent)[-1] == b"X-Forwarded-For: 1.1.1.1, 2.2.2.2"

    @pytest.mark.parametrize(
        ("setting", "expected"),
        [
            ("true", [b"X-Forwarded-Proto: https", b"X-Forwarded-Protocol: https"]),
            ("proto-only", [b"X-Forwarded-Proto: https"]),
        ],
    )
    def test_the_scheme(self, setting: str, expected: list[bytes]) -> None:
        made, sent = forwarder(set_proto=setting), request(HOST, (b"X-Forwarded-Proto", b"spoofed"))
        assert lines(made, sent, secure=True)[2:] == expected
        assert lines(made, sent)[2:] == []

    def test_a_loop_is_marked(self) -> None:
        made = forwarder(cdn_token=b"me")
        assert lines(made, request(HOST, (b"CDN-Loop", b"other")))[-1] == b"CDN-Loop: other, me"


class TestOriginalHeaders:
    MARK = b"eb9bf0f5-"

    def test_copies_are_made(self) -> None:
        made = forwarder("*,orig_headers one:80", need_mark=frozenset((b"x-need",)))
        sent = request(HOST, (b"X-A", b"1"), (self.MARK + b"X-B", b"2"), (b"X-Need", b"3"))
        assert lines(made, sent)[2:] == [
            b"X-A: 1",
            b"X-Need: 3",
            self.MARK + b"X-B: 2",
            self.MARK + b"Host: h",
            self.MARK + b"X-A: 1",
        ]

    def test_marked_ones_are_dropped_elsewhere(self) -> None:
        assert lines(forwarder(), request(HOST, (self.MARK + b"X-B", b"2"))) == [b"GET /x HTTP/1.1", b"Host: h"]


def test_the_path_is_rewritten() -> None:
    made = forwarder("*,path_beg=/a,replace_beg=/b one:80")
    assert lines(made, request(HOST, target=b"/a/x?y"))[0] == b"GET /b/x?y HTTP/1.1"
