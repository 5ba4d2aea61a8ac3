"""gripproxy.routing.grammar: the grammar, every property, precedence, and what is wrong with bad lines."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.routing.grammar import parse_routes, split_line
from gripproxy.routing.route import Route, RouteProblem, RouteScope, Target
from gripproxy.routing.table import RouteTable


def table(text: str) -> RouteTable:
    routes, problems = parse_routes(text, "routes")
    assert [str(problem) for problem in problems] == []
    return routes


def route(line: str) -> Route:
    (only,) = table(line).routes
    return only


def target(text: str) -> Target:
    (only,) = route("* " + text).targets
    return only


def problem(line: str) -> RouteProblem:
    _, problems = parse_routes(line, "routes")
    assert len(problems) == 1, problems
    return problems[0]


class TestGrammar:
    @pytest.mark.parametrize(
        ("line", "sections"),
        [
            ("", []),
            ("   ", []),
            ("# * test", []),
            ("* test", [("*", []), ("test", [])]),
            ("  *   test  # all", [("*", []), ("test", [])]),
            ("*,debug,id=x a:1", [("*", [("debug", None), ("id", "x")]), ("a:1", [])]),
            ("id=x test", [("", [("id", "x")]), ("test", [])]),
            (",id=x test", [("", [("id", "x")]), ("test", [])]),
            ("*,header=A:b=c test", [("*", [("header", "A:b=c")]), ("test", [])]),
            ('*,header="A: b, #c" test', [("*", [("header", "A: b, #c")]), ("test", [])]),
            ('*,"header=A: b" test', [("*", [("header", "A: b")]), ("test", [])]),
            (r'*,id="a\"b\\c"d test', [("*", [("id", 'a"b\\cd')]), ("test", [])]),
            ("*,id=x#y test", [("*", [("id", "x")])]),
            ("*\ttest", [("*\ttest", [])]),
            ('""  test', [("", []), ("test", [])]),
        ],
    )
    def test_sections(self, line: str, sections: list[object]) -> None:
        assert split_line(line) == sections

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ('* "test', "unterminated quote"),
            ('* "test\\', "unterminated escape at the end of the line"),
            (r'* "te\nst"', r"unknown escape '\n' (only \\ and \" exist)"),
            ("*,,debug test", "empty property: a name is expected after ','"),
            ("*, test", "empty property: a name is expected after ','"),
            ("* test,", "empty property: a name is expected after ','"),
            ("*,=x test", "empty property name in '=x'"),
            ("*", "a route needs a condition and at least one target"),
            ("* #test", "a route needs a condition and at least one target"),
        ],
    )
    def test_errors(self, line: str, reason: str) -> None:
        found = problem("\n" + line)
        assert str(found) == f"routes:2: {reason}"
        assert found.skipped

    def test_other_lines_still_load(self) -> None:
        routes, problems = parse_routes("* test\nbad\na.b c:80\r\n\n", "routes")
        assert [(entry.host, entry.line) for entry in routes.routes] == [(b"*", 1), (b"a.b", 3)]
        assert [entry.line for entry in problems] == [2]

    @given(st.text(max_size=200))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        routes, problems = parse_routes(text, "routes")
        lines = text.count("\n") + 1
        assert len(routes.routes) + sum(entry.skipped for entry in problems) <= lines
        assert all(1 <= entry.line <= lines for entry in problems)

    PIECE = st.text(st.sampled_from(string.ascii_letters + ' ,#="\\:*\u00e9[]/-'), max_size=12)
    NAMES = st.sampled_from(
        ["proto", "ssl", "path_beg", "id", "prefix", "as_host", "path_rem", "replace_beg", "header", "debug", "x"]
    )

    @given(st.lists(st.tuples(NAMES, st.one_of(st.none(), PIECE)), max_size=4), st.sampled_from(["*", "a.b", ""]))
    def test_quoted_properties_come_back(self, properties: list[tuple[str, str | None]], host: str) -> None:
        def quote(text: str) -> str:
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

        written = [name if value is None else f"{name}={quote(value)}" for name, value in properties]
        line = ",".join([host, *written]) + ' "test" # end'
        expected = (host, properties)
        assert split_line(line if host or properties else f'""{line}') == [expected, ("test", [])]
        parse_routes(line, "routes")


class TestCondition:
    def test_plain(self) -> None:
        plain = route("* test")
        assert (plain.host, plain.proto, plain.ssl, plain.path_beg, plain.prefix) == (b"*", None, None, b"", b"")
        assert (plain.id, plain.explicit_id, plain.line) == (b"*,*,*,*", False, 1)
        assert (plain.sig_iss, plain.sig_key, plain.as_host, plain.replace_beg, plain.log_level) == (None,) * 5
        assert (plain.orig_headers, plain.debug, plain.aco, plain.no_grip) == (False,) * 4
        assert plain.targets == (Target("test"),)

    def test_everything(self) -> None:
        full = route(
            'WWW.Example.com,proto=ws,ssl=yes,path_beg=/a,id=x,sig_iss=me,sig_key=secret,prefix=p-,orig_headers,as_host=h:1,'
            'path_rem=2,replace_beg=/b,debug,aco,header=A:b,header="C:  d ",header=E:,no_grip,log_level=9 test'
        )  # fmt: skip
        assert (full.host, full.proto, full.ssl, full.path_beg) == (b"www.example.com", "ws", True, b"/a")
        assert (full.id, full.explicit_id, full.sig_iss, full.sig_key, full.prefix) == (
            b"x",
            True,
            "me",
            "secret",
            b"p-",
        )
        assert (full.as_host, full.path_rem, full.replace_beg, full.log_level) == (b"h:1", 2, b"/b", 3)
        assert full.orig_headers
        assert full.debug
        assert full.aco
        assert full.no_grip
        assert full.set_headers == ((b"A", b"b"), (b"C", b"d "), (b"E", b""))

    def test_synthesised_id(self) -> None:
        assert route("a,proto=http,ssl=no,path_beg=/x test").id == b"a,http,no,/x"
        assert route(",id= test").explicit_id is False

    def test_hashed_by_identity(self) -> None:
        one, other = route("* test"), route("* test")
        assert len({one, other}) == 2
        assert one != other

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("*,proto=foo test", "proto must be set to 'http' or 'ws', not 'foo'"),
            ("*,ssl=1 test", "ssl must be set to 'yes' or 'no', not '1'"),
            ("*,ssl test", "ssl needs a value"),
            ("*,path_beg= test", "path_beg must not be empty"),
            ("*,path_rem=x test", "path_rem must be a number, not 'x'"),
            ("*,path_rem=-1 test", "path_rem must be a number, not '-1'"),
            ("*,path_rem= test", "path_rem must be a number, not empty"),
            ("*,log_level=x test", "log_level must be a number, not 'x'"),
            ("*,header=A test", "header must use the format 'Name:value', not 'A'"),
            ("*,header=:x test", "header must use the format 'Name:value', not ':x'"),
            ('*,header="A B:x" test', "header must use the format 'Name:value', not 'A B:x'"),
            ("*,header=A:\x01 test", "header 'A' has a control character in its value"),
            ("*,as_host=a/b test", "as_host must be 'host' or 'host:port', not 'a/b'"),
            ("*,as_host=a:b test", "as_host must be 'host' or 'host:port', not 'a:b'"),
            ('*,replace_beg="/a b" test', "replace_beg must be a percent-encoded path, not '/a b'"),
            ("*,sig_key=base64:! test", "sig_key: what follows base64: is not valid base64"),
            ("a\tb test", "host 'a\\tb' has a control character (only spaces separate, not tabs)"),
        ],
    )
    def test_errors_skip_the_line(self, line: str, reason: str) -> None:
        found = problem(line)
        assert found.reason.startswith(reason)
        assert found.skipped
        assert parse_routes(line, "r")[0].routes == ()

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("*,sockjs=/x test", "not supported yet: sockjs"),
            ("*,session test", "not supported yet: session"),
            ("*,jsonp_cb=x test", "not supported yet: jsonp_cb"),
            ("*,path_begin=/x test", "unknown property 'path_begin' (did you mean 'path_beg'?)"),
            ("* test,over_htp", "unknown property 'over_htp' (did you mean 'over_http'?)"),
            ("*,debug=false test", "'debug' is a flag: '=false' is ignored, it is on"),
            ("*,prefix=a,prefix=b test", "'prefix' is given twice: 'b' is used"),
        ],
    )
    def test_notes_keep_the_line(self, line: str, reason: str) -> None:
        found = problem(line)
        assert found.reason == reason
        assert not found.skipped
        assert len(parse_routes(line, "r")[0].routes) == 1

    def test_the_last_of_two_values_is_used(self) -> None:
        assert parse_routes("*,prefix=a,prefix=b test", "r")[0].routes[0].prefix == b"b"


class TestRewrite:
    @pytest.mark.parametrize(
        ("properties", "path", "result"),
        [
            ("", b"/a/b?c=d", b"/a/b?c=d"),
            (",path_rem=2", b"/a/b?c=d", b"/b?c=d"),
            (",path_rem=99", b"/a/b?c=d", b"/?c=d"),
            (",path_rem=1", b"/a", b"/a"),
            (",path_beg=/a,replace_beg=/x", b"/a/b", b"/x/b"),
            (",path_beg=/a/,replace_beg=/", b"/a/b", b"/b"),
            (",path_beg=/a,replace_beg=/x,path_rem=1", b"/a/b", b"/x/b"),
            (",path_beg=/a,replace_beg=", b"/a/b", b"/b"),
            (",path_beg=/a,replace_beg=", b"/a?x", b"/?x"),
            (",replace_beg=/x", b"/a", b"/x/a"),
            (",path_rem=4", b"/%20x/y", b"/x/y"),
        ],
    )
    def test_path(self, properties: str, path: bytes, result: bytes) -> None:
        assert route(f"*{properties} test").rewrite_path(path) == result


class TestTargets:
    def test_host(self) -> None:
        plain = target("backend.local:8000")
        assert (plain.kind, plain.host, plain.port, str(plain)) == ("host", "backend.local", 8000, "backend.local:8000")
        assert plain == Target("host", "backend.local", 8000)

    def test_ipv6(self) -> None:
        six = target("[::1]:80")
        assert (six.host, six.port, str(six)) == ("::1", 80, "[::1]:80")

    def test_everything(self) -> None:
        routes, problems = parse_routes(
            "* h:1,ssl,untrusted,trust_connect_host,insecure,over_http,one_event,host=o:2,sub=a,sub=b,"
            "client_cert=c.pem,client_key=/k.pem,ipc_file_mode=777",
            "/etc/g/routes",
        )
        assert problems == []
        assert routes.routes[0].targets[0] == Target(
            "host", "h", 1, True, True, True, True, True, True, b"o:2", (b"a", b"b"), "/etc/g/c.pem", "/k.pem"
        )

    def test_a_unix_socket(self) -> None:
        socket = target("unix:/run/app.sock")
        assert (socket.kind, socket.path, str(socket)) == ("unix", "/run/app.sock", "unix:/run/app.sock")
        routes, problems = parse_routes('* unix:app.sock "unix:/run/a, b.sock"', "/etc/g/routes")
        assert problems == []
        assert [each.path for each in routes.routes[0].targets] == ["/etc/g/app.sock", "/run/a, b.sock"]
        assert target("unix:/run/app.sock,over_http").over_http

    def test_a_backend_that_may_be_away(self) -> None:
        assert (target("a:80").away, target("a:80").away_wait) == (False, 0.0)
        assert (target("a:80,away=503").away, target("a:80,away=503").away_wait) == (True, 3.0)
        assert target("a:80,away=503,away_wait=0").away_wait == 0.0
        assert target("a:80,away=503,away_wait=1.5").away_wait == 1.5

    def test_several(self) -> None:
        assert [str(each) for each in route("* a:1 b:2,ssl test").targets] == ["a:1", "b:2", "test"]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("localhost", "target must be 'host:port', 'unix:path', 'hub' or 'test', not 'localhost'"),
            (":80", "target must be 'host:port', 'unix:path', 'hub' or 'test', not ':80'"),
            ("a:0", "target 'a:0' has an invalid port: it must be 1 to 65535"),
            ("a:65536", "target 'a:65536' has an invalid port: it must be 1 to 65535"),
            ("a:x", "target 'a:x' has an invalid port: it must be 1 to 65535"),
            ("::1:80", "target '::1:80': an IPv6 address needs brackets, '[::1]:80'"),
            ("[x]:80", "target '[x]:80' has an invalid IPv6 address"),
            ("a/b:80", "target 'a/b:80' has an invalid host name"),
            ("u@h:80", "target 'u@h:80' has an invalid host name"),
            ("unix:", "target 'unix:' must have the path of a socket after 'unix:'"),
            (
                "unix:/" + "x" * 107,
                f"target 'unix:/{'x' * 107}': /{'x' * 107} has 108 bytes, a socket's path at most 107",
            ),
            (
                "unix:/s,ssl,trust_connect_host",
                "target 'unix:/s' has no host name that trust_connect_host could refer to",
            ),
            ("a:80,away", "away needs a value"),
            ("a:80,away=502", "away must be 503, not '502'"),
            ("a:80,away_wait=1", "away_wait needs away=503"),
            ("a:80,away=503,away_wait=61", "away_wait must be a number of seconds, at most 60, not '61'"),
            ("a:80,away=503,away_wait=1e3", "away_wait must be a number of seconds, at most 60, not '1e3'"),
            ("a:80,sub", "sub needs a value"),
            ("a:80,sub=", "sub needs a channel"),
            ("a:80,client_key=k", "client_key needs a client_cert"),
            ("zhttp/tcp://127.0.0.1:1", "not supported yet: zhttp (target 'zhttp/tcp://127.0.0.1:1')"),
            ("zhttpreq/ipc://x", "not supported yet: zhttpreq (target 'zhttpreq/ipc://x')"),
            ("a:80 zhttp/x", "not supported yet: zhttp (target 'zhttp/x')"),
        ],
    )
    def test_errors(self, text: str, reason: str) -> None:
        found = problem("* " + text)
        assert found.reason == reason
        assert found.skipped


def find(text: str, path: bytes = b"/", host: bytes = b"h", ws: bool = False, tls: bool = False) -> int | None:
    """Return the line that is used."""
    found = table(text).find(host, path, ws, tls)
    return None if found is None else found.line


class TestMatching:
    def test_host_groups_are_exclusive(self) -> None:
        text = "h,path_beg=/a test\n* test"
        assert find(text, b"/a") == 1
        assert find(text, b"/b") is None
        assert find(text, b"/b", host=b"other") == 2

    def test_letter_case_of_the_route(self) -> None:
        assert find("H.Example test", host=b"h.example") == 1

    def test_host_star_is_not_the_any_group(self) -> None:
        assert find("h test", host=b"*") is None

    def test_no_host_is_found_by_id_only(self) -> None:
        text = ",id=a test\n,id=b test"
        assert find(text, host=b"") is None
        assert [entry.id for entry in table(text).routes] == [b"a", b"b"]

    def test_longest_path(self) -> None:
        text = "*,path_beg=/a/ test\n* test\n*,path_beg=/a/b test"
        assert [find(text, path) for path in (b"/", b"/a/c", b"/a/bc", b"/a")] == [2, 1, 3, 2]

    def test_path_is_compared_encoded(self) -> None:
        assert find("*,path_beg=/%C3%A9 test", b"/%C3%A9x") == 1
        assert find("*,path_beg=/a test", b"/%61") is None

    def test_proto_goes_before_the_path(self) -> None:
        text = "*,path_beg=/a test\n*,proto=ws test"
        assert find(text, b"/a", ws=True) == 2
        assert find(text, b"/a") == 1
        assert find("*,proto=ws test\n*,path_beg=/a test", b"/a", ws=True) == 1

    def test_proto_restricts(self) -> None:
        assert find("*,proto=http test", ws=True) is None
        assert find("*,proto=ws test") is None

    def test_ssl_restricts(self) -> None:
        assert find("*,ssl=yes test") is None
        assert find("*,ssl=no test", tls=True) is None
        assert find("*,ssl=yes test", tls=True) == 1

    def test_later_ssl_line_wins_over_a_longer_path(self) -> None:
        assert find("*,path_beg=/a test\n*,ssl=yes test", b"/a", tls=True) == 2
        # the other way round the longer path comes last, and wins
        assert find("*,ssl=yes test\n*,path_beg=/a test", b"/a", tls=True) == 2

    def test_ties_keep_the_earlier_line(self) -> None:
        assert find("*,path_beg=/a,ssl=yes test\n*,path_beg=/a test", b"/a", tls=True) == 1

    def test_duplicate_condition(self) -> None:
        routes, problems = parse_routes("* test\n*,id=x a:1\nA,ssl=no test\na,ssl=no test", "r")
        assert [entry.line for entry in routes.routes] == [1, 3]
        assert [str(entry) for entry in problems] == [
            "r:2: duplicate condition, line 1 has it already",
            "r:4: duplicate condition, line 3 has it already",
        ]

    def test_id_of_two_lines_finds_neither(self) -> None:
        routes, problems = parse_routes("a,id=x test\nb,id=x test\nc,id=y test\nd,id=x test", "r")
        assert routes.by_id(b"x") is None
        assert routes.by_id(b"y") is routes.routes[2]
        assert routes.by_id(b"z") is None
        assert [entry.skipped for entry in problems] == [False, False]

    def test_synthesised_ids_find_too(self) -> None:
        routes = table("* test\na,path_beg=/x test")
        assert routes.by_id(b"a,*,*,/x") is routes.routes[1]

    def test_empty_table(self) -> None:
        assert RouteTable().find(b"h", b"/", False, False) is None

    CONDITIONS = st.tuples(
        st.sampled_from(["*", "h"]),
        st.sampled_from(["", ",proto=http", ",proto=ws"]),
        st.sampled_from(["", ",ssl=yes", ",ssl=no"]),
        st.sampled_from(["", ",path_beg=/", ",path_beg=/a", ",path_beg=/a/b", ",path_beg=/b"]),
    )

    @given(
        st.lists(CONDITIONS, min_size=1, max_size=8, unique=True),
        st.sampled_from([b"/", b"/a", b"/a/b/c", b"/b", b"/c"]),
        st.booleans(),
        st.booleans(),
        st.sampled_from([b"h", b"g"]),
    )
    def test_tables_find_what_the_scan_of_the_reference_finds(
        self, conditions: list[tuple[str, str, str, str]], path: bytes, ws: bool, tls: bool, host: bytes
    ) -> None:
        routes = table("\n".join("".join(condition) + " test" for condition in conditions))
        named = {entry.host for entry in routes.routes}
        best: Route | None = None
        for entry in routes.routes:
            fits = entry.host == (host if host in named else b"*") and path.startswith(entry.path_beg)
            fits = fits and entry.proto in (None, "ws" if ws else "http") and entry.ssl in (None, tls)
            if not fits:
                continue
            if best is None or (best.proto is None and entry.proto is not None):
                best = entry
            elif best.proto is not None and entry.proto is None:
                continue
            elif len(entry.path_beg) > len(best.path_beg) or (best.ssl is None and entry.ssl is not None):
                best = entry
        assert routes.find(host, path, ws, tls) is best


class TestSecretQuery:
    @pytest.mark.parametrize(
        ("uri", "shown"),
        [
            (b"/a", b"/a"),
            (b"/a?b=c", b"/a?b=c"),
            (b"/a?access_token=x", b"/a"),
            (b"/a?b=c&access_token=x&d", b"/a?b=c&d"),
            (b"/a?access_token=x&access_token=y", b"/a"),
            (b"/a?%61ccess_token=x&b", b"/a?b"),
            (b"/a?b;access_token=x", b"/a?b"),
            (b"/a?access_token", b"/a"),
            (b"/a?my_access_token=x", b"/a?my_access_token=x"),
            (b"/a?b=access_token=x", b"/a?b=access_token=x"),
            (b"/a?Access_Token=x", b"/a?Access_Token=x"),
            (b"/a?b=1;2&access_token=", b"/a?b=1&2"),
            (b"http://h/a?key=1&access_token=2", b"http://h/a"),
        ],
    )
    def test_no_text_has_it(self, uri: bytes, shown: bytes) -> None:
        assert route("*,secret_query=access_token,secret_query=key test").public(uri) == shown

    def test_without_the_property_nothing_is_changed(self) -> None:
        assert route("* test").public(b"/a?b=1;2&access_token=x") == b"/a?b=1;2&access_token=x"

    def test_it_needs_a_name(self) -> None:
        assert "secret_query needs" in str(parse_routes("*,secret_query= test", "r")[1][0])


class TestHub:
    SCOPE = RouteScope(b"hub/", "/run/x/hub")

    def route(self, line: str) -> Route:
        routes, problems = parse_routes(line, "routes", scope=self.SCOPE)
        assert [str(problem) for problem in problems] == []
        (only,) = routes.routes
        return only

    def problem(self, line: str, scope: RouteScope = SCOPE) -> str:
        routes, problems = parse_routes(line, "routes", scope=scope)
        assert routes.routes == ()
        (only,) = problems
        return only.reason

    def test_it_stands_for_the_socket_and_the_properties_of_the_hub(self) -> None:
        line = self.route("* hub")
        only = Target("unix", path="/run/x/hub", over_http=True, away=True, away_wait=10.0, connections_max=4000)
        assert line.targets == (only,)
        assert line.reserved
        assert line.secret_query == {b"access_token"}
        assert str(line.targets[0]) == "unix:/run/x/hub"

    def test_properties_are_added_to(self) -> None:
        line = self.route("*,secret_query=other hub,away_wait=9,sub=hub/1,one_event,over_http,away=503")
        (only,) = line.targets
        assert (only.away, only.away_wait, only.subs, only.one_event) == (True, 9.0, (b"hub/1",), True)
        assert line.secret_query == {b"access_token", b"other"}

    def test_other_routes_have_none_of_them(self) -> None:
        line = self.route("* unix:/run/x/other")
        assert not line.reserved
        assert line.secret_query == frozenset()
        assert not line.targets[0].away

    @pytest.mark.parametrize(
        ("condition", "path", "seen"),
        [
            ("*", b"/topics/T?a=b", b"/topics/T?a=b"),
            ("*,path_beg=/x/", b"/x/topics/T?a=b", b"/topics/T?a=b"),
            ("*,path_beg=/x", b"/x/topics/T?a=b", b"/topics/T?a=b"),
            ("*,path_beg=/x", b"/x?a=b", b"/?a=b"),
            ("*,path_beg=/x/", b"/x/", b"/"),
            ("*,path_beg=/x/,replace_beg=/y/", b"/x/topics/T", b"/y/topics/T"),
            ("*,path_beg=/x/y/,path_rem=2", b"/x/y/topics/T", b"/y/topics/T"),
            ("*,path_beg=/x/,path_rem=0", b"/x/topics/T", b"/x/topics/T"),
        ],
    )
    def test_the_hub_sees_the_path_behind_the_prefix(self, condition: str, path: bytes, seen: bytes) -> None:
        assert self.route(f"{condition} hub").rewrite_path(path) == seen

    def test_without_a_store(self) -> None:
        reason = "target 'hub' needs an event store: write store=PATH in [hub] of the config file"
        assert self.problem("* hub", RouteScope(b"hub/")) == reason

    @pytest.mark.parametrize("line", ["* hub a:1", "* a:1 hub", "* hub hub"])
    def test_it_is_the_only_target(self, line: str) -> None:
        assert "must be the only one of its route" in self.problem(line)

    @pytest.mark.parametrize("name", ["ssl", "insecure", "trust_connect_host", "untrusted", "host=h", "client_cert=c"])
    def test_it_takes_no_properties_of_other_machines(self, name: str) -> None:
        assert self.problem(f"* hub,{name}").startswith(f"target 'hub' takes no '{name.partition('=')[0]}'")


class TestReserved:
    SCOPE = RouteScope(reserved=b"hub/")

    @pytest.mark.parametrize("line", ["* a:1,sub=all,sub=hub/1", "*,prefix=hub/ a:1 b:1,sub=hub/"])
    def test_a_channel_of_the_route_needs_the_property(self, line: str) -> None:
        routes, problems = parse_routes(line, "routes", scope=self.SCOPE)
        assert routes.routes == ()
        assert "channels that begin with 'hub/' need the property reserved on the route" in problems[0].reason
        assert parse_routes(line.replace("*", "*,reserved", 1), "routes", scope=self.SCOPE)[1] == []
        assert parse_routes(line, "routes")[1] == []

    def test_others_do_not(self) -> None:
        routes, problems = parse_routes("*,prefix=hub/ a:1,sub=all,sub=hub", "routes", scope=self.SCOPE)
        assert (len(routes.routes), problems) == (1, [])
        assert not routes.routes[0].reserved
