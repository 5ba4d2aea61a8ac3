"""``gripproxy hub topics|publish|read|…``: a hub from the command line, over HTTP (docs/hub.md).

The exit status is 0 after success, 1 if the hub cannot be reached or refuses the request, 2 for wrong usage, and 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from gripproxy.cli.hub_text import (
    amount_bytes,
    amount_seconds,
    event_line,
    mailbox_table,
    printable,
    push_table,
    subscription_table,
    topic_lines,
    topic_table,
)
from gripproxy.grip.errors import OperatorError

if TYPE_CHECKING:
    from griphub.client.connection import HubConnection
    from griphub.client.errors import HubError
    from griphub.client.follower import Selection
    from griphub.client.publisher import Publisher

__all__ = ["DEFAULT_URL", "add_hub_commands", "run_hub_command"]

DEFAULT_URL: Final = "http://localhost:7999/hub"

URL_VARIABLE: Final = "GRIPPROXY_HUB_URL"
TOKEN_VARIABLE: Final = "GRIPPROXY_HUB_TOKEN"

CHUNK: Final = 256 * 1024
"""Bytes of one read of the standard input."""

MAX_LINE: Final = 10 * 1024 * 1024
"""Bytes of one line of the standard input: the hub's bound for the data of an event."""

PAGE: Final = 1000
"""Objects of a list asked for in one request."""


# --- options


