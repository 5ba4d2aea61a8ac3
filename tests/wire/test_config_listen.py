"""Where the proxy listens, and what else its configuration says (docs/grip.md §1.8)."""

from __future__ import annotations

import contextlib
import pathlib
import ssl
import stat
from collections.abc import Callable

import jwt
import pytest
import zmq

from tests.wire.wirekit import Client, Setup, Site, covers, expect, hold, on_pushpin, response, self_signed
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.publisher import tnet

Start = Callable[[Setup], Site]
DEFAULT, NAMED = self_signed("default.test"), self_signed("named.test")
PORTS = Setup(
    config={
        "runner.http_port": "127.0.0.1:{http},127.0.0.1:{port1},[::1]:{port2}",
        "runner.https_ports": "127.0.0.1:{port3}",
        "runner.local_ports": "{rundir}/{ipc_prefix}server",
        "handler.command_spec": "ipc://{rundir}/{ipc_prefix}command",
        "proxy.routesfile": "routes",
        "runner.log_level": 3,
    },
    files={
        "runner/certs/default_{port3}.crt": DEFAULT.cert,
        "runner/certs/default_{port3}.key": DEFAULT.key,
        "runner/certs/named.test.crt": NAMED.cert,
        "runner/certs/named.test.key": NAMED.key,
    },
    wait_for=("http", "control", "port1", "port3"),
)
MODES = Setup(config={"runner.local_ports": "{dir}/run/server?mode=606"})
OFFSET = Setup(config={"global.port_offset": 1}, wait_for=("http", "control+1", "rep+1"))
HANDLER_ONLY = Setup(config={"runner.services": "pushpin-handler"}, wait_for=("control",))
INTERNAL = pathlib.Path("/usr/lib/pushpin/internal.conf")
INCLUDE = Setup(
    config={"global.include": "{dir}/more.conf", "proxy.sig_iss": "main", "proxy.auto_cross_origin": None},
    # Pushpin finds the addresses between its processes in this file too.
    files={
        "more.conf": (INTERNAL.read_text() if on_pushpin() else "")
        + "[proxy]\nsig_iss=included\nauto_cross_origin=true\n"
    },
)
QUIET = Setup(config={"runner.log_level": 1})
UNKNOWN = Setup(config={"proxy.auto_crossorigin": True, "handler.shared_nothing": 1})
INTAKE = Setup(
    config={
        "handler.push_in_sub_specs": "tcp://127.0.0.1:{sub},tcp://127.0.0.1:{port1}",
        "handler.push_in_http_max_headers_size": 600,
        "handler.push_in_http_max_body_size": 1000,
        "handler.connection_subscription_max": 2,
    }
)
CONNECT = Setup(
    config={
        "handler.push_in_sub_connect": True,
        "handler.push_in_sub_specs": "tcp://127.0.0.1:{port1},tcp://127.0.0.1:{port2}",
    }
)


@covers("1.8 http_port", "1.8 lists")
def test_several_http_ports(start: Start) -> None:
    site = start(PORTS)
    for port in ("http", "port1"):
        with site.connect(port) as client:
            assert client.ask("GET", "/").body == b"backend\n"


@covers("1.8 http_port")
def test_http_port_on_ipv6(start: Start) -> None:
    site = start(PORTS)
    with site.connect("port2", host="::1") as client:
        assert client.ask("GET", "/").body == b"backend\n"


@covers("1.8 https_ports")
@pytest.mark.parametrize(("name", "certificate"), [("named.test", NAMED), ("other.test", DEFAULT)])
def test_certificate_is_chosen_by_name(start: Start, name: str, certificate: object) -> None:
    site = start(PORTS)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with site.connect("port3", tls=context, server_name=name) as client:
        assert client.ask("GET", "/", f"Host: {name}").body == b"backend\n"
        assert isinstance(client.sock, ssl.SSLSocket)
        shown = ssl.DER_cert_to_PEM_cert(client.sock.getpeercert(binary_form=True) or b"")
    assert shown.split() == certificate.cert.split()  # type: ignore[attr-defined]


