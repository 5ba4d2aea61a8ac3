"""gripproxy.config.loader: the INI dialect, every kind of value, overrides, and the shipped files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.config import (
    AccessPolicy,
    Config,
    ConfigError,
    Overrides,
    config_argv,
    load_config,
    parse_address,
    parse_local,
    survey_config,
)
from gripproxy.config.ini import Raw, logical_lines, split_value
from gripproxy.config.keys import NOT_YET, SECTIONS, cores, default_rundir

NONE = "\u2013"
"""What the reference page shows where there is nothing."""

ROOT = pathlib.Path(__file__).parents[3]

PUSHPIN = """
[global]
include={libdir}/internal.conf

# directory to save runtime files
rundir=/var/run/pushpin
ipc_prefix=pushpin-
port_offset=0
stats_connection_ttl=120

[runner]
services=condure,zurl,pushpin-proxy,pushpin-handler
http_port=7999
#https_ports=443
#local_ports={rundir}/{ipc_prefix}server
logdir=/var/log/pushpin
log_level=2
client_buffer_size=8192
client_maxconn=50000
condure_bin=condure
mongrel2_bin=mongrel2
m2sh_bin=m2sh
zurl_bin=zurl

[proxy]
routesfile=routes
debug=false
auto_cross_origin=false
accept_x_forwarded_protocol=false
set_x_forwarded_protocol=proto-only
x_forwarded_for=
x_forwarded_for_trusted=
orig_headers_need_mark=
accept_pushpin_route=false
log_from=false
log_user_agent=false
sig_iss=pushpin
sig_key=changeme
upstream_key=
sockjs_url=http://cdn.jsdelivr.net/sockjs/0.3.4/sockjs.min.js
updates_check=off
organization_name=