def add_hub_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser of ``gripproxy hub``; ``hub_command`` is None if none is given.

    Args:
        parser: of ``gripproxy hub``.
    """
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--url",
        default=os.environ.get(URL_VARIABLE, DEFAULT_URL),
        help=f"URL of the hub with the prefix of its route (default: ${URL_VARIABLE}, or {DEFAULT_URL})",
    )
    common.add_argument(
        "--token",
        metavar="TOKEN|@FILE",
        default=os.environ.get(TOKEN_VARIABLE),
        help=f"bearer token, or the file that has it (default: ${TOKEN_VARIABLE})",
    )
    commands = parser.add_subparsers(dest="hub_command", metavar="COMMAND", title="commands of a running hub")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        # The version of some of them is that of a topic.
        return commands.add_parser(name, help=text, description=f"{text}.", parents=[common], version_flags=())

    _topics_options(command("topics", "list, make, show or delete topics"))
    _publish_options(command("publish", "publish events"))
    read = command("read", "print stored events")
    _selection_options(read)
    read.add_argument("--until", metavar="TIME", help="last time, RFC 3339")
    read.add_argument("--limit", metavar="N", type=_count, help="greatest number of events")
    follow = command("follow", "print events as they are stored, until Ctrl-C")
    _selection_options(follow)
    follow.add_argument("--limit", metavar="N", type=_count, help="end after so many events")
    watch = command("watch", "print events of a range of keys and how far they are, until Ctrl-C")
    watch.add_argument("topic", metavar="TOPIC", help="name of the topic")
    watch.add_argument("--version", metavar="CURSOR", help="begin behind a place (0: the beginning; default: now)")
    _range_options(watch)
    watch.add_argument("--limit", metavar="N", type=_count, help="end after so many events")
    watch.add_argument("--json", action="store_true", help="print an object of JSON a line, progress and resync too")
    snapshot = command("snapshot", "print the last event of each key, as lines of JSON")
    snapshot.add_argument("topic", metavar="TOPIC", help="name of the topic")
    snapshot.add_argument("--version", metavar="CURSOR", help="as it was at this place (default: the newest)")
    _range_options(snapshot)
    mailboxes = command("mailboxes", "list the mailboxes of the caller")
    mailboxes.add_argument("--json", action="store_true", help="print an object of JSON a line")
    subscriptions = command("subscriptions", "list subscriptions by callback: state, position, lag, failures")
    subscriptions.add_argument(
        "topic", nargs="?", metavar="TOPIC", help="only of this topic, those of all owners for its administrator"
    )
    subscriptions.add_argument(
        "--push", action="store_true", help="those of the push API: backlog, window, pause, answers"
    )
    subscriptions.add_argument("--json", action="store_true", help="print an object of JSON a line")


def _topics_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", nargs="?", choices=("list", "make", "show", "delete"), default="list", metavar="ACTION",
        help="list (default), make (or change), show, delete")  # fmt: skip
    add("topic", nargs="?", metavar="TOPIC", help="name of the topic")
    add("--json", action="store_true", help="print the hub's JSON")
    retention = parser.add_argument_group("retention, for make (default: all events are retained)")
    retention.add_argument("--age", metavar="TIME", type=amount_seconds, help="retain events so long: 90, 30m, 12h, 7d")
    retention.add_argument("--events", metavar="N", type=_count, help="retain so many events")
    retention.add_argument("--bytes", metavar="SIZE", type=amount_bytes, help="retain so many bytes: 500, 64K, 2G")
    retention.add_argument("--compact", action="store_true", help="retain the last event of each key in any case")
    add("--progress", metavar="S", type=_count, help="seconds between two reports of progress to watchers (default 10)")
    add("--label", metavar="NAME=VALUE", action="append", default=[], type=_pair, help="label (repeatable)")
    soft = parser.add_argument_group("soft topics, for make")
    soft.add_argument("--store", choices=("disk", "none"), help="none: the events are in another store (default: disk)")
    soft.add_argument("--snapshot-url", metavar="URL", help="where that store gives its snapshots")


def _publish_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC", help="name of the topic")
    add("data", nargs="*", metavar="DATA", help="one event each; @FILE is the content of a file. Without DATA each "
        "line of the standard input is an event")  # fmt: skip
    add("--json", action="store_true", help="DATA is JSON (default: text)")
    add("--content-type", metavar="TYPE", help="media type of DATA (default: text/plain; charset=utf-8)")
    add("--key", help="key of the events")
    add("--delete", action="store_true", help="the event deletes the value of its key; DATA may be missing")
    add("--attribute", metavar="NAME=VALUE", action="append", default=[], type=_pair, help="attribute (repeatable)")
    add("--atomic", action="store_true", help="all DATA in one transaction")
    add("--if-match", metavar="CURSOR", help="only if this is the last event of the topic, or of --key (0: none yet)")
    add("--idempotency-key", metavar="NAME", help="name of the event; a repetition of the command stores no second one")
    add("--retry-for", metavar="TIME", type=amount_seconds, default=60, help="go on trying so long (default 60)")


def _selection_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC", help="name of the topic")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--after", metavar="CURSOR", help="begin behind a place (0: all events)")
    begin.add_argument("--since", metavar="TIME", help="begin after a time, RFC 3339: 2026-01-31T12:00:00Z")
    _range_options(parser)
    add("--truncated", action="store_true", help="begin at the oldest retained event if older ones are asked for")
    add("--json", action="store_true", help="print an object of JSON a line")


def _range_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--low", metavar="KEY", help="only keys from this one on")
    parser.add_argument("--high", metavar="KEY", help="only keys below this one")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 12 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not '{text}'")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not '{text}'")
    return name, value


# --- commands


class _Misuse(OperatorError):
    """Options that do not fit together: exit status 2."""


def run_hub_command(options: argparse.Namespace) -> int:
    """Run one of the commands.

    Args:
        options: of ``add_hub_commands``; ``hub_command`` is not None.

    Returns:
        The exit status.
    """
    from griphub.client.errors import HubError, RequestFailed

    prefix = f"gripproxy hub {options.hub_command}: error:"
    try:
        return asyncio.run(_COMMANDS[options.hub_command](options))
    except (_Misuse, ValueError) as error:
        print(f"{prefix} {error} (see gripproxy hub {options.hub_command} --help)", file=sys.stderr)
        return 2
    except HubError as error:
        print(f"{prefix} {printable(str(error))}", file=sys.stderr)
        if isinstance(error, RequestFailed) and error.status == 401 and not options.token:
            print(f"(a token is given with --token or {TOKEN_VARIABLE})", file=sys.stderr)
        return 1


def _token(options: argparse.Namespace) -> str | None:
    text: str | None = options.token
    if text is not None and text.startswith("@"):
        try:
            text = pathlib.Path(text[1:]).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise _Misuse(f"cannot read the token in '{text[1:]}': {error}") from error
    if text and not all("!" <= sign <= "~" for sign in text):
        raise _Misuse("a token has only visible ASCII characters: --token @FILE reads one from a file")
    return text or None


def _connection(options: argparse.Namespace) -> HubConnection:
    from griphub.client.connection import HubConnection

    return HubConnection(options.url, _token(options))


async def _request(
    connection: HubConnection, method: str, path: tuple[str, ...], query: Any = (), body: bytes | None = None
) -> tuple[int, dict[str, Any]]:
    """Return status and JSON object of an answer; an empty one for 204."""
    from griphub.client.errors import failure, problem_of
    from griphub.client.received import document_of

    headers = [] if body is None else [("Content-Type", "application/json")]
    answer = await connection.request(method, path, query, headers, body)
    if not 200 <= answer.status < 300:
        raise failure(problem_of(answer.status, answer.content_type, answer.body))
    return answer.status, {} if answer.status == 204 else document_of(answer.body)


# --- topics


async def _topics(options: argparse.Namespace) -> int:
    if (options.topic is None) != (options.action == "list"):
        needs = "has no" if options.action == "list" else "needs a"
        raise _Misuse(f"topics {options.action} {needs} TOPIC")
    async with _connection(options) as connection:
        if options.action == "list":
            await _list_topics(connection, as_json=options.json)
            return 0
        path = ("topics", options.topic)
        if options.action == "delete":
            await _request(connection, "DELETE", path)
            print(f"deleted {printable(options.topic)}")
            return 0
        if options.action == "make":
            status, topic = await _request(connection, "PUT", path, (), json.dumps(_settings(options)).encode())
            if not options.json:
                print(f"{'made' if status == 201 else 'changed'} {printable(options.topic)}")
                return 0
        else:
            _, topic = await _request(connection, "GET", path)
        print(json.dumps(topic) if options.json else topic_lines(topic), end="\n" if options.json else "")
    return 0


async def _list_topics(connection: HubConnection, *, as_json: bool) -> None:
    found = await _pages(connection, ("topics",), "topics")
    if as_json:
        for topic in found:
            print(json.dumps(topic))
    else:
        print(topic_table(found), end="")


async def _pages(connection: HubConnection, path: tuple[str, ...], name: str) -> list[dict[str, Any]]:
    """Return the objects of all pages of a list; ``name`` is that of the member that has them."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        query = [("limit", str(PAGE)), *([("after", after)] if after is not None else [])]
        _, page = await _request(connection, "GET", path, query)
        found += page[name]
        after = page.get("next")
        if after is None:
            return found


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    retention = {name: getattr(options, name) for name in ("age", "events", "bytes") if getattr(options, name)}
    if options.compact:
        retention["compact"] = True
    settings: dict[str, Any] = {"retention": retention} if retention else {}
    for name in ("store", "snapshot_url", "progress"):
        if getattr(options, name) is not None:
            settings[name] = getattr(options, name)
    if options.label:
        settings["labels"] = dict(options.label)
    return settings


