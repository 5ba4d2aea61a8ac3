"""docs/grip.md §5.5: answers of the control port, byte by byte as Pushpin gives them."""

from __future__ import annotations

import pathlib

import pytest

from gripproxy import pipe
from gripproxy.grip.signature import load_key
from handler.control.api import Api
from handler.control.authenticator import Authenticator
from handler.control.http_message import ApiRequest
from handler.dispatch.dispatcher import Dispatcher

ITEM = b'{"channel":"ch","formats":{"http-stream":{"content":"x"}}}'


class Worker:
    def __init__(self) -> None:
        self.got: list[pipe.Message] = []

    def send(self, message: pipe.Message) -> None:
        self.got.append(message)


@pytest.fixture
def dispatcher() -> Dispatcher:
    return Dispatcher()


@pytest.fixture
def api(dispatcher: Dispatcher) -> Api:
    return Api(dispatcher, Authenticator(None), lambda: 0.0, lambda: 0.0)


def ask(
    api: Api, method: bytes, target: bytes, body: bytes = b"", accept: bytes | None = None, count: bool = False
) -> bytes:
    headers = [(b"Host", b"x")]
    if accept is not None:
        headers.append((b"Accept", accept))
    if count:
        headers.append((b"Gripproxy-Count", b"yes"))
    return api.respond(ApiRequest(method, target, headers=headers), body)


def whole(status: bytes, body: bytes, content_type: bytes = b"text/plain", extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Type: %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        extra,
        content_type,
        len(body),
        body,
    )


def test_an_item_over_a_bound_is_refused(api: Api, dispatcher: Dispatcher) -> None:
    body = b'{"items":[%b,{"channel":"ch","id":"%b","http-stream":{"content":"x"}}]}' % (ITEM, b"1" * 1025)
    fault = b"publish item object contains 'id' of 1025 bytes, at most 1024 are allowed (id_max)"
    detail = b"Invalid format: items[1]: %b\n" % fault
    assert ask(api, b"POST", b"/publish/", body) == whole(b"400 Bad Request", detail)
    assert (dispatcher.counters.received, dispatcher.counters.invalid) == (0, 1)
    assert dispatcher.refusals.totals()["http"] == 1


HELLO = whole(b"200 OK", b"Pushpin API\n")
NOT_FOUND = whole(b"404 Not Found", b"Not Found\n")
NOT_ACCEPTABLE = whole(
    b"406 Not Acceptable", b"Not Acceptable. Supported formats are text/plain and application/json.\n"
)
TEXT = whole(b"200 OK", b"Published\n")
JSON = whole(b"200 OK", b'{"message":"Published"}\n', b"application/json")


def test_the_whole_of_one_answer_literally(api: Api) -> None:
    assert ask(api, b"GET", b"/publish") == (
        b"HTTP/1.1 405 Method Not Allowed\r\n"
        b"Allow: POST\r\n"
        b"Content-Type: text/plain\r\n"
        b"Connection: close\r\n"
        b"Content-Length: 25\r\n"
        b"\r\n"
        b"Method not allowed: GET.\n"
    )


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/", HELLO),
        (b"//", HELLO),
        (b"/?a=b", NOT_FOUND),
        (b"/nope", NOT_FOUND),
        (b"/publish?x=1", NOT_FOUND),
        (b"/publish//", NOT_FOUND),
        (b"/Publish", NOT_FOUND),
        (b"*", NOT_FOUND),
    ],
)
def test_paths(api: Api, target: bytes, expected: bytes) -> None:
    assert ask(api, b"GET", target) == expected


@pytest.mark.parametrize("method", [b"GET", b"POST", b"DELETE"])
def test_the_root_takes_any_method(api: Api, method: bytes) -> None:
    assert ask(api, method, b"/") == HELLO


def test_head_has_no_body(api: Api) -> None:
    assert ask(api, b"HEAD", b"/") == HELLO.removesuffix(b"Pushpin API\n")


