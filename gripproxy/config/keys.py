"""Every key of the config file: its section, type, default, unit and meaning (docs/grip.md §1.8, §10).

One frozen dataclass per section, one attribute per key, of the same name. The bounds of a value are beside the
key, so that the loader (gripproxy.config), the checker and the reference page read one table. A key added here needs
its line in docs/configuration.md; a test holds that.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "ALIASES",
    "IGNORED",
    "NOT_YET",
    "SECTIONS",
    "SERVICES",
    "Globals",
    "Handler",
    "Hub",
    "Proxy",
    "Runner",
    "cores",
    "default_rundir",
]


def cores() -> int:
    """Return the number of CPU cores this process may use, at least 1."""
    return max(1, len(os.sched_getaffinity(0)))


def default_rundir() -> str:
    """Return the directory for runtime files when none is configured: one per user, so that two users never meet."""
    if os.geteuid() == 0:
        return "/run/gripproxy"
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isabs(base):
        return os.path.join(base, "gripproxy")
    return os.path.join(tempfile.gettempdir(), f"gripproxy-{os.getuid()}")


def key(
    default: Any,
    unit: str,
    meaning: str,
    *,
    kind: str | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    builtin: str | None = None,
) -> Any:
    """Return the dataclass field of one key.

    Args:
        default: value if the file does not have the key.
        unit: of the value, for the documentation.
        meaning: of the key, for the documentation.
        kind: name of the reader in gripproxy.config.loader; None: that of the default's type.
        low: smallest number allowed; of seconds or bytes, as ``unit`` names.
        high: largest number allowed; of seconds or bytes, as ``unit`` names.
        choices: all values allowed; empty: any.
        builtin: value, as a file would have it, without a config file.
    """
    if kind is None:
        kind = {bool: "bool", int: "int", float: "seconds", str: "str", tuple: "list"}[type(default)]
    metadata = {
        "default": default,
        "kind": kind,
        "unit": unit,
        "meaning": meaning,
        "low": low,
        "high": high,
        "choices": choices,
        "builtin": builtin,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Globals:
    """Section ``[global]``."""

    include: str = key("", "path", "a second file of lower priority")
    libdir: str = key("/usr/lib/gripproxy", "path", "what {libdir} stands for", kind="path")
    rundir: str = key("", "path", "runtime files and ipc sockets", kind="path")
    ipc_prefix: str = key("pushpin-", "", "prefix of the names of ipc files")
    port_offset: int = key(0, "ports", "added to every tcp:// port and to push_in_http_port", low=0, high=65534)
    stats_connection_ttl: int = key(120, "s", "ttl in conn events", low=0)
    stats_connection_send: bool = key(True, "", "send conn events")


@dataclass(frozen=True, slots=True)
class Runner:
    """Section ``[runner]``."""

    services: tuple[str, ...] = key(("proxy", "handler"), "", "processes to start")
    http_port: tuple[str, ...] = key((), "[addr:]port", "plain HTTP ports", kind="ports", builtin="7999")
    https_ports: tuple[str, ...] = key((), "[addr:]port", "TLS ports", kind="ports")
    local_ports: tuple[str, ...] = key((), "path", "unix sockets: path?mode=&user=&group=", kind="locals")
    logdir: str = key("", "path", "accepted for compatibility: there is one log, see --logfile", kind="path")
    log_level: int = key(2, "", "0 error, 1 warning, 2 info, 3 debug; or component:level", kind="level")
    log_format: str = key("text", "", "form of log lines", choices=("text", "json"))
    access_log: str = key("", "path", "file for the lines of requests; empty: the log", kind="file")
    access_log_sample: int = key(1, "requests", "a line for one of so many; those that fail have one each", low=1)
    client_buffer_size: int = key(8192, "bytes", "a client's request head must fit", low=256, high=16 * 1024 * 1024)
    client_maxconn: int = key(50000, "connections", "client connections at once", low=1)
    client_keepalive: int = key(
        60, "s", "silence, then TCP probes whether a client is there; 0: never", low=0, high=32767
    )
    allow_compression: bool = key(False, "", "permessage-deflate for clients' WebSockets")
    shutdown_timeout: float = key(5.0, "s", "time for the end of all sessions when stopping", low=0)
    reload_hold_time: float = key(60.0, "s", "clients held by replaced workers stay so long", low=0)
    reload_spread: float = key(30.0, "s", "time over which they are then let go", low=0)
    process_beat_timeout: float = key(10.0, "s", "a silent process is killed and started again", low=1)
    component_levels: tuple[tuple[str, int], ...] = field(default=(), metadata={"kind": "derived"})
    """From log_level: levels of single components, by their names here (runner, worker, handler, hub)."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Section ``[proxy]``."""

    routesfile: str = key("", "path", "routes, relative to the config file")
    workers: int = key(0, "processes", "worker processes; 0: one per CPU core", low=0, high=1024)
    max_open_requests: int = key(0, "requests", "proxied requests at once; 0: client_maxconn", low=0)
    debug: bool = key(False, "", "informative error responses on all routes")
    auto_cross_origin: bool = key(False, "", "automatic CORS on all routes")
    accept_x_forwarded_protocol: bool = key(False, "", "trust the clients' X-Forwarded-Proto")
    set_x_forwarded_protocol: str = key(
        "false", "", "tell backends the protocol", choices=("false", "true", "proto-only"), builtin="proto-only"
    )
    x_forwarded_for: tuple[str, ...] = key((), "", "rule: truncate:N, append", kind="forwarded")
    x_forwarded_for_trusted: tuple[str, ...] = key((), "", "the same for trusted clients", kind="forwarded")
    orig_headers_need_mark: tuple[str, ...] = key((), "", "headers not copied by orig_headers")
    accept_pushpin_route: bool = key(False, "", "obey the request header Pushpin-Route")
    cdn_loop: str = key("", "", "token added to CDN-Loop")
    trace_headers: tuple[str, ...] = key(
        ("x-request-id", "traceparent"), "", "ids that backends get if the client sent none", kind="trace"
    )
    log_from: bool = key(False, "", "client address in request lines of the log")
    log_user_agent: bool = key(False, "", "client user agent in request lines of the log")
    sig_iss: str = key("pushpin", "", "issuer in Grip-Sig")
    sig_key: str = key("", "", "key of Grip-Sig: literal, base64:, file:", kind="sign", builtin="changeme")
    upstream_key: str = key("", "", "key that marks a client as a trusted GRIP proxy", kind="verify")
    stats_report_interval: int = key(10, "s", "accepted for compatibility: workers report every 0.1 s", low=0)
    prometheus_port: str = key("", "[addr:]port", "as in [handler], with this section's prefix", kind="metrics")
    prometheus_prefix: str = key("", "", "prefix of the names of Pushpin's metrics")
    client_tls_timeout: float = key(10.0, "s", "TLS handshake of a client", low=0)
    client_head_timeout: float = key(15.0, "s", "head of a client's request, from its first byte", low=0)
    client_body_timeout: float = key(60.0, "s", "silence in the body of a client's request", low=0)
    client_idle_timeout: float = key(75.0, "s", "idle keep-alive connection of a client", low=0)
    connect_timeout: float = key(10.0, "s", "connecting to a target, TLS included", low=0)
    response_timeout: float = key(60.0, "s", "head of a backend's response", low=0)
    backend_body_timeout: float = key(60.0, "s", "silence in the body of a backend's response", low=0)
    backend_idle_timeout: float = key(15.0, "s", "unused pooled connection to a backend", low=0)
    hold_confirm_timeout: float = key(8.0, "s", "confirmation of a hold by the handler", low=0.1)
    ws_message_max: int = key(16 * 1024 * 1024, "bytes", "message of a WebSocket, both ways", low=125)
    ws_over_http_message_max: int = key(200000, "bytes", "client's message over HTTP, then 1009", low=125, high=1000000)
    ws_recover_interval: float = key(120.0, "s", "without an item, then a reliable WebSocket's backend is asked", low=0)
    ws_stall_timeout: float = key(60.0, "s", "no byte taken of those that wait, then a WebSocket is dropped", low=0)
    stream_buffer_max: int = key(1000000, "bytes", "may wait for one slow client", low=65536)
    buffers_max: int = key(256000000, "bytes", "may wait in a worker; then the largest is cut", low=1000000)
    filter_output_max: int = key(1000000, "bytes", "filters or a patch may make of an item for one session", low=1)
    recovery_rate: int = key(1000, "requests/s", "held clients ask backends again, over all workers", low=1)
    recovery_max: int = key(32, "requests", "of these under way on one route, over all workers", low=1)
    share_links_ignoring_query: bool = key(False, "", "links that differ in their query only share a request")
    max_filters: int = key(5, "filters", "filters per channel of a hold", low=0, high=100)
    sign_foreign_links: bool = key(True, "", "Grip-Sig also to hosts that are no target of the link's route")
    policy_allow: tuple[str, ...] = key((), "networks", "allowed to untrusted targets; goes before deny", kind="nets")
    policy_deny: tuple[str, ...] = key(
        ("loopback", "private", "link-local"), "networks", "forbidden to untrusted targets", kind="nets"
    )