# --- publish


async def _publish(options: argparse.Namespace) -> int:
    from griphub.client.errors import HubError
    from griphub.client.publisher import Publisher

    if options.json and options.content_type:
        raise _Misuse("--json and --content-type exclude each other")
    from_input = not options.data and not options.delete
    single = options.if_match is not None or options.idempotency_key is not None
    if from_input and (options.atomic or single):
        raise _Misuse("--atomic, --if-match and --idempotency-key need DATA")
    if len(options.data) > 1 and single and not options.atomic:
        raise _Misuse("--if-match and --idempotency-key are for one event, or for one transaction with --atomic")
    fields = [_fields(options, text) for text in options.data or ([] if from_input else [None])]
    async with Publisher(options.url, options.topic, token=_token(options), retry_for=options.retry_for) as publisher:
        try:
            if from_input:
                await _publish_lines(options, publisher)
            else:
                await _publish_data(options, publisher, fields)
        except (HubError, _Misuse, asyncio.CancelledError):
            if publisher.stored:
                print(_published(publisher), file=sys.stderr)
            raise
    print(_published(publisher))
    return 0


def _published(publisher: Publisher) -> str:
    """Return the report of published events."""
    if publisher.last is None:
        return "published no event"
    number = publisher.stored
    text = f"published {number} event{'s' if number > 1 else ''}, the last one is {publisher.last.cursor}"
    return f"{text}, stored by an earlier attempt" if publisher.last.repeated and number == 1 else text


