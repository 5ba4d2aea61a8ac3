"""Filters: every row and error of docs/grip.md §7, with the exchanges of §13.8."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.filters import (
    ASK_MAX_ANSWER,
    DROP,
    KNOWN,
    MESSAGE_CONTENT,
    Ask,
    AskAnswer,
    Context,
    FilterError,
    ResponseFilter,
    Send,
    Verdict,
    content_filters,
    content_filters_match,
    mismatch_text,
    run_filters,
)
from gripproxy.grip.item_cache import Shared

Meta = dict[bytes, bytes]


def context(meta: Meta | None = None, item_meta: Meta | None = None, **more: Any) -> Context:
    fields: dict[str, Any] = {
        "channel": b"ff",
        "prev_ids": {},
        "subscriptions": [b"ff", b"other"],
        "uri": b"http://h.example/dir/page?q",
    }
    return Context(meta or {}, item_meta or {}, **{**fields, **more})


def run(
    names: str, content: bytes = b"x", meta: Meta | None = None, item_meta: Meta | None = None, **more: Any
) -> Verdict:
    return run_filters(names.split(), context(meta, item_meta, **more), content, Shared())


def error(names: str, content: bytes = b"x", meta: Meta | None = None, **more: Any) -> str:
    with pytest.raises(FilterError) as e:
        run(names, content, meta, **more)
    return str(e.value)


class TestRun:
    def test_no_filters(self) -> None:
        assert run("") == Send(b"x")

    def test_unknown_names_are_ignored(self) -> None:
        assert run("nope SKIP-SELF var-subst", b"%(a)s", {b"a": b"1"}) == Send(b"1")

    def test_in_order(self) -> None:
        meta = {b"id_format": b"i", b"a": b"%I"}
        assert run("var-subst build-id", b"%(a)s %%I", meta) == Send(b"i i")
        assert error("build-id var-subst", b"%(a)s", meta) == "build-id: Unknown directive 's' at position 4"

    def test_first_drop_ends_it(self) -> None:
        assert run("skip-self var-subst", b"%", {b"user": b"u"}, {b"sender": b"u"}) is DROP

    def test_error_ends_it(self) -> None:
        assert error("var-subst skip-self", b"%", {b"user": b"u"}, item_meta={b"sender": b"u"}).startswith("var-subst")

    def test_error_has_parts(self) -> None:
        with pytest.raises(FilterError) as e:
            run("http-check")
        assert (e.value.name, e.value.problem, str(e.value)) == (
            "http-check",
            "missing url value",
            "http-check: missing url value",
        )


class TestSkipSelf:
    @pytest.mark.parametrize(
        ("user", "sender", "dropped"),
        [
            (b"alice", b"alice", True),
            (b"alice", b"bob", False),
            (b"alice", b"Alice", False),
            (b"alice", None, False),
            (None, b"alice", False),
            (b"", b"", False),
            (None, None, False),
        ],
    )
    def test_row(self, user: bytes | None, sender: bytes | None, dropped: bool) -> None:
        meta = {} if user is None else {b"user": user}
        item_meta = {} if sender is None else {b"sender": sender}
        assert run("skip-self", b"x", meta, item_meta) == (DROP if dropped else Send(b"x"))


class TestSkipUsers:
    @pytest.mark.parametrize(
        ("user", "users", "dropped"),
        [
            (b"alice", b"bob, alice", True),
            (b"alice", b"alice", True),
            (b"alice", b" \talice ,bob", True),
            (b"alice", b"alice2,ali", False),
            (b"alice", b"", False),
            (b"alice", b",,", False),
            (b"alice", None, False),
            (b"", b"a,,b", False),
            (None, b"alice", False),
        ],
    )
    def test_row(self, user: bytes | None, users: bytes | None, dropped: bool) -> None:
        meta = {} if user is None else {b"user": user}
        item_meta = {} if users is None else {b"skip_users": users}
        assert run("skip-users", b"x", meta, item_meta) == (DROP if dropped else Send(b"x"))


class TestRequireSub:
    @pytest.mark.parametrize(
        ("required", "dropped"), [(b"other", False), (b"ff", False), (b"nope", True), (b"", False), (None, False)]
    )
    def test_row(self, required: bytes | None, dropped: bool) -> None:
        item_meta = {} if required is None else {b"require_sub": required}
        assert run("require-sub", b"x", {}, item_meta) == (DROP if dropped else Send(b"x"))


class TestVarSubst:
    META: Meta = {b"user": b"alice", b"x": b"1", b"name": b"Al", b"q": b"a,b", b"empty": b"", b"a)b\\": b"odd"}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("content", "result"),
        [
            (b"6 subst %(name)s q=%(q)s %% \n", b"6 subst Al q=a,b % \n"),
            (b"", b""),
            (b"plain", b"plain"),
            (b"%(empty)s", b""),
            (b"%(x)s%(x)s%%(x)s", b"11%(x)s"),
            (rb"%(a\)b\\)s", b"odd"),
            (b"\xff%(x)s\x00", b"\xff1\x00"),
            (b"%(x)sI", b"1I"),
        ],
    )
    def test_content(self, content: bytes, result: bytes) -> None:
        assert run("var-subst", content, self.META) == Send(result)

    def test_values_are_not_substituted_again(self) -> None:
        assert run("var-subst", b"%(a)s", {b"a": b"%(b)s%", b"b": b"x"}) == Send(b"%(b)s%")

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"error %(nope)s", "No such variable 'nope' at position 13"),
            (b"%(\xff)s", "No such variable '�' at position 4"),
            (b"%s", "Directive 's' requires argument at position 1"),
            (b"%()s", "Directive 's' requires argument at position 3"),
            (b"a%I", "Unknown directive 'I' at position 2"),
            (b"%(x)d", "Unknown directive 'd' at position 4"),
            (b"%(x) ", "Unknown directive ' ' at position 4"),
            (b"100% sure", "Unknown directive ' ' at position 4"),
            (b"%1", "Unknown directive '1' at position 1"),
            (b"%\xe9", "Unknown directive 'é' at position 1"),
            (b"x%", "Expected directive after '%' at position 1"),
            (b"x%(", "Expected character after '(' at position 2"),
            (b"%(name", "Unterminated field starting at position 1"),
            (rb"%(name\)s", "Unterminated field starting at position 1"),
            (rb"%(name" + b"\\", "Expected character after '\\' at position 6"),
            (b"%(name)", "Expected directive after ')' at position 6"),
        ],
    )
    def test_errors(self, content: bytes, problem: str) -> None:
        assert error("var-subst", content, self.META) == f"var-subst: {problem}"


class TestBuildId:
    META: Meta = {b"id_format": b"v-%(ff)s"}  # noqa: RUF012
    IDS: Meta = {b"ff": b"11"}  # noqa: RUF012

    def build(self, content: bytes, **meta: bytes) -> Verdict:
        return run("build-id", content, {**self.META, **{k.encode(): v for k, v in meta.items()}}, prev_ids=self.IDS)

    def test_directives(self) -> None:
        assert self.build(b"id: %I / %(v-9)I %%I") == Send(b"id: v-11 / v-9 %I")
        assert self.build(b"plain") == Send(b"plain")
        assert self.build(rb"%(a\)b)I") == Send(b"a)b")
        assert self.build(b"%()I") == Send(b"v-11")

    def test_hex(self) -> None:
        assert self.build(b"%I / %(v-9)I", id_encoding=b"hex") == Send(b"762d3131 / 762d39")

    def test_format(self) -> None:
        assert self.build(b"%I", id_format=b"100%% %(ff)s-%(ff)s") == Send(b"100% 11-11")
        assert self.build(b"%I", id_format=b"fixed") == Send(b"fixed")
        assert self.build(b"[%I]", id_format=b"") == Send(b"[]")

    def test_every_channel_of_the_connection_counts(self) -> None:
        ids = {b"ff": b"1", b"other": b"2"}
        assert run("build-id", b"%I", {b"id_format": b"%(ff)s.%(other)s"}, prev_ids=ids) == Send(b"1.2")

    def test_without_any_channel_only_the_default_is_missing(self) -> None:
        assert run("build-id", b"%(a)I", self.META, subscriptions=[]) == Send(b"a")
        text = "build-id: No ID specified and no default ID in context at position 1"
        assert error("build-id", b"%I", self.META, subscriptions=[]) == text

    @pytest.mark.parametrize(
        ("meta", "problem"),
        [
            ({}, "no sub meta 'id_format'"),
            ({b"id_format": b"%(zz)s"}, "failed to render ID: No such variable 'zz' at position 5"),
            ({b"id_format": b"%(other)s"}, "failed to render ID: No such variable 'other' at position 8"),
            ({b"id_format": b"%I"}, "failed to render ID: Unknown directive 'I' at position 1"),
            ({b"id_format": b"%s"}, "failed to render ID: Directive 's' requires argument at position 1"),
            ({b"id_format": b"%"}, "failed to render ID: Expected directive after '%' at position 0"),
            ({b"id_format": b"x", b"id_encoding": b"base64"}, "unsupported encoding: base64"),
            ({b"id_format": b"x", b"id_encoding": b""}, "unsupported encoding: "),
        ],
    )
    def test_bad_meta_is_an_error_even_for_plain_content(self, meta: Meta, problem: str) -> None:
        assert error("build-id", b"plain", meta, prev_ids=self.IDS) == f"build-id: {problem}"

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"%s", "Unknown directive 's' at position 1"),
            (b"%(a)s", "Unknown directive 's' at position 4"),
            (b"%(a", "Unterminated field starting at position 1"),
            (b"%", "Expected directive after '%' at position 0"),
        ],
    )
    def test_bad_content(self, content: bytes, problem: str) -> None:
        assert error("build-id", content, self.META, prev_ids=self.IDS) == f"build-id: {problem}"


class TestHttpFilters:
    META: Meta = {b"url": b"/check", b"user": b"\xc3\xbc\r\nX: y"}  # noqa: RUF012

    def ask(self, names: str = "http-check", **more: Any) -> Ask:
        verdict = run(names, b"body", more.pop("meta", self.META), {b"b": b"2", b"a": b"1"}, **more)
        assert isinstance(verdict, Ask)
        return verdict

    def test_request(self) -> None:
        ask = self.ask(prev_ids={b"ff": b"11", b"g": b"12"})
        assert ask.url == b"http://h.example/check"
        assert ask.body == b""
        assert ask.headers == [
            (b"Sub-Meta", '{"url":"/check","user":"ü\\r\\nX: y"}'.encode()),
            (b"Pub-Meta", b'{"a":"1","b":"2"}'),
            (b"Grip-Last", b"ff; last-id=11"),
            (b"Grip-Last", b"g; last-id=12"),
        ]

    def test_modify_sends_the_message(self) -> None:
        assert self.ask("http-modify").body == b"body"

    @pytest.mark.parametrize(
        ("uri", "link", "url"),
        [
            (b"http://h/dir/page?q", b"check", b"http://h/dir/check"),
            (b"https://h:8443/", b"/c?x=1", b"https://h:8443/c?x=1"),
            (b"http://h/", b"https://other/c", b"https://other/c"),
            (b"ws://h/s", b"/c", b"http://h/c"),
            (b"wss://h:1/s", b"c", b"https://h:1/c"),
            (b"WSS://h/s", b"c", b"https://h/c"),
        ],
    )
    def test_url(self, uri: bytes, link: bytes, url: bytes) -> None:
        assert self.ask(uri=uri, meta={b"url": link}).url.lower() == url

    @pytest.mark.parametrize("name", ["http-check", "http-modify"])
    def test_url_errors(self, name: str) -> None:
        assert error(name) == f"{name}: missing url value"
        assert error(name, meta={b"url": b""}) == f"{name}: missing url value"
        for link in (b"ftp://h/", b"ws://h/", b"http://", b"http:/x", b"/a\r\nb", b"http://h:99999/", b"http://u@h/"):
            assert error(name, meta={b"url": link}) == f"{name}: invalid url value"

    def test_line_break_in_an_id_cannot_make_a_header(self) -> None:
        for ids in ({b"ff": b"1\r\nX: y"}, {b"f\nf": b"1"}, {b"f": b"\0"}, {b"f": b"a\x01"}, {b"f\x7f": b"1"}):
            assert "cannot be written in a header" in error("http-check", meta=self.META, prev_ids=ids)

    @pytest.mark.parametrize(
        ("name", "code", "content"),
        [
            ("http-check", 200, b"body"),
            ("http-check", 204, b"body"),
            ("http-modify", 200, b"new"),
            ("http-modify", 204, b"body"),
        ],
    )
    def test_answers(self, name: str, code: int, content: bytes) -> None:
        assert self.ask(name).resume(AskAnswer(code, [(b"Action", b"send")], b"new")) == Send(content)

    @pytest.mark.parametrize("name", ["http-check", "http-modify"])
    @pytest.mark.parametrize("code", [200, 204])
    def test_drop(self, name: str, code: int) -> None:
        assert self.ask(name).resume(AskAnswer(code, [(b"X", b"y"), (b"action", b" drop")], b"")) is DROP

    @pytest.mark.parametrize("name", ["http-check", "http-modify"])
    def test_failures(self, name: str) -> None:
        with pytest.raises(FilterError) as e:
            self.ask(name).resume(None)
        assert str(e.value) == f"{name}: network request failed: general error"
        for code in (201, 302, 404, 500):
            with pytest.raises(FilterError) as e:
                self.ask(name).resume(AskAnswer(code, [(b"Action", b"drop")], b""))
            assert str(e.value) == f"{name}: unexpected network request status: code={code}"

    def test_answer_size(self) -> None:
        full = b"x" * ASK_MAX_ANSWER
        assert self.ask("http-modify").resume(AskAnswer(200, [], full)) == Send(full)
        with pytest.raises(FilterError) as e:
            self.ask("http-modify").resume(AskAnswer(200, [], full + b"x"))
        assert str(e.value) == "http-modify: network response exceeded 100000 bytes"
        assert self.ask("http-check").resume(AskAnswer(200, [], full + b"x")) == Send(b"body")

    def test_later_filters_run_after_the_answer(self) -> None:
        meta = {**self.META, b"n": b"1"}
        first = self.ask("var-subst http-modify http-check var-subst", meta=meta)
        second = first.resume(AskAnswer(200, [], b"%(n)s"))
        assert isinstance(second, Ask)
        assert second.resume(AskAnswer(204, [], b"")) == Send(b"1")
        with pytest.raises(FilterError, match="var-subst: "):
            self.ask("http-modify var-subst").resume(AskAnswer(200, [], b"%"))

    def test_not_asked_after_a_drop(self) -> None:
        assert run("require-sub http-check", b"x", self.META, {b"require_sub": b"zz"}) is DROP


class TestContentFilters:
    def test_which(self) -> None:
        assert content_filters(["http-modify", "skip-self", "zz", "var-subst", "http-check", "build-id"]) == (
            "http-modify",
            "var-subst",
            "build-id",
        )
        assert MESSAGE_CONTENT < KNOWN

    @pytest.mark.parametrize(
        ("names", "prepared_for", "match"),
        [
            ("skip-self var-subst", None, True),
            ("skip-self var-subst", ("var-subst",), True),
            ("var-subst build-id", ("var-subst", "build-id"), True),
            ("var-subst build-id", ("build-id", "var-subst"), False),
            ("var-subst", (), False),
            ("skip-self", (), True),
            ("", ("var-subst",), False),
            ("zz", ("zz",), False),
        ],
    )
    def test_match(self, names: str, prepared_for: tuple[str, ...] | None, match: bool) -> None:
        assert content_filters_match(names.split(), prepared_for) is match

    def test_text(self) -> None:
        text = "content filter mismatch: subscription=build-id,var-subst message=var-subst"
        assert mismatch_text(["build-id", "skip-self", "var-subst"], ["var-subst"]) == text


class TestResponseFilter:
    META: Meta = {b"id_format": b"v-%(bi)s"}  # noqa: RUF012

    def filtered(self, *chunks: bytes, meta: Meta | None = None, names: tuple[str, ...] = ("build-id",)) -> bytes:
        f = ResponseFilter(names, self.META if meta is None else meta)
        return b"".join(f.feed(c) for c in chunks) + f.finish()

    def test_body(self) -> None:
        assert self.filtered(b"open %(v-x)I end") == b"open v-x end"
        assert self.filtered(b"%(v-x)I", meta={**self.META, b"id_encoding": b"hex"}) == b"762d78"

    def test_every_cut(self) -> None:
        body = rb"a%%b%(c\)d)Ie%(f)I"
        for i in range(len(body) + 1):
            for j in range(i, len(body) + 1):
                assert self.filtered(body[:i], body[i:j], body[j:]) == b"a%bc)def"

    def test_what_is_complete_goes_out_at_once(self) -> None:
        f = ResponseFilter(["build-id"], self.META)
        assert f.feed(b"ab%(c") == b"ab"
        assert f.feed(b")Id") == b"cd"
        assert f.finish() == b""

    @pytest.mark.parametrize("names", [(), ("var-subst", "http-modify", "skip-self", "zz")])
    def test_other_filters_leave_responses_alone(self, names: tuple[str, ...]) -> None:
        assert self.filtered(b"%", b"(x", names=names, meta={}) == b"%(x"
        assert not ResponseFilter(names, {}).active

    def test_named_by_two_channels_runs_once(self) -> None:
        assert self.filtered(b"%%I", names=("build-id", "build-id")) == b"%I"
        assert ResponseFilter(["build-id"], self.META).active

    @pytest.mark.parametrize(
        ("chunks", "problem"),
        [
            ((b"ab", b"c%I"), "No ID specified and no default ID in context at position 4"),
            ((b"abc%", b"(x)s"), "Unknown directive 's' at position 7"),
            ((b"abc%", b"1"), "Unknown directive '1' at position 4"),
            ((b"abc", b"%"), "Expected directive after '%' at position 3"),
            ((b"abc%(", b""), "Expected character after '(' at position 4"),
            ((b"abc%(d", b"e"), "Unterminated field starting at position 4"),
            ((b"abc%(de)",), "Expected directive after ')' at position 7"),
        ],
    )
    def test_errors(self, chunks: tuple[bytes, ...], problem: str) -> None:
        with pytest.raises(FilterError) as e:
            self.filtered(*chunks)
        assert str(e.value) == f"build-id: {problem}"

    def test_meta_errors(self) -> None:
        for meta in ({}, {b"id_format": b"", b"id_encoding": b"x"}):
            with pytest.raises(FilterError):
                self.filtered(b"plain", meta=meta)

    def test_directive_without_end_is_bounded(self) -> None:
        f = ResponseFilter(["build-id"], self.META)
        assert f.feed(b"%(" + b"x" * 9_998) == b""
        with pytest.raises(FilterError, match="exceeds 10000 bytes"):
            f.feed(b"x")
        long = b"%(" + b"x" * 50_000 + b")I"
        assert self.filtered(long) == b"x" * 50_000  # complete, so nothing is collected


NAMES = st.lists(st.sampled_from([*sorted(KNOWN), "nope", ""]), max_size=5)
WORD = st.sampled_from([b"user", b"url", b"id_format", b"id_encoding", b"hex", b"ff", b"/a", b"%(ff)s", b"%"])
PIECES = st.sampled_from([b"%", b"%%", b"(", b")", b"\\", b"I", b"s", b"ff", b"user", b" ", b"\xff", b"%(ff)s", b"%I"])
CONTENT = st.lists(PIECES, max_size=8).map(b"".join)
METAS = st.dictionaries(WORD, WORD | CONTENT, max_size=5)
ANSWERS = st.none() | st.builds(
    AskAnswer, st.sampled_from([200, 204, 500]), st.just([(b"Action", b"x")]), st.binary(max_size=9)
)


class TestFuzz:
    """Only FilterError may escape."""

    @given(NAMES, METAS, METAS, CONTENT, METAS, st.lists(WORD), ANSWERS)
    def test_run(
        self, names: list[str], meta: Meta, item_meta: Meta, content: bytes, ids: Meta, subs: list[bytes], answer: Any
    ) -> None:
        try:
            verdict = run_filters(names, context(meta, item_meta, prev_ids=ids, subscriptions=subs), content, Shared())
            while isinstance(verdict, Ask):
                assert all(orjson.loads(v) is not None for k, v in verdict.headers if k.endswith(b"-Meta"))
                assert not any(c in k + v for k, v in verdict.headers for c in b"\r\n\0")
                verdict = verdict.resume(answer)
        except FilterError as e:
            text = str(e)
        else:
            text = "-: "
        assert ": " in text

    @given(st.lists(CONTENT, max_size=5))
    def test_chunks_make_no_difference(self, chunks: list[bytes]) -> None:
        meta = {b"id_format": b"x"}
        whole = ResponseFilter(["build-id"], meta)
        parts = ResponseFilter(["build-id"], meta)
        results = []
        for f, pieces in ((whole, [b"".join(chunks)]), (parts, chunks)):
            try:
                results.append(b"".join([f.feed(p) for p in pieces]) + f.finish())
            except FilterError as e:
                results.append(str(e).encode())
        assert results[0] == results[1]
