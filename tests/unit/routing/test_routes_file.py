"""gripproxy.routing.routes_file: where the routes come from, and which of them a running service takes."""

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from gripproxy.config import ConfigError, load_config
from gripproxy.routing import routes_file
from gripproxy.routing.route import Target
from gripproxy.routing.routes_file import RoutesFile


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "routes"


class TestReading:
    def test_file(self, path: pathlib.Path) -> None:
        path.write_text("* a:1\nx\n")
        source = RoutesFile(str(path))
        routes = source.load()
        assert (source.path, len(routes.table.routes)) == (str(path), 1)
        assert str(routes.problems[0]).startswith(f"{path}:2: ")
        path.write_text("* a:1\nb c:1\n")
        assert len(source.load().table.routes) == 2

    def test_missing(self, path: pathlib.Path) -> None:
        with pytest.raises(ConfigError, match="routes file cannot be read: No such file or directory"):
            RoutesFile(str(path)).load()

    def test_bytes_that_are_no_utf8_come_through(self, path: pathlib.Path) -> None:
        path.write_bytes(b"\xef\xbb\xbf*,prefix=\xff\xc3\xa9- test\n")
        routes = RoutesFile(str(path)).load()
        assert routes.problems == ()
        assert routes.table.routes[0].prefix == b"\xff\xc3\xa9-"

    def test_a_fifo_is_refused_and_not_waited_for(self, path: pathlib.Path) -> None:
        os.mkfifo(path)
        with pytest.raises(ConfigError, match="routes: routes file must be a regular file, not a FIFO"):
            RoutesFile(str(path)).read()

    @pytest.mark.parametrize(("name", "kind"), [("/dev/zero", "a device"), ("/", "a directory")])
    def test_what_is_no_file_is_refused(self, name: str, kind: str) -> None:
        with pytest.raises(ConfigError, match=f"{name}: routes file must be a regular file, not {kind}"):
            RoutesFile(name).read()

    def test_a_socket_is_refused(self, path: pathlib.Path) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
            with pytest.raises(ConfigError, match="routes file cannot be read: No such device or address"):
                RoutesFile(str(path)).read()

    def test_a_link_to_a_file_is_a_file(self, path: pathlib.Path) -> None:
        path.write_text("* test\n")
        link = path.with_name("link")
        link.symlink_to(path)
        assert RoutesFile(str(link)).read() == b"* test\n"

    def test_the_size_has_a_bound(self, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(routes_file, "MAX_FILE", 10)
        path.write_bytes(b"#" * 10)
        assert RoutesFile(str(path)).read() == b"#" * 10
        path.write_bytes(b"#" * 11)
        with pytest.raises(ConfigError, match="routes file has more than 10 bytes"):
            RoutesFile(str(path)).read()

    def test_no_descriptor_is_left(self, path: pathlib.Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        os.mkfifo(path)
        for _ in range(3):
            with pytest.raises(ConfigError):
                RoutesFile(str(path)).read()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_stamp(self, path: pathlib.Path) -> None:
        source = RoutesFile(str(path))
        assert source.stamp() is None
        path.write_text("* test\n")
        first = source.stamp()
        assert first == source.stamp()
        path.write_text("* test \n")
        assert source.stamp() != first
        assert RoutesFile(None, ["* test"]).stamp() is None


class TestLines:
    def test_they_replace_the_file(self) -> None:
        source = RoutesFile("/no/such", ["* test", "a.b c:1"])
        assert source.path is None
        assert len(source.load().table.routes) == 2

    @pytest.mark.parametrize(
        ("lines", "text"),
        [
            (["* test", "x"], "--route: a route needs a condition and at least one target: 'x'"),
            (
                ["* nonsense"],
                "--route: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'nonsense': '* nonsense'",
            ),
            (["* a:1", "* b:2"], "--route: duplicate condition, line 1 has it already: '* b:2'"),
            (["* a:1\nx y"], "--route: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'y': 'x y'"),
            ([""], "--route: no route in ''"),
            (["# later"], "--route: no route in '# later'"),
        ],
    )
    def test_a_bad_one_is_refused(self, lines: list[str], text: str) -> None:
        source = RoutesFile(None, lines)
        with pytest.raises(ConfigError) as error:
            source.load()
        assert str(error.value) == text

    def test_all_of_them_are_found(self) -> None:
        source = RoutesFile(None, ["x", "* test", "y z"])
        assert len(source.refused_lines(source.parse(source.read()))) == 2

    def test_what_only_does_nothing_is_no_error(self) -> None:
        assert len(RoutesFile(None, ["*,unknown=1 test"]).load().problems) == 1

    def test_of_a_configuration(self, tmp_path: pathlib.Path) -> None:
        assert RoutesFile.of(load_config(None)).lines == ("* test",)
        assert RoutesFile.of(load_config(None, routes=["a test"])).lines == ("a test",)
        (tmp_path / "g.conf").write_text("[proxy]\nroutesfile=sub/r\n")
        source = RoutesFile.of(load_config(str(tmp_path / "g.conf")))
        assert (source.path, source.lines, source.base) == (str(tmp_path / "sub/r"), (), str(tmp_path))

    def test_the_hub_of_a_configuration(self, tmp_path: pathlib.Path) -> None:
        conf = tmp_path / "g.conf"
        conf.write_text(f"[global]\nrundir={tmp_path}\n[hub]\nstore=s\nhub_anonymous=all\n")
        scope = RoutesFile.of(load_config(str(conf))).scope
        assert (scope.hub_socket, scope.reserved) == (f"{tmp_path}/pushpin-hub", b"hub/")
        (line,) = RoutesFile.of(load_config(str(conf), routes=["* hub"])).load().table.routes
        assert line.targets[0].path == f"{tmp_path}/pushpin-hub"

    def test_without_a_store_there_is_no_hub(self) -> None:
        source = RoutesFile.of(load_config(None, routes=["* hub"]))
        (error,) = source.refused_lines(source.parse(source.read()))
        assert "write store=PATH in [hub]" in str(error)

    def test_shipped_routes(self) -> None:
        path = pathlib.Path(__file__).parents[3] / "conf" / "routes"
        routes = RoutesFile(str(path)).load()
        assert routes.problems == ()
        assert [entry.targets for entry in routes.table.routes] == [(Target("test"),)]


class TestDamage:
    @pytest.mark.parametrize(
        ("text", "damage"),
        [
            (b"", "r: has no route"),
            (b"# nothing\n\n", "r: has no route"),
            (b"x\n", "r:1: a route needs a condition and at least one target; no line can be used"),
            (
                b"x\ny\nz\n",
                "r:1: a route needs a condition and at least one target, and 2 other lines; no line can be used",
            ),
            (b"* a:1\n\0\0\0\0", "r:2: has a NUL byte: it was not written completely"),
            (
                b"* a:1\nb.test localho",
                "r:2: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'localho'; the last line has no "
                "end: the file was not written completely",
            ),
        ],
    )
    def test_it_is_refused(self, text: bytes, damage: str) -> None:
        assert RoutesFile("r").parse(text).damage == damage

    @pytest.mark.parametrize(
        "text",
        [
            b"* a:1",
            b"* a:1\nb.test b:2",
            b"* a:1\nb.test localho\n",
            b"x\n* a:1",
            b"x\n* a:1\n# the end",
        ],
    )
    def test_it_is_taken_without_its_bad_lines(self, text: bytes) -> None:
        assert RoutesFile("r").parse(text).damage == ""

    def test_every_place_to_cut_within_a_word_of_a_target_is_found_or_harmless(self) -> None:
        whole = b"* a:80\nb.test backend:8000\n"
        refused = [cut for cut in range(1, len(whole)) if RoutesFile("r").parse(whole[:cut]).damage]
        # What is left is one whole line, or a target whose port is shorter: that cannot be told from a file that is so.
        assert [whole[:cut] for cut in range(1, len(whole)) if cut not in refused] == [
            b"* a:8",
            b"* a:80",
            b"* a:80\n",
            b"* a:80\nb.test backend:8",
            b"* a:80\nb.test backend:80",
            b"* a:80\nb.test backend:800",
            b"* a:80\nb.test backend:8000",
        ]