@dataclass(frozen=True, slots=True)
class Handler:
    """Section ``[handler]``."""

    ipc_file_mode: int | None = key(None, "octal", "mode of ipc sockets", kind="octal")
    push_in_spec: str = key("", "ZeroMQ", "PULL, binds", kind="spec", builtin="tcp://127.0.0.1:5560")
    push_in_sub_specs: tuple[str, ...] = key((), "ZeroMQ", "SUB", kind="specs", builtin="tcp://127.0.0.1:5562")
    push_in_sub_connect: bool = key(False, "", "SUB connects instead of binding")
    push_in_buffer_max: int = key(
        4 * 1024**3, "bytes", "ZeroMQ may keep of each PULL or SUB publisher; 0: by number only", low=0
    )
    push_in_http_addr: str = key("127.0.0.1", "address", "HTTP control port")
    push_in_http_port: int = key(
        0, "port", "HTTP control port; 0: none", kind="port", low=0, high=65535, builtin="5561"
    )
    push_in_http_max_headers_size: int = key(10000, "bytes", "request head on the control port", low=256)
    push_in_http_max_body_size: int = key(1000000, "bytes", "request body on the control port", low=1)
    control_key: str = key("", "", "key a publisher must show: literal, base64:, file:", kind="secret")
    control_iss: str = key("", "", "issuer its token must name")
    control_zmq: str = key(
        "closed", "", "with control_key, ZeroMQ publishing beyond loopback, without a key", choices=("closed", "open")
    )
    control_tls_cert: str = key("", "path", "certificate of the control port", kind="file")
    control_tls_key: str = key("", "path", "its private key", kind="file")
    publish_strict: bool = key(True, "", "refuse items that no client can get: unknown formats only, an empty channel")
    reserved_prefix: str = key("", "", "channels that begin with it are for reserved routes and reserved_key")
    reserved_key: str = key("", "", "key to publish on these: literal, base64:, file:", kind="secret")
    stats_spec: str = key("", "ZeroMQ", "PUB, binds", kind="spec", builtin="ipc://{rundir}/{ipc_prefix}stats")
    command_spec: str = key("", "ZeroMQ", "commands, binds", kind="spec", builtin="tcp://127.0.0.1:5563")
    state_spec: str = key("", "ZeroMQ", "external session state", kind="spec")
    worker_queue_max: int = key(
        128_000_000,
        "bytes",
        "may wait for one worker, or for the handler in a worker; then all is dropped",
        low=1_000_000,
    )
    channel_max: int = key(1024, "bytes", "name of a channel", low=1, high=1048576)
    id_max: int = key(1024, "bytes", "id or prev-id of an item", low=1, high=1048576)
    meta_max: int = key(65536, "bytes", "meta of an item or a client, all names and values", low=0, high=16777216)
    item_max: int = key(16777216, "bytes", "an item, with all its formats", low=1024, high=134217728)
    message_rate: int = key(0, "deliveries/s", "over all workers; 0 or -1: no limit", low=-1)
    message_hwm: int = key(0, "deliveries", "waiting per route id; 0 or -1: no limit", low=-1)
    message_block_size: int = key(0, "bytes", "size of a counted block; 0: not counted", low=0)
    message_wait: int = key(5000, "ms", "wait of an item that is out of order", low=0)
    id_cache_ttl: int = key(0, "s", "how long item ids are remembered; 0: not", low=0, builtin="60")
    id_cache_max: int = key(1000000, "ids", "item ids remembered at most", low=1)
    last_ids_max: int = key(
        134217728, "bytes", "last ids of channels, for their order; as many again for holds", low=65536
    )
    message_wait_max: int = key(67108864, "bytes", "items that wait because they are out of order", low=65536)
    update_on_first_subscription: bool = key(True, "", "ask again 1 s after a channel's first subscription")
    connection_subscription_max: int = key(20, "channels", "subscriptions of one connection", low=0)
    subscription_linger: int = key(60, "s", "a response hold's subscription outlives it", low=0)
    stats_subscription_ttl: int = key(60, "s", "ttl in sub events", low=0)
    stats_report_interval: int = key(10, "s", "time between reports; 0: none", low=0)
    stats_format: str = key("tnetstring", "", "format of stats", choices=("tnetstring", "json"))
    prometheus_port: str = key("", "[addr:]port", "metrics and health, or ipc://path", kind="metrics")
    prometheus_prefix: str = key("", "", "prefix of the names of Pushpin's metrics")
    prometheus_pushpin_names: bool = key(True, "", "Pushpin's five metrics beside those of gripproxy")
    share_all: bool = key(False, "", "share equal GET requests to backends between clients")


