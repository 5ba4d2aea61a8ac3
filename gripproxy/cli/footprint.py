"""Memory that each process may use at most, in bytes, computed from the configuration (docs/guarantees.md#memory).

A footprint is a sum of terms: the process without work, the largest cost of each connection, and every buffer with a
bound of its own. It is an upper bound and not an estimate: a process that serves as many clients as it may, all of them
hostile, stays below it. Sizes of Python objects were measured with CPython 3.11 on 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gripproxy.backend.event_poster import ANSWERS_MAX
from gripproxy.client.exchange import GRIP_REQUEST_MAX, GRIP_RESPONSE_MAX
from gripproxy.config import Config
from gripproxy.delivery.fanout import WAITING_BYTES
from gripproxy.delivery.rate_limiter import WAITING_BYTES as PACED_BYTES
from gripproxy.delivery.sharing import TOTAL_MAX
from gripproxy.grip.bounds import META_NAMES_MAX
from gripproxy.grip.json_patch import PATCH_MAX
from gripproxy.http1.head_cache import SIZE_MAX
from gripproxy.pipe import FRAME_BYTES, WRITE_AHEAD
from gripproxy.process.hub_sockets import HUB_BODY_MAX
from gripproxy.sessions.link_response import INSTRUCT_MAX
from handler.control.command_socket import MAX_WAITING as COMMANDS_KEPT
from handler.control.http_server import MAX_CONNECTIONS
from handler.control.hub_intake import CONNECTIONS_MAX, HEAD_MAX, HubIntake
from handler.dispatch.dedupe import PAIR_COST
from handler.dispatch.subscriptions import LINGER_BYTES
from handler.sources.value_count import VALUES_MAX
from handler.sources.zmq_pull import MAX_PULLED
from handler.sources.zmq_source import MESSAGE_ITEMS, kept
from handler.sources.zmq_sub import MAX_WAITING

__all__ = ["PUBLISHERS", "Footprint", "Term", "footprints"]

PROCESS: Final = 72 * 1024 * 1024
"""Bytes of an interpreter with all modules and the reserve of its allocator; 44 to 50 MB are resident at the start."""

CONNECTION: Final = 16 * 1024
"""Bytes of one client connection and the backend connection of its request, without their buffers: 2 KB held, 13 KB
with a request under way, parser and timers included."""

TLS: Final = 48 * 1024
"""Bytes that one connection over TLS costs besides: 44 KB measured, of a held stream."""

SUBSCRIPTION: Final = 1024
"""Bytes that one session's tie to one channel costs besides the channel's name and its id, in each process."""

META_VALUE: Final = 136
"""Bytes that one value of meta costs besides its name's and its own."""

DECODED: Final = 32
"""Bytes of objects for each byte of JSON or of a tnetstring while it is decoded: ``[],`` is a list of 88 bytes."""

VALUE: Final = 256
"""Bytes of one value of a message while it is decoded; an object with one name takes 232."""

COPIES: Final = 4
"""Copies of an item under way at one time: as received, decoded, packed for the pipe, and as a frame of it."""

READ: Final = 256 * 1024
"""Bytes that one read of a socket may bring."""

PUBLISHERS: Final = 4
"""Publishers connected to each ZeroMQ port that are counted. ZeroMQ takes any number, and each costs as much again."""


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a footprint.

    ``what`` it is for, ``how`` it is computed from keys and constants, its ``size`` in bytes.
    """

    what: str
    how: str
    size: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """Terms of one process."""

    terms: tuple[Term, ...]

    @property
    def total(self) -> int:
        """Bytes of all terms together."""
        return sum(term.size for term in self.terms)

    @property
    def greatest(self) -> Term:
        """The term with the most bytes."""
        return max(self.terms, key=lambda term: term.size)


def footprints(config: Config) -> dict[str, Footprint]:
    """Return the largest memory use of each process, by its kind: ``worker``, ``handler`` and ``runner``.

    Args:
        config: the configuration.
    """
    return {"worker": _worker(config), "handler": _handler(config), "runner": Footprint((_process(),))}


def _process() -> Term:
    return Term("the process", "72 MiB", PROCESS)


def _channels(config: Config) -> int:
    """Return the bytes of one connection's subscriptions."""
    handler = config.handler
    return handler.connection_subscription_max * (SUBSCRIPTION + handler.channel_max + handler.id_max)