[handler]
#ipc_file_mode=777
push_in_spec=tcp://127.0.0.1:5560
push_in_sub_specs=tcp://127.0.0.1:5562
push_in_sub_connect=false
push_in_http_addr=127.0.0.1
push_in_http_port=5561
push_in_http_max_headers_size=10000
push_in_http_max_body_size=1000000
stats_spec=ipc://{rundir}/{ipc_prefix}stats
command_spec=tcp://127.0.0.1:5563
message_rate=2500
message_hwm=25000
#message_block_size=
message_wait=5000
id_cache_ttl=60
connection_subscription_max=20
subscription_linger=60
stats_subscription_ttl=60
stats_report_interval=10
stats_format=tnetstring
"""


class Files:
    """A directory with config files."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory

    def write(self, text: str, name: str = "g.conf") -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def load(self, text: str, **overrides: Any) -> Config:
        return load_config(self.write(text), **overrides)

    def error(self, text: str, **overrides: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(text, **overrides)
        return str(caught.value).replace(str(self.directory) + "/", "")


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    return Files(tmp_path)


class TestPushpinsFile:
    def test_loads_unchanged_and_without_a_warning(self, files: Files) -> None:
        config = files.load(PUSHPIN)
        assert config.warnings == []
        assert config.globals.rundir == "/var/run/pushpin"
        assert config.runner.http_port == ("7999",)
        assert config.services == {"worker", "handler"}
        assert config.handler.stats_spec == "ipc:///var/run/pushpin/pushpin-stats"
        assert config.handler.message_rate == 2500
        assert config.handler.message_hwm == 25000
        assert config.proxy.set_x_forwarded_protocol == "proto-only"
        assert config.proxy.routesfile == str(files.directory / "routes")
        assert config.proxy.workers == cores()

    def test_keys_that_mean_nothing_here_are_listed(self, files: Files) -> None:
        ignored = [name for name, _ in files.load(PUSHPIN).ignored]
        assert ignored == [
            "condure_bin", "mongrel2_bin", "m2sh_bin", "zurl_bin", "sockjs_url", "updates_check", "organization_name"
        ]  # fmt: skip

    def test_internal_conf_is_read_if_it_is_there(self, files: Files) -> None:
        files.write("[proxy]\nzurl_in_specs=ipc://x\ndebug=true\n[handler]\nmessage_wait=7\n", "internal.conf")
        config = files.load(PUSHPIN.replace("rundir=/var", f"libdir={files.directory}\nrundir=/var"))
        assert config.proxy.debug is False  # the file goes before what it includes
        assert config.handler.message_wait == 5000
        assert config.warnings == []


class TestBuiltIn:
    def test_without_a_file(self) -> None:
        config = load_config(None)
        assert config.path is None
        assert config.runner.http_port == ("7999",)
        assert config.handler.push_in_spec == "tcp://127.0.0.1:5560"
        assert config.handler.push_in_http_port == 5561
        assert config.handler.id_cache_ttl == 60
        assert config.handler.message_rate == 0
        assert config.route_lines == ("* test",)
        assert config.warnings == []

    def test_equals_the_shipped_file(self) -> None:
        shipped, builtin = load_config(str(ROOT / "conf" / "gripproxy.conf")), load_config(None)
        assert shipped.warnings == []
        assert shipped.ignored == []
        assert dataclasses.replace(shipped.globals, rundir="") == dataclasses.replace(builtin.globals, rundir="")
        assert shipped.runner == builtin.runner
        assert dataclasses.replace(shipped.proxy, routesfile="") == builtin.proxy
        assert dataclasses.replace(shipped.handler, stats_spec="x") == dataclasses.replace(
            builtin.handler, stats_spec="x"
        )

    def test_shipped_file_has_no_delivery_rate_limit(self) -> None:
        handler = load_config(str(ROOT / "conf" / "gripproxy.conf")).handler
        assert (handler.message_rate, handler.message_hwm) == (0, 0)

    def test_missing_keys_have_pushpins_code_defaults(self, files: Files) -> None:
        config = files.load("")
        assert config.runner.http_port == ()
        assert config.handler.push_in_spec == ""
        assert config.handler.id_cache_ttl == 0
        assert config.proxy.set_x_forwarded_protocol == "false"
        assert config.proxy.sig_key == ""

    def test_rundir_is_of_this_user(self, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(os, "getuid", lambda: 1000)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert default_rundir() == str(tmp_path / "gripproxy")
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert default_rundir().endswith("/gripproxy-1000")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert default_rundir() == "/run/gripproxy"


class TestDialect:
    @pytest.mark.parametrize(
        ("value", "pieces"),
        [
            ("a", ["a"]),
            (" a , b ", ["a", "b"]),
            ('"a,b"', ["a,b"]),
            ('a, " b ,c" ,d', ["a", " b ,c", "d"]),
            (r'"a\"b\\c\n"', ['a"b\\c\n']),
            (r"a\,b", ["a,b"]),
            (r"C:\dir", [r"C:\dir"]),
            ("", [""]),
            (",", ["", ""]),
            ('x"y z"w', ["xy zw"]),
            ("a # b", ["a # b"]),
        ],
    )
    def test_values(self, value: str, pieces: list[str]) -> None:
        assert split_value(Raw(value, "f", 1)) == pieces

    def test_open_quote(self, files: Files) -> None:
        assert files.error('[proxy]\ncdn_loop="a') == "g.conf:2: a quoted value has no closing '\"'"

    def test_lines(self) -> None:
        text = "\n# c\n; c\n a = b \r\n[x]\nlong=1,\\\n  2\nend\\\\\nlast\\"
        assert logical_lines(text) == [(4, "a = b"), (5, "[x]"), (6, "long=1,2"), (8, "end\\\\"), (9, "last")]

    def test_a_quoted_list_is_one_string(self, files: Files) -> None:
        assert files.load('[proxy]\norig_headers_need_mark="A,B"').proxy.orig_headers_need_mark == ("A,B",)
        assert files.load("[proxy]\norig_headers_need_mark=A, B").proxy.orig_headers_need_mark == ("A", "B")

    def test_a_string_keeps_its_commas(self, files: Files) -> None:
        assert files.load("[proxy]\nsig_key=a,b#c;d").proxy.sig_key == "a,b#c;d"

    def test_line_that_is_nothing(self, files: Files) -> None:
        assert files.error("[proxy]\ndebug\n") == "g.conf:2: 'debug' is neither 'key=value' nor '[section]'"
        assert files.error("[proxy\n") == "g.conf:1: section '[proxy' has no closing ']'"

    def test_key_given_twice(self, files: Files) -> None:
        config = files.load("[proxy]\ndebug=true\ndebug=false")
        assert config.proxy.debug is False
        assert "was given in line 2 already" in config.warnings[0]

    def test_variables(self, files: Files) -> None:
        config = files.load("[global]\nrundir=/r\nipc_prefix=x-\n[handler]\nstats_spec=ipc://{rundir}/{ipc_prefix}s")
        assert config.handler.stats_spec == "ipc:///r/x-s"

    def test_file_with_bytes_that_are_no_utf8(self, files: Files) -> None:
        path = files.directory / "g.conf"
        path.write_bytes(b"\xef\xbb\xbf# \xff\n[proxy]\ncdn_loop=\xc3\xa9\n")
        assert load_config(str(path)).proxy.cdn_loop == "é"

    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
    def test_any_value_is_read_or_refused(self, text: str) -> None:
        try:
            pieces = split_value(Raw(text, "f", 1))
        except ConfigError:
            return
        assert len("".join(pieces)) <= len(text)

    @given(st.lists(st.text(st.sampled_from(' ,"\\;ab\n'), max_size=8), min_size=1, max_size=4))
    def test_quoted_pieces_come_back(self, pieces: list[str]) -> None:
        def quote(piece: str) -> str:
            return '"' + piece.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

        assert split_value(Raw(", ".join(map(quote, pieces)), "f", 1)) == pieces


class TestIncludes:
    def test_lower_priority(self, files: Files) -> None:
        files.write("[proxy]\ndebug=true\nworkers=3\n", "more.conf")
        config = files.load("[global]\ninclude=more.conf\n[proxy]\nworkers=2\n")
        assert (config.proxy.workers, config.proxy.debug) == (2, True)

    def test_errors_name_the_included_file(self, files: Files) -> None:
        files.write("\n[proxy]\nworkers=many\n", "more.conf")
        error = files.error("[global]\ninclude=more.conf\n")
        assert error == "more.conf:3: workers must be a whole number, not 'many'"

    def test_missing(self, files: Files) -> None:
        assert files.error("[global]\ninclude=no.conf\n") == "g.conf:2: include file 'no.conf' does not exist"
        assert files.load("[global]\ninclude={libdir}/internal.conf\n").warnings == []

    def test_of_itself(self, files: Files) -> None:
        assert "within each other" in files.error("[global]\ninclude=g.conf\n")


class TestValues:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[proxy]\nworkers=-1", "workers must be 0 to 1024, not -1"),
            ("[proxy]\ndebug=maybe", "debug must be true or false, not 'maybe'"),
            ("[proxy]\nset_x_forwarded_protocol=x", "must be one of false, true, proto-only, not 'x'"),
            ("[proxy]\nconnect_timeout=fast", "connect_timeout must be a number of seconds, not 'fast'"),
            ("[proxy]\nconnect_timeout=-1", "connect_timeout must be a number of seconds, not '-1'"),
            ("[proxy]\nx_forwarded_for=append,cut", "x_forwarded_for: must be a list of 'truncate:N' and 'append'"),
            ("[proxy]\npolicy_deny=10.0.0.0/40", "'10.0.0.0/40' is no network"),
            ("[proxy]\nsig_key=base64:!", "sig_key: what follows base64: is not valid base64"),
            ("[proxy]\nsig_key=file:nothing", "sig_key: cannot read the key file"),
            ("[runner]\nhttp_port=0", "http_port: port must be 1 to 65535, not '0'"),
            ("[runner]\nhttp_port=::1:80", "needs brackets"),
            ("[runner]\nlocal_ports=/x?mode=9", "local_ports: mode must be octal like 660, not '9'"),
            ("[runner]\nlog_level=loud", "log_level must be 0 to 3 or component:level, not 'loud'"),
            ("[runner]\nclient_maxconn=0", "client_maxconn must be at least 1, not 0"),
            ("[runner]\nservices=zurl", "services names no process: 'zurl'"),
            ("[handler]\npush_in_spec=http://x", "push_in_spec: must be tcp://address:port or ipc://path"),
            ("[handler]\npush_in_spec=tcp://x:0", "push_in_spec: port must be 1 to 65535, not 0"),
            ("[handler]\nipc_file_mode=rw", "ipc_file_mode: mode must be octal"),
            ("[handler]\nstats_format=xml", "stats_format must be one of tnetstring, json, not 'xml'"),
            ("[handler]\npush_in_http_port=70000", "push_in_http_port must be 0 to 65535, not 70000"),
            ("[handler]\ncontrol_tls_cert=a.pem", "control_tls_cert and control_tls_key need each other"),
            ("[handler]\nprometheus_port=x", "prometheus_port: port must be 1 to 65535, not 'x'"),
            ("[global]\nport_offset=x", "port_offset must be a whole number, not 'x'"),
            ("[global]\nipc_prefix=a/b", "ipc_prefix must have no '/'"),
            ("[global]\nrundir=/" + "x" * 100, "rundir is too long"),
        ],
    )
    def test_bad_value_names_file_and_line(self, files: Files, text: str, message: str) -> None:
        error = files.error(text)
        assert error.startswith("g.conf:2: ")
        assert message in error

    def test_good_values(self, files: Files) -> None:
        config = files.load(
            "[runner]\nhttp_port=1.2.3.4:80, [::1]:81,82\nlocal_ports={rundir}/s?mode=660&user=me\n"
            "shutdown_timeout=0.5\n"
            "log_level=1,pushpin-proxy:3,handler:0\n"
            "[proxy]\nmax_open_requests=7\nx_forwarded_for=truncate:0,append\nsig_key=base64:AAEC\npolicy_allow=10.1.2.3\n"
            "[handler]\nipc_file_mode=770\nmessage_rate=-1\nmessage_block_size=\nprometheus_port=127.0.0.1:9000\n"
            "[global]\nrundir=/r\n"
        )
        assert config.runner.http_port == ("1.2.3.4:80", "[::1]:81", "82")
        assert config.runner.local_ports == ("/r/s?mode=660&user=me",)
        assert config.runner.shutdown_timeout == 0.5
        assert [config.log_level(name) for name in ("runner", "worker", "handler")] == [1, 3, 0]
        assert config.proxy.max_open_requests == 7
        assert config.proxy.x_forwarded_for == ("truncate:0", "append")
        assert config.proxy.policy_allow == ("10.1.2.3/32",)
        assert config.handler.ipc_file_mode == 0o770
        assert config.handler.message_rate == 0
        assert config.handler.message_block_size == 0

    def test_open_requests_never_above_connections(self, files: Files) -> None:
        config = files.load("[runner]\nclient_maxconn=10\n[proxy]\nmax_open_requests=20")
        assert config.proxy.max_open_requests == 10

    def test_relative_paths(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("/")
        config = files.load("[global]\nrundir=run\n[handler]\ncontrol_tls_cert=c.pem\ncontrol_tls_key=/k.pem")
        assert config.globals.rundir == "/run"
        assert config.handler.control_tls_cert == str(files.directory / "c.pem")
        assert config.handler.control_tls_key == "/k.pem"
        assert config.certs_dir == str(files.directory / "runner" / "certs")

    def test_older_names(self, files: Files) -> None:
        older = "[handler]\npush_in_max_body_size=5\n"
        assert files.load(older).handler.push_in_http_max_body_size == 5
        assert files.load(older + "push_in_http_max_body_size=6").handler.push_in_http_max_body_size == 6
        assert files.load(older).warnings == []

    def test_control_key_is_a_shared_secret(self, files: Files) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        files.write(private.decode(), "k.pem")
        files.write(public.decode(), "p.pem")
        assert files.load("[proxy]\nsig_key=file:k.pem\nupstream_key=file:p.pem").proxy.sig_key == "file:k.pem"
        assert "must be a shared secret, not a key for ES256" in files.error("[handler]\ncontrol_key=file:k.pem")
        assert "is a public key" in files.error("[proxy]\nsig_key=file:p.pem")


class TestUnknown:
    def test_key_has_the_nearest_name(self, files: Files) -> None:
        config = files.load("[proxy]\nworker=2\n")
        assert [text.partition("g.conf:")[2] for text in config.warnings] == [
            "2: unknown key 'worker' in [proxy] (did you mean 'workers'?)"
        ]

    def test_key_of_another_section(self, files: Files) -> None:
        assert "(it belongs to [handler])" in files.load("[proxy]\nmessage_wait=2").warnings[0]

    def test_sections(self, files: Files) -> None:
        config = files.load("a=b\n[handlr]\nx=1\ny=2\n")
        assert len(config.warnings) == 2
        assert "'a' stands before any [section]" in config.warnings[0]
        assert "unknown section [handlr] (did you mean 'handler'?)" in config.warnings[1]

    def test_log_component(self, files: Files) -> None:
        assert "no component 'web'" in files.load("[runner]\nlog_level=web:1").warnings[0]

    def test_keys_that_do_nothing_yet(self, files: Files) -> None:
        assert "not supported yet: share_all" in files.load("[handler]\nshare_all=true").warnings[0]
        assert files.load("[handler]\nshare_all=false").warnings == []


class TestOverrides:
    def test_port_replaces_all_listeners(self, files: Files) -> None:
        config = files.load("[runner]\nhttp_port=80\nhttps_ports=443\nlocal_ports=/x", port="[::1]:8000")
        assert config.runner.http_port == ("[::1]:8000",)
        assert config.runner.https_ports == config.runner.local_ports == ()

    def test_id(self, files: Files) -> None:
        config = files.load(PUSHPIN, id=3)
        assert config.globals.ipc_prefix == "p3-"
        assert config.globals.port_offset == 30
        assert config.handler.push_in_spec == "tcp://127.0.0.1:5590"
        assert config.handler.push_in_sub_specs == ("tcp://127.0.0.1:5592",)
        assert config.handler.push_in_http_port == 5591
        assert config.handler.command_spec == "tcp://127.0.0.1:5593"
        assert config.handler.stats_spec == "ipc:///var/run/pushpin/p3-stats"
        assert config.runner.http_port == ("7999",)

    def test_ipc_prefix_and_offset(self) -> None:
        config = load_config(None, ipc_prefix="x-", port_offset=1)
        assert (config.globals.ipc_prefix, config.handler.push_in_http_port) == ("x-", 5562)

    def test_offset_beyond_the_last_port(self, files: Files) -> None:
        assert "make more than 65535" in files.error(PUSHPIN, port_offset=60000)
        assert files.load("[handler]\npush_in_http_port=0", port_offset=5).handler.push_in_http_port == 0
        assert files.load("[handler]\npush_in_spec=tcp://*:*", port_offset=5).handler.push_in_spec == "tcp://*:*"

    def test_bad_ones_name_the_option(self, files: Files) -> None:
        assert files.error("", port="x") == "--port: http_port: port must be 1 to 65535, not 'x'"
        assert files.error("", id=7000) == "--id must be 0 to 6553, not 7000"
        for level in ("x", "4", "-1", "2,worker:9", "default:10"):
            bad = level.rpartition(",")[2]
            assert files.error("", log_level=level) == f"--loglevel must be 0 to 3 or component:level, not '{bad}'"
        assert files.load("", log_level="worker:3,0").runner.log_level == 0

    def test_a_level_beyond_the_last_in_a_file_is_the_last(self, files: Files) -> None:
        config = files.load("[runner]\nlog_level=2,worker:10")
        assert config.log_level("worker") == 3
        assert [text.rpartition("/")[2] for text in config.warnings] == [
            "g.conf:2: log_level must be 0 to 3, not 'worker:10'; 3 is used"
        ]

    def test_everything_that_is_wrong_is_found(self, files: Files) -> None:
        path = files.write(
            "[global]\ninclude=missing.conf\n[runner\nhttp_port=none\nlog_level=x\nnonsense\n[proxy]\nworkers=many\n"
            "debug=perhaps\nsig_iss=me\n[handler]\ncontrol_tls_cert=c\ncontrol_key=k\npush_in_spec=tcp://*:1"
        )
        config, problems = survey_config(path, Overrides(id=7000, port_offset=70000))
        assert [str(problem).removeprefix(f"{path}:") for problem in problems] == [
            "3: section '[runner' has no closing ']'",
            "6: 'nonsense' is neither 'key=value' nor '[section]'",
            f"2: include file '{path.rpartition('/')[0]}/missing.conf' does not exist",
            "--id must be 0 to 6553, not 7000",
            "--port-offset: port_offset must be 0 to 65534, not 70000",
            "4: http_port: port must be 1 to 65535, not 'none'",
            "5: log_level must be 0 to 3 or component:level, not 'x'",
            "8: workers must be a whole number, not 'many'",
            "9: debug must be true or false, not 'perhaps'",
            "12: control_tls_cert and control_tls_key need each other",
            "14: push_in_spec must be on loopback (tcp://127.0.0.1:PORT), not 'tcp://*:1': control_key demands a key, "
            "and over ZeroMQ other machines would publish without one; write control_zmq=open in [handler] if only "
            "publishers reach it",
        ]
        assert (config.proxy.sig_iss, config.proxy.debug, config.runner.http_port) == ("me", False, ())

    @pytest.mark.parametrize("key", ["push_in_spec", "push_in_sub_specs", "command_spec"])
    def test_publishing_around_the_key(self, files: Files, key: str) -> None:
        text = f"[handler]\ncontrol_key=k\n{key}="
        for host in ("*", "0.0.0.0", "[::]", "192.0.2.1", "[2001:db8::1]", "no-such-interface"):
            assert f"g.conf:3: {key} must be on loopback" in files.error(f"{text}tcp://{host}:1")
            assert files.load(f"{text}tcp://{host}:1\ncontrol_zmq=open").handler.control_zmq == "open"
        for spec in ("tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://lo:1", "tcp://localhost:1", "ipc:///s"):
            files.load(text + spec)
        assert "control_zmq must be one of closed, open, not 'yes'" in files.error(f"{text}ipc:///s\ncontrol_zmq=yes")

    def test_what_connects_is_the_operators_choice(self, files: Files) -> None:
        files.load("[handler]\ncontrol_key=k\npush_in_sub_specs=tcp://192.0.2.1:1\npush_in_sub_connect=true")
        files.load("[handler]\ncontrol_key=k\nstats_spec=tcp://*:1")

    def test_log(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("/")
        config = load_config(None, log_level="3", log_file="x.log")
        assert config.log_level("worker") == 3
        assert config.log_file == "/x.log"

    def test_routes_replace_the_file(self, files: Files) -> None:
        assert files.load("[proxy]\nroutesfile=r").route_lines == ()
        assert files.load("[proxy]\nroutesfile=r", routes=["a test"]).route_lines == ("a test",)

    def test_missing_file(self) -> None:
        with pytest.raises(ConfigError, match="/no/such: cannot be read: No such file or directory"):
            load_config("/no/such")

    def test_children_load_the_same(self, files: Files) -> None:
        from gripproxy.cli.main import _command_parser, _split_command, load

        configs = [
            load_config(None),
            files.load(PUSHPIN, port="80", id=2, log_level="worker:3", log_file="l", routes=["* test", "a b:1,ssl"]),
            load_config(None, ipc_prefix="-x", port_offset=4),
        ]
        for config in configs:
            command, rest = _split_command(["worker", *config_argv(config)])
            assert command == "worker"
            again = load(_command_parser("worker").parse_args(rest))
            log_file = dataclasses.replace(again.overrides, log_file=config.overrides.log_file)
            assert dataclasses.replace(again, overrides=log_file) == config
            assert again.log_file == config.log_file

    def test_picklable(self, files: Files) -> None:
        config = files.load(PUSHPIN)
        assert pickle.loads(pickle.dumps(config)) == config


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "result"),
        [
            ("80", ("", 80)),
            ("*:80", ("", 80)),
            ("a.b:80", ("a.b", 80)),
            ("[::1]:65535", ("::1", 65535)),
            ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        ],
    )
    def test_good(self, text: str, result: tuple[str, int]) -> None:
        assert parse_address(text) == result

    @pytest.mark.parametrize("text", ["", ":80", "x", "65536", "-1", "::1:80", "[x]:80", "[::1]", "a:", "8 0", "٣"])
    def test_bad(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            parse_address(text)

    def test_local(self) -> None:
        local = parse_local("/run/x?mode=660&user=me&group=12")
        assert (local.path, local.mode, local.user, local.group) == ("/run/x", 0o660, "me", "12")
        assert parse_local("/x").mode is None

    @pytest.mark.parametrize("text", ["", "?mode=1", "/x?mode=", "/x?mod=1", "/x?mode=99999", "/" + "y" * 107])
    def test_bad_local(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            parse_local(text)

    @given(st.text(max_size=30))
    def test_nothing_else_is_raised(self, text: str) -> None:
        for parse in (parse_address, parse_local):
            with contextlib.suppress(ValueError):
                parse(text)


class TestPolicy:
    @pytest.mark.parametrize(
        "address",
        ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "10.1.1.1", "172.31.0.1", "192.168.1.1", "169.254.169.254",
         "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
         "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "2002:7f00:1::1", "2002:a00:1::",
         "::127.0.0.1", "no address"],
    )  # fmt: skip
    def test_denied_by_default(self, address: str) -> None:
        assert not load_config(None).policy().allows(address)

    @pytest.mark.parametrize(
        "address", ["8.8.8.8", "2001:db8::1", "::ffff:8.8.8.8", "172.32.0.1", "64:ff9b::8.8.8.8", "2002:808:808::1"]
    )
    def test_allowed_by_default(self, address: str) -> None:
        assert load_config(None).policy().allows(address)

    def test_allow_goes_first(self, files: Files) -> None:
        policy = files.load("[proxy]\npolicy_allow=127.0.0.2").policy()
        assert policy.allows("127.0.0.2")
        assert not policy.allows("127.0.0.1")

    def test_empty_deny_allows_all(self, files: Files) -> None:
        assert files.load("[proxy]\npolicy_deny=").policy().allows("127.0.0.1")

    def test_by_itself(self) -> None:
        assert not AccessPolicy((), ("0.0.0.0/0",)).allows("1.1.1.1")


class TestReferencePage:
    """docs/configuration.md has a line for each key, with its default and unit."""

    PAGE = (ROOT / "docs" / "configuration.md").read_text()

    @pytest.mark.parametrize(
        ("section", "name"),
        [(section, item.name) for section, cls in SECTIONS.items() for item in dataclasses.fields(cls)],
    )
    def test_line(self, section: str, name: str) -> None:
        rules = next(item for item in dataclasses.fields(SECTIONS[section]) if item.name == name).metadata
        if rules["kind"] == "derived":
            return
        part = self.PAGE.partition(f"## [{section}]")[2].partition("\n## ")[0]
        rows = re.findall(rf"^\| `{name}` \| (.*?) \| (.*?) \| (.*) \|$", part, re.MULTILINE)
        assert len(rows) == 1
        default, unit, meaning = rows[0]
        value = rules["default"]
        text = (
            str(value).lower()
            if isinstance(value, bool)
            else f"{value:.15g}"
            if isinstance(value, float)
            else ",".join(value)
            if isinstance(value, tuple)
            else str(value or "" if value is None else value)
        )
        expected = f"`{text}`" if text else NONE
        if rules["builtin"] is not None:
            expected += f", built-in `{rules['builtin']}`"
        assert (default, unit) == (expected, rules["unit"] or NONE)
        assert ("*not yet*" in meaning) is ((section, name) in NOT_YET)