@covers("1.8 local_ports", "1.8 variables", "1.8 rundir", "1.8 ipc_prefix", "1.8 routesfile")
def test_unix_socket(start: Start) -> None:
    site = start(PORTS)
    with Client.connect_unix(f"{site.proxy.directory}/run/wire-server") as client:
        assert client.ask("GET", "/").body == b"backend\n"


@covers("1.8 variables", "1.8 command_spec")
def test_ipc_spec_with_variables(start: Start) -> None:
    site = start(PORTS)
    with zmq.Context() as context, context.socket(zmq.REQ) as sock:
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        sock.connect(f"ipc://{site.proxy.directory}/run/wire-command")
        sock.send(tnet({"method": "recover"}))
        assert b"success,4:true" in sock.recv()


@covers("1.8 local_ports mode")
def test_mode_of_a_unix_socket(start: Start) -> None:
    site = start(MODES)
    mode = expect(
        pushpin="server?mode=606",
        ours="server",
        pushpin_does="Takes `?mode=606` in `local_ports` as part of the socket's file name.",
        ours_does="Creates the unix socket without the suffix and sets its mode to 0606.",
        because="Mode and owner of unix sockets exist since Pushpin 1.37.",
    )
    path = pathlib.Path(f"{site.proxy.directory}/run/{mode}")
    with Client.connect_unix(str(path)) as client:
        assert client.ask("GET", "/").status == 200
    if not on_pushpin():
        assert stat.S_IMODE(path.stat().st_mode) == 0o606


@covers("1.8 port_offset")
def test_port_offset_moves_the_intakes_only(start: Start) -> None:
    site = start(OFFSET)
    with Client.connect(site.port) as client:
        assert client.ask("GET", "/").status == 200
    with Client.connect(site.proxy.ports["control"] + 1) as client:
        assert client.ask("GET", "/").status == 200
    with zmq.Context() as context, context.socket(zmq.REQ) as sock:
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        sock.connect(f"tcp://127.0.0.1:{site.proxy.ports['rep'] + 1}")
        sock.send(tnet({"method": "get-zmq-uris"}))
        assert f"tcp://127.0.0.1:{site.proxy.ports['pull'] + 1}".encode() in sock.recv()


@covers("1.8 include")
def test_included_file_has_lower_priority(start: Start, case: str) -> None:
    site = start(INCLUDE)
    assert site.get(f"/{case}")["Access-Control-Allow-Origin"] == "*"
    token = site.backend.request(f"/{case}")["Grip-Sig"] or ""
    assert jwt.decode(token, options={"verify_signature": False})["iss"] == "main"


@covers("1.8 services")
def test_handler_alone(start: Start) -> None:
    site = start(HANDLER_ONLY)
    assert site.publisher.post("/", "", method="GET").status == 200
    with pytest.raises(ConnectionRefusedError):
        site.connect()


@covers("1.8 logdir log_level", "1.9 loglevel")
def test_log_level(start: Start, case: str) -> None:
    site = start(QUIET)
    assert site.get(f"/{case}").status == 200
    assert site.get(f"/{case}").status == 200
    assert case not in site.proxy.log
    chatty = start(PORTS)
    chatty.get(f"/{case}")
    chatty.proxy.wait_log(f"/{case}")
    assert "[DEBUG]" in chatty.proxy.log


@covers("1.8 workers")
def test_unknown_key_is_one_warning_with_the_nearest_name(start: Start) -> None:
    site = start(UNKNOWN)
    assert site.get("/").status == 200
    assert ("auto_cross_origin" in site.proxy.log) is expect(
        pushpin=False,
        ours=True,
        pushpin_does="Ignores an unknown configuration key without a log line.",
        ours_does="Logs a warning for an unknown key with the nearest valid name (`auto_cross_origin` for "
        "`auto_crossorigin`).",
        because="A misspelled setting has no effect, and its author should learn of it.",
    )
    assert site.proxy.log.count("auto_crossorigin") == expect(
        pushpin=0,
        ours=1,
        pushpin_does="Does not mention an unknown key in the log.",
        ours_does="Logs an unknown key once, not once per process.",
        because="A configuration is read once for all processes.",
    )