def _worker(config: Config) -> Footprint:
    runner, proxy, handler = config.runner, config.proxy, config.handler
    clients = -(-runner.client_maxconn // max(1, proxy.workers))
    # A long-poll keeps its request and its answer; a WebSocket over HTTP an incomplete message and those to be posted.
    held = max(GRIP_REQUEST_MAX + GRIP_RESPONSE_MAX, 2 * proxy.ws_over_http_message_max)
    item = handler.item_max
    return Footprint(
        (
            _process(),
            Term("connections", "clients * 16 KiB", clients * CONNECTION),
            Term(
                "TLS",
                "clients * 48 KiB, nothing without `https_ports`",
                clients * TLS if runner.https_ports else 0,
            ),
            Term("heads", "clients * 2 * `client_buffer_size`", clients * 2 * runner.client_buffer_size),
            Term(
                "bodies that holds keep",
                "clients * 200,000, or * 2 * `ws_over_http_message_max` if that is more",
                clients * held,
            ),
            Term(
                "subscriptions",
                "clients * `connection_subscription_max` * (1 KiB + `channel_max` + `id_max`)",
                clients * _channels(config),
            ),
            # A WebSocket over HTTP has values of its own and those that its backend wants in its requests.
            Term(
                "meta of sessions",
                "clients * 2 * (`meta_max` + 34 KiB)",
                clients * 2 * (handler.meta_max + META_NAMES_MAX * META_VALUE),
            ),
            Term(
                "items that wait in a session for its filters or its backend",
                "clients * 2 * `stream_buffer_max`",
                clients * 2 * proxy.stream_buffer_max,
            ),
            Term("waiting for peers that do not read", "`buffers_max`", proxy.buffers_max),
            Term("the message of a WebSocket in work", "`ws_message_max` + 256 KiB", proxy.ws_message_max + READ),
            Term("answers to WebSockets' events", "32 MiB", ANSWERS_MAX),
            Term("items behind a fan-out", "32 MiB + `item_max`", WAITING_BYTES + item),
            Term(
                "deliveries at a limited rate",
                "32 MiB + `item_max`, nothing without `message_rate`",
                PACED_BYTES + item if handler.message_rate > 0 else 0,
            ),
            Term(
                "results of filters and patches in work",
                "32 MiB + `filter_output_max`",
                TOTAL_MAX + proxy.filter_output_max,
            ),
            Term("JSON in work", "32 * 250,000, of a patch or a body", DECODED * PATCH_MAX),
            Term("answers to links under way", "`recovery_max` * 1,000,000", proxy.recovery_max * INSTRUCT_MAX),
            Term("items from the handler", "2 MiB + 4 * `item_max`", 2 * FRAME_BYTES + COPIES * item),
            Term("messages to the handler", "`worker_queue_max` + 256 KiB", handler.worker_queue_max + WRITE_AHEAD),
            Term("heads that came again", "2 MiB", 2 * SIZE_MAX),
        )
    )


def _handler(config: Config) -> Footprint:
    runner, proxy, handler = config.runner, config.proxy, config.handler
    item = handler.item_max
    longest, room = MESSAGE_ITEMS * item, handler.push_in_buffer_max
    pulled = (kept(MAX_PULLED, room, longest) + 1) * longest if handler.push_in_spec else 0
    heard = (kept(MAX_WAITING, room, longest) + 1) * longest if handler.push_in_sub_specs else 0
    commands = (COMMANDS_KEPT + 1) * longest if handler.command_spec else 0
    request = handler.push_in_http_max_headers_size + handler.push_in_http_max_body_size
    # A body grows by an eighth more than it needs; one at a time is copied.
    control = (MAX_CONNECTIONS * 9 // 8 + 1) * request if handler.push_in_http_port else 0
    hub = (CONNECTIONS_MAX * 9 // 8 + 1) * (HEAD_MAX + HUB_BODY_MAX) + 3 * longest if HubIntake.wanted(config) else 0
    waiting = handler.worker_queue_max + WRITE_AHEAD + FRAME_BYTES + COPIES * item
    body = handler.push_in_http_max_body_size
    return Footprint(
        (
            _process(),
            Term(
                "messages to workers",
                "`workers` * (`worker_queue_max` + 1.25 MiB + 4 * `item_max`)",
                proxy.workers * waiting,
            ),
            Term(
                "ids of items",
                "`id_cache_max` * 256, nothing with `id_cache_ttl=0`",
                handler.id_cache_max * PAIR_COST if handler.id_cache_ttl else 0,
            ),
            Term("last ids of channels", "2 * `last_ids_max`", 2 * handler.last_ids_max),
            Term("items that wait for others", "`message_wait_max`", handler.message_wait_max),
            Term(
                "subscriptions",
                "`client_maxconn` * `connection_subscription_max` * (1 KiB + `channel_max` + `id_max`)",
                runner.client_maxconn * _channels(config),
            ),
            Term("subscriptions that linger", "64 MiB", LINGER_BYTES),
            Term(
                "requests on the control port",
                "145 * (`push_in_http_max_headers_size` + `push_in_http_max_body_size`)",
                control,
            ),
            Term(
                "messages of 4 PULL publishers",
                "4 * (`push_in_buffer_max`, but 2 messages at least, + 4 * `item_max`)",
                PUBLISHERS * pulled,
            ),
            Term(
                "messages of 4 SUB publishers",
                "4 * (`push_in_buffer_max`, but 2 messages at least, + 4 * `item_max`)",
                PUBLISHERS * heard,
            ),
            Term("requests of 4 peers of the command port", "4 * 5 * 4 * `item_max`", PUBLISHERS * commands),
            Term("requests of the hub", "21.1 MB + 3 * 4 * `item_max`, nothing without `store`", hub),
            Term(
                "items in work",
                "12.8 MB + 4 * `item_max`, or * `push_in_http_max_body_size` if that is more",
                VALUES_MAX * VALUE + COPIES * max(item, body if handler.push_in_http_port else 0),
            ),
        )
    )