async def _publish_data(options: argparse.Namespace, publisher: Publisher, fields: list[dict[str, Any]]) -> None:
    from griphub.client.event import NewEvent

    conditions = {"if_match": options.if_match, "idempotency_key": options.idempotency_key}
    if options.atomic:
        await publisher.publish_many([NewEvent(**event) for event in fields], **conditions)
    elif len(fields) == 1:
        await publisher.publish(**fields[0], **conditions)
    else:
        for event in fields:
            await publisher.submit(**event)
        await publisher.flush()


async def _publish_lines(options: argparse.Namespace, publisher: Publisher) -> None:
    number = 0
    async for line in _lines(sys.stdin.fileno()):
        number += 1
        try:
            event = _fields(options, line)
        except _Misuse as error:
            raise _Misuse(f"line {number}: {error}") from error
        await publisher.submit(**event)
        if publisher.failure is not None:
            break
    await publisher.flush()


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    """Yield the lines of a file as they arrive, without their ends; the loop goes on meanwhile."""
    waiting = bytearray()
    while True:
        await _readable(descriptor)
        chunk = os.read(descriptor, CHUNK)
        waiting += chunk
        *lines, rest = waiting.split(b"\n")
        waiting = rest
        for line in lines:
            yield bytes(line.removesuffix(b"\r"))
        if len(waiting) > MAX_LINE:
            raise _Misuse(f"a line has more than {MAX_LINE} bytes")
        if not chunk:
            break
    if waiting:
        yield bytes(waiting)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    try:
        loop.add_reader(descriptor, event.set)
    except PermissionError:
        # A file on a disk is always readable.
        return
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)


def _fields(options: argparse.Namespace, text: str | bytes | None) -> dict[str, Any]:
    """Return the arguments of ``publish`` for one DATA: the text of an argument, or the bytes of a line."""
    fields: dict[str, Any] = {"key": options.key, "attributes": dict(options.attribute)}
    if options.delete:
        if options.key is None:
            raise _Misuse("--delete needs --key")
        fields["op"] = "delete"
    if text is None:
        return fields
    data = _content(text) if isinstance(text, str) else text
    if options.json:
        try:
            json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _Misuse(f"no JSON: {error}: without --json it is taken as text") from error
        return {**fields, "data": data, "content_type": "application/json"}
    if options.content_type is not None:
        return {**fields, "data": data, "content_type": options.content_type}
    try:
        return {**fields, "data": data.decode(), "content_type": "text/plain; charset=utf-8"}
    except UnicodeDecodeError:
        return {**fields, "data": data, "content_type": "application/octet-stream"}


def _content(text: str) -> bytes:
    """Return the bytes of an argument: its own, or with @ those of a file."""
    if not text.startswith("@"):
        return os.fsencode(text)
    try:
        return pathlib.Path(text[1:]).read_bytes()
    except OSError as error:
        raise _Misuse(f"cannot read '{text[1:]}': {error.strerror}") from error


# --- read, follow and watch


def _selection(options: argparse.Namespace, after: str | None) -> Selection:
    from griphub.client.follower import Selection

    until = getattr(options, "until", None)
    return Selection(after, options.since, until, options.low, options.high, options.truncated)


def _gone(error: HubError, options: argparse.Namespace) -> str | None:
    """Return how to go on after ``error``; None if it is not about retention."""
    from griphub.client.errors import Gone

    if not isinstance(error, Gone) or error.floor_cursor is None:
        return None
    oldest = f" (from {error.oldest_time} on)" if error.oldest_time else ""
    return (
        f"resync: the topic retains only the events behind {error.floor_cursor}{oldest}: go on with "
        f"--after {error.floor_cursor}, or with --truncated, and take what was before from a snapshot"
    )