@pytest.mark.parametrize("path", [b"/publish", b"/publish/", b"/recover", b"/recover/"])
@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"PUT"])
def test_other_methods(api: Api, method: bytes, path: bytes) -> None:
    text = b"Method not allowed: %b.\n" % method
    assert ask(api, method, path) == whole(b"405 Method Not Allowed", text, extra=b"Allow: POST\r\n")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, TEXT),
        (b"text/plain", TEXT),
        (b"text/*", TEXT),
        (b"*/*", TEXT),
        (b"*", TEXT),
        (b"application/json", JSON),
        (b"application/*", JSON),
        (b"application/json, text/plain", TEXT),
        (b"text/plain, application/json", JSON),
        (b"application/json;q=0.5, text/html", JSON),
        (b"text/html, application/json; q=0", JSON),
        (b"application/json, text/plain;q=0.1", TEXT),
        (b"text/html", NOT_ACCEPTABLE),
        (b"APPLICATION/JSON", NOT_ACCEPTABLE),
        (b"", NOT_ACCEPTABLE),
    ],
)
def test_accept(api: Api, accept: bytes | None, expected: bytes) -> None:
    assert ask(api, b"POST", b"/publish/", b'{"items":[]}', accept) == expected


def test_accept_lines_are_one_list(api: Api) -> None:
    headers = [(b"Accept", b"application/json"), (b"accept", b"text/html")]
    assert api.respond(ApiRequest(b"POST", b"/publish", headers=headers), b'{"items":[]}') == JSON


def test_accept_goes_before_anything_else(api: Api) -> None:
    assert ask(api, b"GET", b"/nope", accept=b"text/html") == NOT_ACCEPTABLE


def test_errors_are_text_whatever_is_accepted(api: Api) -> None:
    assert ask(api, b"GET", b"/nope", accept=b"application/json") == NOT_FOUND
    assert ask(api, b"POST", b"/", accept=b"application/json") == HELLO


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", b"Body is not valid JSON.\n"),
        (b"xx", b"Body is not valid JSON.\n"),
        (b"1", b"Body is not valid JSON.\n"),
        (b'"a"', b"Body is not valid JSON.\n"),
        (b"null", b"Body is not valid JSON.\n"),
        (b'{"items":[]} x', b"Body is not valid JSON.\n"),
        (b'\xff{"items":[]}', b"Body is not valid JSON.\n"),
        (b"[]", b"Invalid format.\n"),
        (b"{}", b"Invalid format: object does not contain 'items'\n"),
        (b'{"items":1}', b"Invalid format: object contains 'items' with wrong type\n"),
        (b'{"items":null}', b"Invalid format: object contains 'items' with wrong type\n"),
        (b'{"items":[1]}', b"Invalid format: publish item object is not an object\n"),
        (b'{"items":[{}]}', b"Invalid format: publish item object does not contain 'channel'\n"),
        (b'{"items":[{"channel":"a"}]}', b"Invalid format: no formats specified\n"),
        (
            b'{"items":[{"channel":"a","http-stream":{"action":"zz"}}]}',
            b"Invalid format: 'http-stream' contains 'action' with the unknown value 'zz'\n",
        ),
    ],
)
def test_bad_bodies(api: Api, body: bytes, text: bytes) -> None:
    assert ask(api, b"POST", b"/publish", body) == whole(b"400 Bad Request", text)


def test_published_items_reach_the_worker(api: Api, dispatcher: Dispatcher) -> None:
    worker = Worker()
    dispatcher.joined(worker, [(b"ch", 0, 1, 0, None)], 0)
    assert ask(api, b"POST", b"/publish", b'{"items":[%b,%b]}' % (ITEM, ITEM)) == TEXT
    assert [message[0] for message in worker.got] == [pipe.ITEM, pipe.ITEM]


def test_one_bad_item_stops_all(api: Api, dispatcher: Dispatcher) -> None:
    worker = Worker()
    dispatcher.joined(worker, [(b"ch", 0, 1, 0, None)], 0)
    ask(api, b"POST", b"/publish", b'{"items":[%b,{}]}' % ITEM)
    assert worker.got == []
    assert dispatcher.counters.invalid == 1


def test_recover(api: Api, dispatcher: Dispatcher) -> None:
    worker = Worker()
    dispatcher.joined(worker, [], 0)
    assert ask(api, b"POST", b"/recover", b"whatever") == whole(b"200 OK", b"Updated\n")
    assert ask(api, b"POST", b"/recover/", accept=b"application/json") == whole(
        b"200 OK", b'{"message":"Updated"}\n', b"application/json"
    )
    assert worker.got == [(pipe.COMMAND, 0, "recover", {})] * 2