@dataclass(frozen=True, slots=True)
class Hub:
    """Section ``[hub]``: the event store behind the proxy. Without ``store`` there is none."""

    store: str = key("", "path", "file of the event store; empty: no hub", kind="file")
    listen: str = key("", "[addr:]port", "further port, behind another GRIP proxy", kind="port_address")
    listen_path: str = key(
        "", "path", "of the hub at that proxy, as /hub: requests to the port begin with it", kind="root"
    )
    publish: str = key("", "URI or path", "control port of another proxy: http://host:port, or socket", kind="control")
    publish_sub: str = key("", "ZeroMQ", "SUB port of that proxy, to learn its held channels", kind="remote")
    prefix: str = key("hub/", "", "first part of the names of its channels")
    hub_sync: str = key(
        "full", "", "when an event counts as stored: on the disk, in its cache", choices=("full", "normal", "off")
    )
    ballast: int = key(33554432, "bytes", "given up when the disk is full, so that it can delete", low=0, high=2**40)
    readers: int = key(1, "processes", "that read long histories and snapshots", low=1, high=16)
    hub_key: tuple[str, ...] = key(
        (), "", "keys that verify tokens, each [kid:]key: literal, base64:, file:", kind="token_keys"
    )
    hub_aud: str = key("gripproxy-hub", "", "audience that tokens must name")
    hub_anonymous: str = key("none", "", "rights without a token", choices=("none", "subscribe", "all"))
    hub_origins: tuple[str, ...] = key((), "origins", "pages whose cookie counts", kind="origins")
    hub_cookie: str = key("hub_token", "", "cookie that may hold a token", kind="cookie")
    hub_autocreate: tuple[str, ...] = key((), "patterns", "topics that publishing creates")
    content_max: int = key(65536, "bytes", "data of an event beyond it is fetched, not pushed", low=0, high=500000)
    ws_content_max: int = key(500000, "bytes", "data beyond it is a reference in WebSockets", low=0, high=900000)
    topics_max: int = key(100000, "topics", "topics of all owners", low=1, high=100_000_000)
    topics_per_owner_max: int = key(10000, "topics", "topics of one owner", low=1, high=100_000_000)
    ranges_per_topic_max: int = key(10000, "ranges", "distinct ranges of keys followed in a topic", low=1)
    ranges_per_owner_max: int = key(200, "ranges", "distinct ranges of keys that one owner follows", low=1)
    idempotency_max: int = key(1000000, "keys", "Idempotency-Keys remembered, of all owners", low=1)
    idempotency_per_owner_max: int = key(100000, "keys", "the same of one owner", low=1)
    idempotency_ttl: int = key(86400, "s", "an Idempotency-Key is remembered so long", low=60, high=31_536_000)
    snapshot_leases_max: int = key(8, "snapshots", "read at once of a topic", low=1, high=10000)
    pages_per_owner_max: int = key(1000, "reads", "of the store, that wait for one owner", low=1, high=10000)
    mailboxes_per_owner_max: int = key(1000, "mailboxes", "of one owner", low=1, high=1_000_000)
    keys_per_owner_max: int = key(1000000, "keys", "of all mailboxes of one owner", low=1, high=100_000_000)
    keys_per_mailbox_max: int = key(10000, "keys", "topics and keys that a mailbox follows", low=1, high=1_000_000)
    mailbox_bytes_max: int = key(10_000_000, "bytes", "in a mailbox; beyond, the oldest go", low=1000, high=2**34)
    soft_topics_max: int = key(200, "topics", "soft topics of all owners", low=1, high=10_000)
    soft_topics_per_owner_max: int = key(20, "topics", "soft topics of one owner", low=1, high=10_000)
    soft_events_per_topic_max: int = key(100000, "events", "in the window of a soft topic", low=100, high=1_000_000)
    soft_bytes_per_topic_max: int = key(64_000_000, "bytes", "of these events", low=100_000, high=2**36)
    soft_bytes_per_owner_max: int = key(128_000_000, "bytes", "in all windows of one owner", low=100_000, high=2**36)
    soft_bytes_max: int = key(512_000_000, "bytes", "in all windows; then the largest drops", low=100_000, high=2**36)
    soft_pieces_per_topic_max: int = key(
        1000, "pieces", "of its keys with a progress of their own", low=1, high=100_000
    )
    hub_subscriber_timeout: float = key(300.0, "s", "no poll, then a mailbox is removed", low=1, high=604_800)
    subscriptions_max: int = key(20000, "subscriptions", "by callback, of all owners", low=1, high=1_000_000)
    subscriptions_per_topic_max: int = key(1000, "subscriptions", "of one topic", low=1, high=1_000_000)
    subscriptions_per_owner_max: int = key(1000, "subscriptions", "of one owner", low=1, high=1_000_000)
    rights_ttl: float = key(2_592_000.0, "s", "a subscription rests then, until it is made again", low=1)
    callback_allow: tuple[str, ...] = key((), "networks", "of callbacks, although they are not public", kind="nets")
    callback_deny: tuple[str, ...] = key((), "networks", "that no callback may be in; goes before allow", kind="nets")
    callback_ca: str = key("", "path", "certificates that verify callbacks; empty: the system's", kind="file")
    callback_timeout: float = key(10.0, "s", "of one request to a callback", low=0.1, high=600)
    callback_tries: int = key(10, "attempts", "for an event, then the subscription rests", low=1, high=1000)
    callback_pause: float = key(1.0, "s", "first pause between attempts, twice as long each time", low=0.01, high=3600)
    callback_pause_max: float = key(300.0, "s", "longest pause between attempts", low=0.01, high=86_400)
    callbacks_max: int = key(200, "requests", "to callbacks at once", low=1, high=10_000)
    callbacks_per_host_max: int = key(40, "requests", "to callbacks of one host at once", low=1, high=10_000)
    callbacks_per_owner_max: int = key(40, "requests", "to callbacks of one owner at once", low=1, high=10_000)
    push_subscriptions_max: int = key(20000, "subscriptions", "of the push API, of all owners", low=1, high=1_000_000)
    push_subscriptions_per_owner_max: int = key(
        10000, "subscriptions", "of the same, of one owner", low=1, high=1_000_000
    )
    push_http: bool = key(False, "", "push subscriptions may have endpoints without TLS")
    pushes_max: int = key(4000, "requests", "of push subscriptions at once", low=1, high=100_000)
    pushes_per_host_max: int = key(1000, "requests", "of push subscriptions to one host at once", low=1, high=100_000)
    pushes_per_owner_max: int = key(2000, "requests", "of one owner's push subscriptions", low=1, high=100_000)
    push_window_max: int = key(1000, "requests", "of one push subscription at once", low=1, high=100_000)
    push_signing_keys: tuple[str, ...] = key((), "", "each NAME:whsec_SECRET or NAME:file:PATH, for signatures")
    pulls_max: int = key(20000, "pulls", "that are held, of all subscriptions", low=1, high=1_000_000)
    hub_name: str = key("hub", "", "of the hub in tokens of pushes, as issuer, and in CloudEvents")
    stall_timeout: float = key(60.0, "s", "no byte taken of an answer, then its connection is closed", low=1, high=3600)
    stats_spec: str = key("", "ZeroMQ", "PUB, binds: statistics of push subscriptions; empty: none", kind="spec")
    prometheus_port: str = key("", "[addr:]port", "metrics and health of the hub, or ipc://path", kind="metrics")


