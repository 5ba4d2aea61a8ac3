import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.grip.cors import cors_headers
from gripproxy.grip.headers import Headers

DEFAULTS = [
    (b"Access-Control-Allow-Methods", b"OPTIONS, HEAD, GET, POST, PUT, DELETE"),
    (b"Access-Control-Allow-Credentials", b"true"),
    (b"Access-Control-Allow-Origin", b"*"),
    (b"Access-Control-Max-Age", b"3600"),
]


def test_defaults() -> None:
    assert cors_headers([], []) == DEFAULTS


def test_what_the_request_asks_for() -> None:
    request = [
        (b"origin", b"http://page.example"),
        (b"access-control-request-method", b"PATCH"),
        (b"Access-Control-Request-Headers", b"X-A, X-B"),
    ]
    added = dict(cors_headers(request, []))
    assert added[b"Access-Control-Allow-Origin"] == b"http://page.example"
    assert added[b"Access-Control-Allow-Methods"] == b"PATCH"
    assert added[b"Access-Control-Allow-Headers"] == b"X-A, X-B"


def test_all_occurrences_of_requested_headers_are_allowed() -> None:
    request = [(b"Access-Control-Request-Headers", b"X-A"), (b"Access-Control-Request-Headers", b"X-B")]
    assert dict(cors_headers(request, []))[b"Access-Control-Allow-Headers"] == b"X-A, X-B"


def test_exposed_headers_leave_out_what_needs_no_permission() -> None:
    response = [
        (b"Cache-Control", b""), (b"Content-Language", b""), (b"Content-Length", b""), (b"CONTENT-TYPE", b""),
        (b"Expires", b""), (b"Last-Modified", b""), (b"Pragma", b""), (b"Access-Control-Foo", b""), (b"Grip-Foo", b""),
        (b"ETag", b""), (b"X-A", b""), (b"x-a", b""), (b"Grips", b""),
    ]  # fmt: skip
    assert dict(cors_headers([], response))[b"Access-Control-Expose-Headers"] == b"ETag, X-A, Grips"


@pytest.mark.parametrize("name", [name for name, _ in DEFAULTS] + [b"Access-Control-Expose-Headers"])
def test_a_header_the_backend_set_stays(name: bytes) -> None:
    added = cors_headers([], [(name.lower(), b"own"), (b"X-A", b"")])
    assert name not in dict(added)
    assert len(added) == 4


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=10))),
    st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=10))),
)
def test_nothing_is_added_twice_or_empty(request: Headers, response: Headers) -> None:
    added = cors_headers(request, response)
    assert all(name and value for name, value in added)
    assert cors_headers(request, response + added) == []