def test_counted_subscribers(api: Api, dispatcher: Dispatcher) -> None:
    dispatcher.joined(Worker(), [(b"ch", 1, 20, 0, None)], 0)
    dispatcher.joined(Worker(), [(b"ch", 0, 3, 0, None)], 0)
    with_id = b'{"id":"1",' + ITEM[1:]
    body = b'{"items":[%b,{"channel":"nobody","http-stream":{"content":""}},%b,%b]}' % (ITEM, with_id, with_id)
    assert ask(api, b"POST", b"/publish", body, b"application/json", True) == whole(
        b"200 OK", b'{"message":"Published","subscribers":[23,0,23,0]}\n', b"application/json"
    )
    assert ask(api, b"POST", b"/publish", b'{"items":[%b,%b]}' % (ITEM, with_id), count=True) == whole(
        b"200 OK", b"Published\nsubscribers: 23 0\n"
    )
    assert ask(api, b"POST", b"/publish", b'{"items":[]}', count=True) == whole(b"200 OK", b"Published\nsubscribers:\n")


def test_a_key_closes_every_path_but_the_root(dispatcher: Dispatcher) -> None:
    api = Api(dispatcher, Authenticator(load_key("secret", pathlib.Path())), lambda: 0.0, lambda: 0.0)
    assert api.admits(b"/", [])
    for path in (b"/publish", b"/recover/", b"/nope", b"//", b"/?x"):
        assert not api.admits(path, [])
        assert api.admits(path, [(b"authorization", b"Bearer secret")])


class TestReserved:
    """Items on channels that begin with ``reserved_prefix``."""

    REFUSED = (
        b"Forbidden: channels that begin with 'hub/' are reserved: use another channel, or send Authorization: Bearer "
        b"with reserved_key or a token made with it.\n"
    )
    RESERVED = b'{"items":[%b]}' % ITEM.replace(b'"ch"', b'"hub/1"')
    BATCH = b'{"items":[%b,%b]}' % (ITEM, ITEM.replace(b'"ch"', b'"hub/1"'))
    FREE = b'{"items":[%b]}' % ITEM.replace(b'"ch"', b'"hub"')

    def ask(self, api: Api, body: bytes, key: bytes = b"", times: int = 1) -> list[bytes]:
        """Return the codes of the answers to equal requests, whose head is one object as in the server."""
        headers = [(b"Authorization", b"Bearer " + key)] if key else []
        request = ApiRequest(b"POST", b"/publish/", headers=headers)
        return [api.respond(request, body).split(b" ", 2)[1] for _ in range(times)]

    @pytest.fixture
    def api(self, dispatcher: Dispatcher) -> Api:
        keys = [load_key(name, pathlib.Path()) for name in ("control", "reserved")]
        return Api(dispatcher, Authenticator(keys[0], "", keys[1]), lambda: 0.0, lambda: 0.0, b"hub/")

    def test_the_answer_names_the_prefix_and_the_cure(self, api: Api) -> None:
        request = ApiRequest(b"POST", b"/publish/", headers=[])
        assert api.respond(request, self.RESERVED) == whole(b"403 Forbidden", self.REFUSED)

    def test_a_request_without_the_reserved_key_is_refused_whole(self, api: Api, dispatcher: Dispatcher) -> None:
        for body in (self.RESERVED, self.BATCH):
            for key in (b"", b"control", b"other"):
                assert self.ask(api, body, key, 2) == [b"403", b"403"]
        assert (dispatcher.counters.received, dispatcher.counters.http) == (0, 0)
        assert dispatcher.counters.invalid == dispatcher.refusals.totals()["http"] == 12

    def test_the_reserved_key_may_use_all_channels(self, api: Api, dispatcher: Dispatcher) -> None:
        for body in (self.RESERVED, self.BATCH, self.FREE):
            assert self.ask(api, body, b"reserved", 3) == [b"200"] * 3
        assert dispatcher.counters.received == 12

    def test_other_channels_are_for_all_and_between_them_reserved_ones_are_refused(self, api: Api) -> None:
        request = ApiRequest(b"POST", b"/publish/", headers=[(b"Authorization", b"Bearer control")])
        codes = [
            api.respond(request, body).split(b" ", 2)[1] for body in (self.FREE, self.FREE, self.RESERVED, self.FREE)
        ]
        assert codes == [b"200", b"200", b"403", b"200"]

    def test_a_port_without_reserved_channels(self, dispatcher: Dispatcher) -> None:
        api = Api(dispatcher, Authenticator(None), lambda: 0.0, lambda: 0.0)
        assert self.ask(api, self.BATCH, times=2) == [b"200", b"200"]