SECTIONS: Final[dict[str, type[Any]]] = {
    "global": Globals,
    "runner": Runner,
    "proxy": Proxy,
    "handler": Handler,
    "hub": Hub,
}
"""Section names as the file has them, and their classes."""

_INTERNAL: Final = "a socket between processes that are not here"

IGNORED: Final[dict[str, dict[str, str]]] = {
    "global": {},
    "runner": {
        "*_bin": "no other program is started",
        "rundir": "it belongs to [global]",
    },
    "proxy": {
        "condure_*": _INTERNAL,
        "connmgr_*": _INTERNAL,
        "m2a_*": _INTERNAL,
        "zurl_*": _INTERNAL,
        "handler_*": _INTERNAL,
        "intreq_*": _INTERNAL,
        "stats_spec": "statistics come from the handler: stats_spec in [handler]",
        "command_spec": "commands go to the handler: command_spec in [handler]",
        "sockjs_url": "there is no SockJS",
        "updates_check": "nothing is reported to anybody",
        "organization_name": "nothing is reported to anybody",
    },
    "handler": {"condure_*": _INTERNAL, "connmgr_*": _INTERNAL, "m2a_*": _INTERNAL, "proxy_*": _INTERNAL},
    "hub": {},
}
"""Pushpin's keys without a meaning here, as shell patterns, and why: they name parts this server has not."""

ALIASES: Final[dict[tuple[str, str], str]] = {
    ("handler", "push_in_max_headers_size"): "push_in_http_max_headers_size",
    ("handler", "push_in_max_body_size"): "push_in_http_max_body_size",
}
"""Older names of keys; the newer name goes first if a file has both (docs/grip.md §1.8)."""

NOT_YET: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        ("handler", "state_spec"),
        ("handler", "share_all"),
    }
)
"""Keys that are read but do nothing yet. Setting one is a warning: silence would look like a promise."""

SERVICES: Final[dict[str, str]] = {
    "runner": "runner",
    "pushpin": "runner",
    "worker": "worker",
    "proxy": "worker",
    "pushpin-proxy": "worker",
    "connmgr": "worker",
    "condure": "worker",
    "handler": "handler",
    "pushpin-handler": "handler",
    "hub": "hub",
}
"""Names of processes in ``services`` and ``log_level``, with the kinds of processes they stand for."""
