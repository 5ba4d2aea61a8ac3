"""Filters that decide whether an item is delivered (docs/grip.md §7)."""

from __future__ import annotations

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold, response
from tests.wire.wirekit.holding import long_poll, stream

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n*,path_beg=/prefixed,prefix=pre- {backend}\n")


@covers("7 skip-self")
def test_skip_self(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=skip-self", "Grip-Set-Meta: user=alice"))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "from alice\n", meta={"sender": "alice"})
        site.publisher.stream(case, "from bob\n", meta={"sender": "bob"})
        assert client.data_until(b"\n") == b"from bob\n"
        site.publisher.stream(case, "from nobody\n", meta={"sender": ""})
        assert client.data_until(b"\n") == b"from nobody\n"


@covers("7 skip-self")
def test_skip_self_needs_both_names(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=skip-self"))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "no user, no sender\n", meta={"sender": ""})
        assert client.data_until(b"\n") == b"no user, no sender\n"


@covers("7 skip-users")
def test_skip_users(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=skip-users", "Grip-Set-Meta: user=alice"))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "dropped\n", meta={"skip_users": "bob, alice ,carl"})
        site.publisher.stream(case, "not quite\n", meta={"skip_users": "bob,alice2, Alice"})
        assert client.data_until(b"\n") == b"not quite\n"
        site.publisher.stream(case, "nobody\n", meta={"skip_users": ""})
        assert client.data_until(b"\n") == b"nobody\n"


@covers("7 require-sub", "1.3 prefix")
def test_require_sub(site: Site, case: str) -> None:
    site.backend.on(f"/prefixed/{case}", hold("stream", f"{case}; filter=require-sub, {case}-other"))
    with stream(site, f"/prefixed/{case}") as client:
        for wanted in ("nowhere", f"pre-{case}-other"):
            site.publisher.stream(f"pre-{case}", "dropped\n", meta={"require_sub": wanted})
        for wanted in (f"{case}-other", case, ""):
            site.publisher.stream(f"pre-{case}", f"{wanted}\n", meta={"require_sub": wanted})
            assert client.data_until(b"\n").decode() == f"{wanted}\n"


@covers("7 per channel", "7 order")
def test_each_channel_has_its_own_filters(site: Site, case: str) -> None:
    filters = "filter=skip-self; filter=skip-users"
    site.backend.on(f"/{case}", hold("stream", f"{case}; {filters}, {case}-free", "Grip-Set-Meta: user=alice"))
    with stream(site, f"/{case}") as client:
        meta = {"sender": "alice", "skip_users": "alice"}
        site.publisher.stream(case, "filtered\n", meta=meta)
        site.publisher.stream(case, "filtered too\n", meta={"skip_users": "alice"})
        site.publisher.stream(f"{case}-free", "free\n", meta=meta)
        assert client.data_until(b"\n") == b"free\n"


@covers("7 order", "7 error effect")
def test_the_first_drop_stops(site: Site, case: str) -> None:
    filters = "filter=skip-self; filter=var-subst"
    site.backend.on(f"/debug/{case}", hold("stream", f"{case}; {filters}", "Grip-Set-Meta: user=alice"))
    with stream(site, f"/debug/{case}") as client:
        site.publisher.stream(case, "%(unknown)s", meta={"sender": "alice"})
        site.publisher.stream(case, "%(user)s\n")
        assert client.data_until(b"\n") == b"alice\n"


@covers("3.1 grip-channel", "7 skip-self")
def test_filter_is_written_in_lower_case(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; Filter=skip-self", "Grip-Set-Meta: user=alice"))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "from alice\n", meta={"sender": "alice"})
        assert client.data_until(b"\n") == b"from alice\n"


def http_filters_are_known() -> bool:
    """Tell whether this proxy has http-check and http-modify; unknown filters are ignored."""
    return expect(
        pushpin=False,
        ours=True,
        pushpin_does="Ignores the filters `http-check` and `http-modify`, which it does not know.",
        ours_does="Applies the filters `http-check` and `http-modify`.",
        because="They are part of the coming Pushpin 2.0.",
    )


@covers("7 http-check")
def test_http_check(site: Site, case: str) -> None:
    known = http_filters_are_known()
    site.backend.on(
        f"/{case}-check", [response("200 OK", "Action: drop"), response("204 No Content"), response("200 OK")]
    )
    meta = f"Grip-Set-Meta: url={case}-check, user=ann"
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=http-check", meta))
    with stream(site, f"/{case}") as client:
        for text in ("one\n", "two\n", "three\n"):
            site.publisher.stream(case, text, meta={"sender": "bob"})
        if not known:
            assert client.data(14) == b"one\ntwo\nthree\n"
            return
        assert client.data(10) == b"two\nthree\n"
    asked = site.backend.request(f"/{case}-check")
    assert asked.method == "POST"
    assert asked.body == b""
    assert asked["sub-meta"] in (f'{{"url":"{case}-check","user":"ann"}}', f'{{"user":"ann","url":"{case}-check"}}')
    assert asked["pub-meta"] == '{"sender":"bob"}'
    assert asked["grip-last"] is None


@covers("7 http-modify")
def test_http_modify(site: Site, case: str) -> None:
    known = http_filters_are_known()
    answers = [response("200 OK", body="changed\n"), response("204 No Content"), response("200 OK", "Action: drop")]
    site.backend.on(f"/{case}-modify", [*answers, answers[0]])
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=http-modify", f"Grip-Set-Meta: url=/{case}-modify"))
    with stream(site, f"/{case}") as client:
        for text in ("one\n", "two\n", "three\n", "four\n"):
            site.publisher.stream(case, text)
        if not known:
            assert client.data(19) == b"one\ntwo\nthree\nfour\n"
            return
        assert client.data(20) == b"changed\ntwo\nchanged\n"
    assert [site.backend.request(f"/{case}-modify", n).body for n in range(4)] == [
        b"one\n",
        b"two\n",
        b"three\n",
        b"four\n",
    ]


@covers("7 http-modify", "7 after patch")
def test_http_modify_of_a_long_poll(site: Site, case: str) -> None:
    known = http_filters_are_known()
    site.backend.on(f"/{case}-modify", response("200 OK", body="changed\n"))
    site.backend.on(
        f"/{case}",
        hold("response", f"{case}; filter=http-modify", f"Grip-Set-Meta: url=/{case}-modify", body='{"a":1}'),
    )
    with long_poll(site, f"/{case}", case) as client:
        site.publisher.publish(
            {"channel": case, "http-response": {"body-patch": [{"op": "add", "path": "/b", "value": 2}]}}
        )
        answer = client.response()
        assert answer.body == (b"changed\n" if known else b'{"a":1,"b":2}')
        if known:
            assert site.backend.request(f"/{case}-modify").body == b'{"a":1,"b":2}'


@covers("7 http errors", "7 error effect")
@pytest.mark.parametrize("problem", ["status", "oversize", "no url"])
def test_http_filters_that_fail(site: Site, case: str, problem: str) -> None:
    known = http_filters_are_known()
    bad = response("500 Oops") if problem == "status" else response("200 OK", body="x" * 100_001)
    site.backend.on(f"/{case}-modify", [bad, response("204 No Content")])
    meta = "Grip-Set-Meta: x=y" if problem == "no url" else f"Grip-Set-Meta: url=/{case}-modify"
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=http-modify, {case}-free", meta))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "skipped\n")
        if not known:
            assert client.data_until(b"\n") == b"skipped\n"
        if problem == "no url":
            site.publisher.stream(f"{case}-free", "later\n")
        else:
            site.publisher.stream(case, "later\n")
        assert client.data_until(b"\n") == b"later\n"