@covers("1.8 push_in_sub_specs")
def test_sub_binds_only_the_first_spec(start: Start, case: str) -> None:
    site = start(INTAKE)
    site.backend.on(f"/{case}", hold("stream", case))
    with site.connect() as client, site.publisher.feed() as feed:
        client.request("GET", f"/{case}")
        client.head()
        feed.wait_for(b"\x01" + case.encode())
        feed.item(case, {"http-stream": {"content": "x"}})
        assert client.data(1) == b"x"
    with pytest.raises(ConnectionRefusedError):
        site.connect("port1")


@covers("1.8 push_in_sub_connect", "5.7 connect")
def test_sub_connects_to_every_spec(start: Start, case: str) -> None:
    site = start(CONNECT)
    site.backend.on(f"/{case}", hold("stream", case))
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        client = stack.enter_context(site.connect())
        feeds = []
        for port in ("port1", "port2"):
            feed = stack.enter_context(context.socket(zmq.XPUB))
            feed.setsockopt(zmq.LINGER, 0)
            feed.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
            feed.bind(f"tcp://127.0.0.1:{site.proxy.ports[port]}")
            feeds.append(feed)
        client.request("GET", f"/{case}")
        client.head()
        for feed in feeds:
            while feed.recv() != b"\x01" + case.encode():
                pass
            feed.send_multipart([case.encode(), b"T" + tnet({"http-stream": {"content": "x"}})])
            assert client.data(1) == b"x"


@covers("1.8 push_in_http_max_headers_size", "1.8 push_in_http_max_body_size")
def test_sizes_of_the_control_port(start: Start) -> None:
    site = start(INTAKE)
    answer = site.publisher.post("/publish/", '{"items": []}', "X-Big: " + "x" * 1000)
    assert answer.line == expect(
        pushpin="200 OK",
        ours="400 Bad Request",
        pushpin_does="Accepts a request to the control port whose headers exceed `push_in_http_max_headers_size`.",
        ours_does="Returns 400 for a request to the control port whose headers exceed `push_in_http_max_headers_size`.",
        because="Up to 1.40 Pushpin does not read this key, by a misspelling.",
    )
    answer = site.publisher.post("/publish/", '{"items": []}' + " " * 1000)
    assert answer.line == expect(
        pushpin="200 OK",
        ours="400 Bad Request",
        pushpin_does="Accepts a request to the control port whose body exceeds `push_in_http_max_body_size`.",
        ours_does="Returns 400 for a request to the control port whose body exceeds `push_in_http_max_body_size`.",
        because="Up to 1.40 Pushpin does not read this key, by a misspelling.",
    )


@covers("1.8 connection_subscription_max", "10 channels")
def test_channels_beyond_the_limit_are_ignored(start: Start, case: str) -> None:
    site = start(INTAKE)
    names = [f"{case}{number}" for number in range(3)]
    site.backend.on(f"/{case}", response("200 OK", "Grip-Hold: stream", f"Grip-Channel: {', '.join(names)}"))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.head()
        site.publisher.stream(names[2], "[third]")
        site.publisher.stream(names[0], "[first]")
        assert client.data(1) == b"[first]"
        site.publisher.stream(names[1], "[second]")
        assert client.data(1) == b"[second]"


@covers("1.8 push_in_spec", "1.8 push_in_http_addr", "1.8 command_spec")
def test_intakes_listen_where_they_are_told(start: Start) -> None:
    site = start(QUIET)
    uris = site.publisher.command("get-zmq-uris")[b"value"]
    port = site.proxy.ports
    assert uris == {
        b"command": f"tcp://127.0.0.1:{port['rep']}".encode(),
        b"publish-pull": f"tcp://127.0.0.1:{port['pull']}".encode(),
        b"publish-sub": f"tcp://127.0.0.1:{port['sub']}".encode(),
    }
    assert site.publisher.post("/", "", method="GET").status == 200
