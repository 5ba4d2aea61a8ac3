"""gripproxy.cli.check: what each route does, in words, and what deserves a look."""

from __future__ import annotations

import datetime
import io
import os
import pathlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gripproxy.cli.check import check, describe
from gripproxy.cli.footprint import footprints
from gripproxy.config import Overrides, load_config, survey_config
from gripproxy.routing.grammar import parse_routes
from gripproxy.routing.route import RouteScope


class Setup:
    """A config file and its routes in a directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory

    def check(
        self, conf: str = "[runner]\nhttp_port=1", routes: str = "* test", verbose: bool = False
    ) -> tuple[int, list[str]]:
        """Return the exit status and the printed lines, the directory's name taken out."""
        (self.directory / "g.conf").write_text(f"[global]\nrundir=/r\n{conf}\n")
        (self.directory / "routes").write_text(routes)
        out = io.StringIO()
        status = check(load_config(str(self.directory / "g.conf")), out, verbose=verbose)
        return status, out.getvalue().replace(f"{self.directory}/", "").splitlines()

    def warnings(self, conf: str = "[runner]\nhttp_port=1", routes: str = "* test") -> list[str]:
        status, lines = self.check(conf, routes)
        found = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
        assert status == (1 if found else 0)
        return found

    def certificate(self, name: str) -> None:
        """Make ``name.crt`` and ``name.key``."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
        builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, start, start.replace(year=2124))
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        encoding = serialization.Encoding.PEM
        path.with_suffix(".crt").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(encoding))
        path.with_suffix(".key").write_bytes(
            key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )


@pytest.fixture
def setup(tmp_path: pathlib.Path) -> Setup:
    return Setup(tmp_path)


class TestDescribe:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("* test", "requests for any other host -> the test handler"),
            ("a.b c:80", "requests for a.b -> http://c:80"),
            (
                "*,proto=ws,ssl=yes,path_beg=/x [::1]:1,ssl b:2",
                "WebSockets for any other host under /x over TLS -> https://[::1]:1, then http://b:2",
            ),
            ("*,proto=http,ssl=no test", "HTTP requests for any other host without TLS -> the test handler"),
            (",id=x test", "requests that ask for route 'x' -> the test handler"),
            (
                "*,id=x,as_host=h,path_beg=/a,replace_beg=/b,prefix=p-,sig_iss=me,sig_key=secret,header=A:b,header=C:,"
                "orig_headers,aco,no_grip,debug,log_level=1 test",
                "requests for any other host under /a -> the test handler; id x; Host becomes h; "
                "path /a/x becomes /b/x; channels begin with p-; signed as me with a key of its own; header A: b; "
                "header C removed; original headers copied; automatic CORS; "
                "plain proxying, no GRIP; debug responses; log level 1",
            ),
            ("*,path_rem=5 test", "requests for any other host -> the test handler; path /path/x becomes /x"),
            (
                "* h:1,ssl,insecure,client_cert=/c,host=o,over_http,one_event,untrusted,sub=s",
                "requests for any other host -> https://h:1 (certificate not verified, client certificate /c, Host: o, "
                "WebSockets over HTTP, one event per request, access policy applies, subscribes to s)",
            ),
            (
                "* h:1,ssl,trust_connect_host",
                "requests for any other host -> https://h:1 (certificate for h)",
            ),
        ],
    )
    def test_line(self, line: str, text: str) -> None:
        (route,) = parse_routes(line, "r")[0].routes
        assert describe(route) == text

    def test_the_hub(self) -> None:
        (route,) = parse_routes("*,path_beg=/x/ hub", "r", scope=RouteScope(b"hub/", "/r/hub"))[0].routes
        assert describe(route) == (
            "requests for any other host under /x/ -> http on the socket /r/hub (WebSockets over HTTP); "
            "path /x/x becomes /x; reserved channels allowed"
        )

    def test_keys_are_not_shown(self) -> None:
        (route,) = parse_routes("*,sig_key=secret test", "r")[0].routes
        assert "secret" not in describe(route)


class TestCheck:
    def test_good(self, setup: Setup) -> None:
        status, lines = setup.check(
            "[runner]\nhttp_port=80\nlocal_ports=/s\nzurl_bin=z\n[proxy]\nworkers=3\n[handler]\npush_in_http_port=5561\n"
            "push_in_http_addr=::1\npush_in_spec=tcp://127.0.0.1:5560\npush_in_sub_specs=ipc://s\n"
            "command_spec=tcp://*:5563\nstats_spec=ipc://t\ncontrol_key=x\ncontrol_zmq=open\nprometheus_port=[::1]:9",
            "a test\n* b:1\n",
        )
        assert status == 0
        assert [line for line in lines if not line.startswith("  memory: ")] == [
            "config: g.conf",
            "  clients: http port 80",
            "  clients: unix socket /s",
            "  publishers: http://[::1]:5561 with a key",
            "  publishers: ZeroMQ PULL tcp://127.0.0.1:5560",
            "  publishers: ZeroMQ SUB on ipc://s",
            "  commands: ZeroMQ ROUTER tcp://*:5563",
            "  stats: ZeroMQ PUB ipc://t",
            "  metrics: [::1]:9",
            "  processes: 1 handler, 3 workers",
            "routes: routes",
            "  1: requests for a -> the test handler",
            "  2: requests for any other host -> http://b:1",
            "1 key of Pushpin means nothing here: zurl_bin",
            "ok",
        ]

    def test_memory(self, setup: Setup) -> None:
        text = (
            "[runner]\nhttp_port=80\nclient_maxconn=1000\n[proxy]\nworkers=2\nws_over_http_message_max=300000\n"
            "stream_buffer_max=65536\n[handler]\nworker_queue_max=150000000\nitem_max=1000000\n"
        )
        _, lines = setup.check(text, "* test\n")
        memory = [line.partition(": ")[2] for line in lines if line.startswith("  memory: ")]
        config = load_config(str(setup.directory / "g.conf"))
        worker, handler, runner = (-(-footprint.total // 1_000_000) for footprint in footprints(config).values())
        assert memory == [
            f"worker at most {worker:,} MB, the largest part for bodies that holds keep: clients * 200,000, or * 2 *"
            " ws_over_http_message_max if that is more",
            f"handler at most {handler:,} MB, the largest part for messages to workers: workers * (worker_queue_max +"
            " 1.25 MiB + 4 * item_max)",
            f"runner at most {runner:,} MB",
        ]

    def test_memory_of_each_term(self) -> None:
        out = io.StringIO()
        check(load_config(None), out, verbose=True)
        assert "\n    76 MB the process: 72 MiB\n" in out.getvalue()
        assert out.getvalue().count(" subscriptions: ") == 2

    def test_memory_only_of_processes_that_are_started(self, setup: Setup) -> None:
        _, lines = setup.check("[runner]\nhttp_port=80\nservices=handler\n", "* test\n")
        assert [line.split()[1] for line in lines if line.startswith("  memory: ")] == ["handler", "runner"]

    def test_built_in(self) -> None:
        out = io.StringIO()
        assert check(load_config(None), out) == 1
        assert "config: none, built-in values\n" in out.getvalue()
        assert out.getvalue().count("error: ") == out.getvalue().count("error: sig_key=changeme") == 1
        assert "routes: none, built-in test route\n" in out.getvalue()

    def test_shipped(self) -> None:
        out = io.StringIO()
        assert check(load_config(str(pathlib.Path(__file__).parents[3] / "conf" / "gripproxy.conf")), out) == 1
        *_, error, last = out.getvalue().splitlines()
        assert error.startswith("error: sig_key=changeme is the key that is shipped")
        assert last == "1 error"

    def test_prints_to_standard_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        check(load_config(None, routes=["* test"]))
        assert "routes: --route\n" in capsys.readouterr().out

    def test_unknown_key(self, setup: Setup) -> None:
        assert setup.warnings("[runner]\nhttp_port=1\n[proxy]\nworker=1") == [
            "g.conf:6: unknown key 'worker' in [proxy] (did you mean 'workers'?)"
        ]

    def test_keys_of_pushpin(self, setup: Setup) -> None:
        conf = "[runner]\nhttp_port=1\nzurl_bin=zurl\n[proxy]\nupdates_check=report"
        status, lines = self.check_keys(setup, conf)
        assert status == 0
        assert lines == ["2 keys of Pushpin mean nothing here: zurl_bin, updates_check", "ok"]
        assert self.check_keys(setup, conf, verbose=True)[1] == [
            lines[0],
            "  g.conf:5: zurl_bin in [runner]: no other program is started",
            "  g.conf:7: updates_check in [proxy]: nothing is reported to anybody",
            "ok",
        ]
        one = "[runner]\nhttp_port=1\nzurl_bin=zurl"
        assert self.check_keys(setup, one)[1][0] == "1 key of Pushpin means nothing here: zurl_bin"

    def check_keys(self, setup: Setup, conf: str, verbose: bool = False) -> tuple[int, list[str]]:
        """What is printed behind the routes."""
        status, lines = setup.check(conf, verbose=verbose)
        return status, lines[lines.index("  1: requests for any other host -> the test handler") + 1 :]

    def test_number_of_warnings_is_the_last_line(self, setup: Setup) -> None:
        assert setup.check(routes="* test\nx")[1][-1] == "1 warning"
        assert setup.check(routes="* test\nx\ny")[1][-1] == "2 warnings"

    def test_lines_with_an_error(self, setup: Setup) -> None:
        assert setup.warnings(routes="* test\n*,path_beg=/x,debug=no a:1\nb c\n") == [
            "routes:2: 'debug' is a flag: '=no' is ignored, it is on",
            "routes:3: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'c' (line skipped)",
        ]

    def test_no_routes(self, setup: Setup) -> None:
        assert setup.warnings(routes="") == ["there is no usable route: every request will be answered with an error"]

    def test_no_routes_file(self, setup: Setup) -> None:
        setup.check()
        (setup.directory / "routes").unlink()
        out = io.StringIO()
        assert check(load_config(str(setup.directory / "g.conf")), out) == 2
        assert "routes: routes file cannot be read: No such file or directory\n" in out.getvalue()

    def test_no_way_in(self, setup: Setup) -> None:
        assert setup.warnings("") == ["no http_port, https_ports or local_ports: clients have no way in"]

    def test_ports_that_other_machines_reach(self, setup: Setup) -> None:
        status, lines = setup.check(
            "[runner]\nhttp_port=1\n[handler]\npush_in_http_port=5561\npush_in_http_addr=0.0.0.0"
        )
        assert status == 1
        assert lines[-2:] == [
            "error: HTTP control port on 0.0.0.0, port 5561: other machines can publish without a key: write "
            "control_key=SECRET, with a secret of your own, or push_in_http_addr=127.0.0.1, in [handler]",
            "1 error",
        ]

    def test_an_ipc_socket_for_everybody(self, setup: Setup) -> None:
        conf = "[runner]\nhttp_port=1\n[handler]\nipc_file_mode=777\nstats_spec=ipc:///s"
        assert setup.warnings(conf) == [
            "ipc_file_mode=777: every user of this machine can connect to the ipc sockets: write ipc_file_mode=770 in "
            "[handler]"
        ]

    def test_the_shipped_key_on_a_route(self, setup: Setup) -> None:
        status, lines = setup.check(routes="*,sig_key=changeme test\na,sig_key=mine test")
        assert (status, lines[-2]) == (
            1,
            "error: routes:1: sig_key=changeme is the key that is shipped: write your own",
        )

    def test_everything_in_one_run(self, setup: Setup) -> None:
        (setup.directory / "g.conf").write_text(
            "[runner]\nhttp_port=x\nlog_levle=1\n[proxy]\nworkers=y\nsig_key=changeme\n"
        )
        config, problems = survey_config(str(setup.directory / "g.conf"), Overrides(routes=("* a", "* test", "b c")))
        out = io.StringIO()
        assert check(config, out, problems=problems) == 2
        found = [line for line in out.getvalue().splitlines() if line.startswith(("error: ", "warning: "))]
        assert [line.replace(f"{setup.directory}/", "").partition(" is the key")[0] for line in found] == [
            "error: g.conf:2: http_port: port must be 1 to 65535, not 'x'",
            "error: g.conf:5: workers must be a whole number, not 'y'",
            "error: --route: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'a': '* a'",
            "error: --route: target must be 'host:port', 'unix:path', 'hub' or 'test', not 'c': 'b c'",
            "error: sig_key=changeme",
            "warning: g.conf:3: unknown key 'log_levle' in [runner] (did you mean 'log_level'?)",
            "warning: no http_port, https_ports or local_ports: clients have no way in",
        ]
        assert out.getvalue().endswith("\n5 errors, 2 warnings\n")

    def test_a_reader_that_has_enough(self) -> None:
        class Closed(io.StringIO):
            def write(self, text: str) -> int:
                raise BrokenPipeError

        assert check(load_config(None, routes=["* test"]), Closed()) == 1

    @pytest.mark.parametrize(
        ("one", "other", "message"),
        [
            ("[runner]\nhttp_port=80", "https_ports=80", "http_port and https_ports both want port 80"),
            ("[runner]\nhttp_port=1.1.1.1:80,80", "", "http_port and http_port both want port 80"),
            ("[runner]\nhttp_port=5561", "[handler]\npush_in_http_port=5561", "http_port and push_in_http_port"),
            (
                "[runner]\nhttp_port=1",
                "[handler]\npush_in_spec=tcp://a:2\ncommand_spec=tcp://a:2",
                "push_in_spec and c",
            ),
            ("[runner]\nhttp_port=1", "[handler]\nstats_spec=tcp://*:1", "http_port and stats_spec"),
        ],
    )
    def test_port_wanted_twice(self, setup: Setup, one: str, other: str, message: str) -> None:
        assert any(message in warning for warning in setup.warnings(f"{one}\n{other}"))

    def test_different_addresses_share_a_port(self, setup: Setup) -> None:
        assert setup.warnings("[runner]\nhttp_port=1.1.1.1:80,[::1]:80") == []
        sub = "[runner]\nhttp_port=1\n[handler]\npush_in_sub_connect=true\npush_in_sub_specs=tcp://a:1,tcp://b:1"
        assert setup.warnings(sub) == []

    def test_certificates_of_clients(self, setup: Setup) -> None:
        assert "https port 443" in setup.warnings("[runner]\nhttps_ports=443")[0]
        setup.certificate("runner/certs/default_443")
        assert setup.warnings("[runner]\nhttps_ports=443,1.1.1.1:443") == [
            "https_ports and https_ports both want port 443"
        ]
        assert setup.warnings("[runner]\nhttps_ports=443") == []

    def test_certificate_of_the_control_port(self, setup: Setup) -> None:
        conf = "[runner]\nhttp_port=1\n[handler]\ncontrol_tls_cert=c.crt\ncontrol_tls_key=c.key\npush_in_http_port=5"
        assert setup.warnings(conf) == ["control_tls_cert: c.crt with c.key cannot be used: No such file or directory"]
        setup.certificate("c")
        assert setup.warnings(conf) == []
        assert "  publishers: https://127.0.0.1:5 without a key" in setup.check(conf)[1]

    def test_a_fifo_is_not_waited_for(self, setup: Setup) -> None:
        os.mkfifo(setup.directory / "c.crt")
        routes = "* a:1,ssl,client_cert=c.crt"
        assert setup.warnings(routes=routes) == ["routes:1: client_cert: c.crt must be a regular file"]

    def test_certificates_of_targets(self, setup: Setup) -> None:
        routes = "* a:1,ssl,client_cert=c.crt,client_key=c.key"
        assert setup.warnings(routes=routes) == [
            "routes:1: client_cert: c.crt with c.key cannot be used: No such file or directory"
        ]
        setup.certificate("c")
        assert setup.warnings(routes=routes) == []
        (setup.directory / "c.key").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nx\n")
        assert "cannot be used" in setup.warnings(routes=routes)[0]

    def test_one_event_alone(self, setup: Setup) -> None:
        assert setup.warnings(routes="* a:1,one_event") == ["routes:1: one_event does nothing without over_http"]


class TestHub:
    CONF = "[runner]\nhttp_port=1\n[hub]\nhub_anonymous=all\n"
    ROUTES = "*,path_beg=/hub/ hub\n* test\n"

    def test_good(self, setup: Setup) -> None:
        (setup.directory / "hub.db").write_bytes(b"SQLite format 3\0" + bytes(84))
        extra = "store=hub.db\nlisten=127.0.0.1:7\nlisten_path=/hub/\nprometheus_port=127.0.0.1:9"
        status, lines = setup.check("[proxy]\nsig_key=secret\n" + self.CONF + extra, self.ROUTES)
        assert (status, lines[-1]) == (0, "ok")
        assert "  hub: store hub.db, channels begin with hub/" in lines
        assert "  hub: http port 127.0.0.1:7/hub for another GRIP proxy" in lines
        assert "  metrics: 127.0.0.1:9" in lines
        assert any(line.endswith(" workers") and " 1 hub," in line for line in lines if "processes: " in line)

    def test_a_store_that_is_still_to_be_made(self, setup: Setup) -> None:
        assert setup.warnings(self.CONF + "store=hub.db", self.ROUTES) == []
        (setup.directory / "hub.db").touch()
        assert setup.warnings(self.CONF + "store=hub.db", self.ROUTES) == []

    def test_a_file_that_is_no_store(self, setup: Setup) -> None:
        (setup.directory / "hub.db").write_text("SQL")
        (found,) = setup.warnings(self.CONF + "store=hub.db", self.ROUTES)
        assert found == "store: hub.db is no event store: name another file, which is made at the start"

    def test_a_directory_and_a_fifo_are_no_store(self, setup: Setup) -> None:
        (setup.directory / "d").mkdir()
        os.mkfifo(setup.directory / "f")
        (found,) = setup.warnings(self.CONF + "store=d", self.ROUTES)
        assert found == "store: d cannot be opened for writing: Is a directory"
        (found,) = setup.warnings(self.CONF + "store=f", self.ROUTES)
        assert found == "store: f must be a regular file"

    def test_a_directory_that_is_not_there(self, setup: Setup) -> None:
        (found,) = setup.warnings(self.CONF + "store=none/hub.db", self.ROUTES)
        assert found == "store: directory none does not exist: make it, writable for the user of the service"

    def test_a_directory_that_is_not_writable(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        (found,) = setup.warnings(self.CONF + "store=hub.db", self.ROUTES)
        assert "is not writable for this user" in found

    def test_no_route(self, setup: Setup) -> None:
        (found,) = setup.warnings(self.CONF + "store=hub.db")
        assert found.startswith("no route leads to the hub: write a line like '*,path_beg=/hub/ hub'")

    def test_a_route_without_a_store(self, setup: Setup) -> None:
        (found,) = setup.warnings(routes=self.ROUTES)
        assert found.startswith("routes:1: target 'hub' needs an event store: write store=PATH in [hub]")

    def test_a_port_that_two_want(self, setup: Setup) -> None:
        conf = "[proxy]\nsig_key=secret\n" + self.CONF + "store=hub.db\nlisten=1"
        assert setup.warnings(conf, self.ROUTES) == ["http_port and listen both want port 1"]