async def _print_events(options: argparse.Namespace, messages: AsyncIterator[Any]) -> None:
    from griphub.client.errors import Gone
    from griphub.client.received import ReceivedEvent

    number = 0
    try:
        async for message in messages:
            if isinstance(message, ReceivedEvent):
                line = json.dumps(message.document) if options.json else event_line(message.document)
                print(line, flush=options.hub_command == "follow")
                number += 1
                if options.limit is not None and number >= options.limit:
                    return
            else:
                print(
                    f"gripproxy hub {options.hub_command}: truncated: events up to {message.floor_cursor} are not "
                    "retained",
                    file=sys.stderr,
                )
    except Gone as error:
        hint = _gone(error, options)
        if hint is not None:
            print(f"gripproxy hub {options.hub_command}: {printable(hint)}", file=sys.stderr)
        raise


async def _read(options: argparse.Namespace) -> int:
    from griphub.client.history import read_history

    async with _connection(options) as connection:
        selection = _selection(options, options.after)
        await _print_events(options, read_history(connection, options.topic, selection, options.limit))
    return 0


async def _follow(options: argparse.Namespace) -> int:
    from griphub.client.follower import Follower

    after = options.after
    if after is None and options.since is None:
        async with _connection(options) as connection:
            _, topic = await _request(connection, "GET", ("topics", options.topic))
        after = str(topic.get("last_cursor"))
    selection = _selection(options, after)

    def on_pause(error: HubError, pause: float) -> None:
        if not follower.connections:
            raise error
        note = f"{printable(str(error))}; trying again in {pause:.1f} s"
        print(f"gripproxy hub follow: {note}", file=sys.stderr)

    async with Follower(options.url, options.topic, selection, token=_token(options), on_pause=on_pause) as follower:
        await _print_events(options, aiter(follower))
    return 0


async def _watch(options: argparse.Namespace) -> int:
    from gripproxy.cli.hub_watch import run_watch

    async with _connection(options) as connection:
        _, topic = await _request(connection, "GET", ("topics", options.topic))
    return await run_watch(options, _token(options), topic)


# --- snapshot


async def _snapshot(options: argparse.Namespace) -> int:
    from griphub.client.snapshot import SnapshotVersion, read_snapshot

    first: SnapshotVersion | None = None
    async with _connection(options) as connection:
        bounds = (options.low, options.high, options.version)
        async for message in read_snapshot(connection, options.topic, *bounds):
            if isinstance(message, SnapshotVersion):
                first = message
                print(json.dumps({"type": "snapshot", "version": first.version, "cursor": first.cursor}))
            else:
                print(json.dumps(message.document))
    assert first is not None
    # As in HTTP: a reader of the output sees by this line that it is whole.
    print(json.dumps({"complete": first.version, "cursor": first.cursor}))
    return 0


# --- mailboxes


async def _mailboxes(options: argparse.Namespace) -> int:
    async with _connection(options) as connection:
        _, document = await _request(connection, "GET", ("subscribers",))
    found = document["subscribers"]
    if options.json:
        for mailbox in found:
            print(json.dumps(mailbox))
    else:
        print(mailbox_table(found), end="")
    return 0


# --- subscriptions


async def _subscriptions(options: argparse.Namespace) -> int:
    path = ("subscriptions",) if options.topic is None else ("topics", options.topic, "subscriptions")
    if options.push:
        path = ("push-subscriptions",)
    async with _connection(options) as connection:
        found = await _pages(connection, path, "subscriptions")
    if options.push and options.topic is not None:
        found = [subscription for subscription in found if subscription.get("topic") == options.topic]
    if options.json:
        for subscription in found:
            print(json.dumps(subscription))
    else:
        print((push_table if options.push else subscription_table)(found), end="")
    return 0


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], Coroutine[Any, Any, int]]]] = {
    "topics": _topics,
    "publish": _publish,
    "read": _read,
    "follow": _follow,
    "watch": _watch,
    "snapshot": _snapshot,
    "mailboxes": _mailboxes,
    "subscriptions": _subscriptions,
}
