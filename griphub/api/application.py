"""Application of the hub: finds the part for a request, checks the caller's rights, and carries it out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from griphub.access.owner import ANONYMOUS, owner_key
from griphub.access.patterns import NONE
from griphub.access.quota import LimitReached
from griphub.access.rights import Right, Rights
from griphub.access.tokens import BadToken, token_of
from griphub.api.body_parser import LARGE_BODY
from griphub.api.context import Context
from griphub.api.ingest import IngestRequests
from griphub.api.keys import Keys
from griphub.api.mailboxes import MailboxRequests
from griphub.api.openapi import OPENAPI
from griphub.api.problem import MEDIA_TYPE, Problem, limited, unauthorized
from griphub.api.publish_body import drafts_of, fixed_draft
from griphub.api.publish_plan import PublishPlan
from griphub.api.publishing import Publishing, answer_of, store_failure
from griphub.api.pubsub_requests import PubsubRequests
from griphub.api.pubsub_status import error_answer, is_call, status_answer
from griphub.api.push_identity import EMPTY_SET
from griphub.api.query import PublishQuery, idempotency_key, if_match, nothing_else, publish_query
from griphub.api.reading import Reading
from griphub.api.refusals import RefusalPace
from griphub.api.request import Answer, Receiver, Reply, Request, no_body, problem_answer
from griphub.api.server import HubConnection
from griphub.api.snapshots import Snapshots
from griphub.api.socket_events import EVENTS_TYPE
from griphub.api.soft_watch import SoftWatching
from griphub.api.subscriptions import SubscriptionRequests
from griphub.api.topics import Topics
from griphub.api.watch import Watching
from griphub.api.websockets import WebSockets, expired, upgrade_refused
from griphub.pubsub.status import ApiError
from griphub.store.errors import OwnerBusy, StoreError
from griphub.store.event import Draft
from griphub.store.publication import Publication
from griphub.store.topic import TopicSettings
from griphub.topics.names import check_key, check_topic_name
from gripproxy.grip.errors import ClientError
from gripproxy.grip.signature import Key, verify
from gripproxy.process.log import ERROR, log

__all__ = ["HubApplication"]

T = TypeVar("T")

REQUESTS_MAX: Final = 8192
"""Requests carried out at a time, apart from those that wait for a commit; further ones get 503."""


NO_OWNER: Final = ""
NO_TOKEN: Final = "-"
"""Owners of bodies: of requests without a token, and of WebSockets whose token is not valid."""

_OF_OWNERS: Final = frozenset({"topics", "subscribers", "subscriptions", "push-subscriptions", "v1"})
"""First segments of paths that need a token, or rights of requests without one."""

_NAMED: Final = frozenset({b"if-match", b"idempotency-key"})
"""Headers of publications that are looked at each time."""


class HubApplication:
    """Carries out requests.

    Args:
        context: parts of the hub.
        topics: requests about topics.
        publishing: requests that publish.
        reading: requests that read events.
        watching: requests that watch.
        websockets: requests of WebSockets.
        keys: requests about keys.
        snapshots: requests for snapshots.
        mailboxes: requests about mailboxes.
        subscriptions: requests about subscriptions.
        soft: requests that watch soft topics.
        ingest: requests of their sources.
        pubsub: requests of the push API.
        proxy_key: key of the ``Grip-Sig`` that requests over TCP must have; None: there is no such port.
    """

    def __init__(
        self,
        context: Context,
        topics: Topics,
        publishing: Publishing,
        reading: Reading,
        watching: Watching,
        websockets: WebSockets,
        keys: Keys,
        snapshots: Snapshots,
        mailboxes: MailboxRequests,
        subscriptions: SubscriptionRequests,
        soft: SoftWatching,
        ingest: IngestRequests,
        pubsub: PubsubRequests,
        proxy_key: Key | None,
    ) -> None:
        self._context = context
        self._topics = topics
        self._publishing = publishing
        self._reading = reading
        self._watching = watching
        self._websockets = websockets
        self._keys = keys
        self._snapshots = snapshots
        self._mailboxes = mailboxes
        self._subscriptions = subscriptions
        self._soft = soft
        self._ingest = ingest
        self._pubsub = pubsub
        self._proxy_key = proxy_key
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals = RefusalPace()

    # --- server.Application

    def admits(self, request: Request, *, private: bool) -> str:
        """Check signature and token of a request before its body is read; see ``server.Application``."""
        if not private:
            signature = request.header(b"grip-sig") or b""
            if self._proxy_key is None or not verify(signature, self._proxy_key, int(self._context.wall())):
                raise Problem(403, "forbidden", "this port is for a GRIP proxy: Grip-Sig is missing or not valid")
        if request.target.path[0] not in _OF_OWNERS:
            return NO_OWNER
        try:
            return owner_key(self._rights(request).owner)
        except Problem:
            # Whether a WebSocket is refused or closed depends on its events, which are in the body.
            if not _is_socket(request):
                raise
            return NO_TOKEN

    def again(self, first: Request, body: bytes, connection: HubConnection) -> bool:
        """Carry out a request whose head was seen before; see ``server.Application``."""
        plan = first.memo.plan
        if plan is None:
            return False
        try:
            return plan(body, connection)
        except Problem as problem:
            self._reply(first, connection)(problem_answer(problem))
        except ClientError as error:
            self._reply(first, connection)(problem_answer(Problem(400, "bad-request", str(error))))
        return True

    def start(self, request: Request, connection: HubConnection) -> None:
        """Carry out a request; see ``server.Application``."""
        reply = self._reply(request, connection)
        try:
            work = self._begin(request, reply)
        except Problem as problem:
            reply(problem_answer(problem))
            return
        except ApiError as error:
            reply(error_answer(error))
            return
        except ClientError as error:
            reply(problem_answer(Problem(400, "bad-request", str(error))))
            return
        if work is None:
            return
        if len(self._tasks) >= REQUESTS_MAX:
            work.close()
            text = f"{REQUESTS_MAX} requests are being carried out: repeat it later"
            reply(problem_answer(Problem(503, "unavailable", text, headers=[("Retry-After", "1")])))
            return
        task = self._loop.create_task(self._finish(work, reply))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, request, reply))

    def _reply(self, request: Request, receiver: Receiver) -> Reply:
        def reply(answer: Answer) -> None:
            if answer.content_type == MEDIA_TYPE and is_call(request.raw_target):
                answer = status_answer(answer)
            self._context.counters.answers[answer.status] += 1
            if answer.status < 400 or not self._pause(request, receiver, answer):
                receiver.answer(answer)

        return reply

    def _pause(self, request: Request, receiver: Receiver, answer: Answer) -> bool:
        """Return whether a refusal is answered later, since its caller has been refused too often."""
        refusals = self._refusals
        # The token of a request about a topic was verified; others can be invented without end. Its hash, since many
        # are remembered, and a token may be long.
        verified = answer.status != 401 and request.target.path[0] in _OF_OWNERS
        token = request.header(b"authorization") if verified else None
        pause = refusals.pause(answer.status, str(hash(token)) if token else "", self._loop.time())
        if not pause:
            return False

        def later() -> None:
            refusals.waiting -= 1
            receiver.answer(answer)

        refusals.waiting += 1
        self._loop.call_later(pause, later)
        return True

    @property
    def busy(self) -> int:
        """Requests that are being carried out."""
        return len(self._tasks)

    def _ended(self, request: Request, reply: Reply, task: asyncio.Task[None]) -> None:
        """Answer a request whose work has failed by a fault of the hub."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            trace = "".join(traceback.format_exception(error))
            log.write(ERROR, "request failed", "", trace, method=request.method, target=request.raw_target)
            reply(problem_answer(Problem(500, "internal", "the hub has a fault, which is in its log")))

    async def _finish(self, work: Awaitable[Answer], reply: Reply) -> None:
        try:
            answer = await work
        except Problem as problem:
            answer = problem_answer(problem)
        except ApiError as error:
            answer = error_answer(error)
        except LimitReached as error:
            name = f"{error.name}_max" if error.whose == "total" else f"{error.name}_per_{error.whose}_max"
            answer = problem_answer(limited(str(error), name, error.limit, round(error.retry_after) or None))
        except OwnerBusy as error:
            limit = self._context.config.pages_per_owner_max
            answer = problem_answer(limited(str(error), "pages_per_owner_max", limit, 1))
        except ClientError as error:
            answer = problem_answer(Problem(400, "bad-request", str(error)))
        except StoreError as error:
            answer = store_failure(error)
        reply(answer)

    # --- paths

    def _begin(self, request: Request, reply: Reply) -> Coroutine[Any, Any, Answer] | None:
        """Return the work for a request; None if ``reply`` is called by the commit."""
        match request.target.path:
            case ("topics", name, *rest):
                return self._topic(request, name, tuple(rest), reply)
            case ("topics",):
                self._method(request, b"GET")
                return self._topics.list(request, self._rights(request))
            case ("follow", text):
                self._method(request, b"GET")
                return self._link(request, text)
            case ("snapshot", text):
                self._method(request, b"GET")
                return self._snapshots.link(request, text)
            case ("subscribers", *rest):
                self._subscribers(request, tuple(rest), reply)
                return None
            case ("subscriptions",):
                self._method(request, b"GET")
                return self._subscriptions.list_own(request, self._owner_of_subscriptions(request))
            case ("push-subscriptions",):
                self._method(request, b"GET")
                reply(self._pubsub.subscriptions.overview(request, self._rights(request)))
                return None
            case ("v1", *_):
                return self._pubsub.begin(request, partial(self._rights, request), reply)
            case (".well-known", "jwks.json"):
                self._method(request, b"GET")
                reply(self._jwks())
                return None
            case ("openapi.json",):
                self._method(request, b"GET")
                reply(Answer(200, OPENAPI, "application/json"))
                return None
        raise Problem(404, "not-found", "there is no such path: see /openapi.json")

    def _jwks(self) -> Answer:
        keys = self._context.pubsub.identity.jwks()
        # Receivers ask again for a key that they do not know; for the first one too.
        caching = "no-store" if keys == EMPTY_SET else "public, max-age=300"
        return Answer(200, keys, "application/jwk-set+json", [("Cache-Control", caching)])

    def _link(self, request: Request, text: str) -> Coroutine[Any, Any, Answer]:
        linked = self._soft.linked(text)
        return self._reading.link(request, text) if linked is None else self._soft.link(request, *linked)

    def _topic(
        self, request: Request, name: str, rest: tuple[str, ...], reply: Reply
    ) -> Coroutine[Any, Any, Answer] | None:
        check_topic_name(name)
        method = b"GET" if request.method == b"HEAD" else request.method
        socket = _is_socket(request)
        if rest in (("events",), ("watch",)) and (ended := self._ended_hold(request, name, socket=socket)) is not None:
            reply(ended)
            return None
        rights = self._rights(request)
        match rest:
            case ():
                return self._settings(request, name, rights)
            case ("events",) if method == b"POST" and not socket:
                return self._publish(request, name, rights, reply)
            case ("events",):
                return self._follow(request, name, rights, watching=False)
            case ("watch",):
                return self._follow(request, name, rights, watching=True)
            case ("events", cursor):
                self._method(request, b"GET")
                nothing_else(request.target.query)
                self._may(rights, "subscribe", name)
                return self._keys.event(self._topics.find(name), cursor, rights)
            case ("snapshot",):
                return self._snapshot(request, name, rights)
            case ("ingest",):
                self._method(request, b"POST")
                self._may(rights, "publish", name)
                return self._ingest.answer(request, self._topics.find_soft(name), rights)
            case ("keys", key):
                nothing_else(request.target.query)
                check_key(key)
                return self._key(request, name, key, rights, reply)
            case ("revoke",):
                self._method(request, b"POST")
                nothing_else(request.target.query)
                self._may(rights, "admin", name)
                no_body(request)
                return self._change(rights, lambda: self._topics.revoke(name, rights))
            case ("subscriptions", *parts):
                return self._subscription(request, name, tuple(parts), rights)
        raise Problem(404, "not-found", "there is no such path under a topic: see /openapi.json")

    def _snapshot(self, request: Request, name: str, rights: Rights) -> Coroutine[Any, Any, Answer]:
        self._method(request, b"GET")
        self._may(rights, "subscribe", name)
        topic = self._topics.find_any(name)
        if topic.settings.soft:
            return self._soft.snapshot(request, topic)
        return self._snapshots.get(request, topic, rights)

    def _follow(self, request: Request, name: str, rights: Rights, *, watching: bool) -> Coroutine[Any, Any, Answer]:
        self._may(rights, "subscribe", name)
        topic = self._topics.find_any(name) if watching else self._topics.find(name)
        soft = topic.settings.soft
        if _is_socket(request):
            if soft:
                return self._soft.socket(request, topic, rights)
            return self._websockets.answer(request, topic, rights, watching=watching)
        self._method(request, *((b"GET",) if watching else (b"GET", b"POST")))
        if (request.header(b"upgrade") or b"").lower() == b"websocket":
            raise upgrade_refused()
        if soft:
            return self._soft.answer(request, topic, rights)
        answer = self._watching.answer if watching else self._reading.events
        return answer(request, topic, rights)

    def _ended_hold(self, request: Request, name: str, *, socket: bool) -> Answer | None:
        """Return the answer that ends the hold of a client whose rights have ended, or whose topic was deleted."""
        if socket and not request.body.startswith(b"OPEN"):
            try:
                self._may(self._rights(request), "subscribe", name)
            except Problem:
                return expired()
        if self._context.topics.named(name) is None and self._reading.is_held(request):
            self._may(self._rights(request), "subscribe", name)
            return self._websockets.deleted() if socket else problem_answer(self._reading.deleted())
        return None

    def _subscribers(self, request: Request, rest: tuple[str, ...], reply: Reply) -> None:
        rights, mailboxes = self._rights(request), self._mailboxes
        if rights is self._context.verifier.anonymous and rights.subscribe is NONE:
            raise unauthorized("mailboxes need a token: send Authorization: Bearer TOKEN")
        match rest:
            case ():
                self._method(request, b"GET")
                reply(mailboxes.list(request, rights))
            case (subscriber,):
                self._method(request, b"DELETE")
                reply(mailboxes.delete(request, subscriber, rights))
            case (subscriber, "commands"):
                self._method(request, b"POST")
                reply(mailboxes.commands(request, subscriber, rights))
            case (subscriber, "poll"):
                self._method(request, b"GET")
                mailboxes.poll(request, subscriber, rights, reply)
            case _:
                raise Problem(404, "not-found", "there is no such path under a subscriber: see /openapi.json")

    def _subscription(
        self, request: Request, name: str, parts: tuple[str, ...], rights: Rights
    ) -> Coroutine[Any, Any, Answer]:
        subscriptions, posted = self._subscriptions, request.method == b"POST"
        match parts:
            case ():
                self._method(request, b"GET", b"POST")
                act = subscriptions.make if posted else subscriptions.list
            case (id,):
                self._method(request, b"GET", b"DELETE")
                act = partial(subscriptions.delete if request.method == b"DELETE" else subscriptions.get, id=id)
            case (id, "keys"):
                self._method(request, b"POST")
                act = partial(subscriptions.rotate, id=id)
            case _:
                raise Problem(404, "not-found", "there is no such path under a subscription: see /openapi.json")
        # Subscriptions of a topic are seen and ended by its administrator too.
        if posted or not rights.may("admin", name):
            self._may(rights, "subscribe", name)
        self._authenticated(rights)
        work = partial(act, request, self._topics.find(name), rights=rights)
        return work() if request.method in (b"GET", b"HEAD") else self._change(rights, work)

    def _owner_of_subscriptions(self, request: Request) -> Rights:
        rights = self._rights(request)
        self._authenticated(rights)
        return rights

    def _authenticated(self, rights: Rights) -> None:
        if rights.owner == ANONYMOUS:
            raise unauthorized("a subscription needs an authenticated owner: send Authorization: Bearer TOKEN")

    def _settings(self, request: Request, name: str, rights: Rights) -> Coroutine[Any, Any, Answer]:
        nothing_else(request.target.query)
        method = request.method
        if method in (b"GET", b"HEAD"):
            if not rights.sees(name):
                self._may(rights, "subscribe", name)
            return self._topics.get(name, rights)
        self._method(request, b"GET", b"PUT", b"PATCH", b"DELETE")
        self._may(rights, "admin", name)
        if method == b"PUT":
            return self._change(rights, lambda: self._topics.put(request, name, rights))
        if method == b"PATCH":
            return self._change(rights, lambda: self._topics.patch(request, name, rights))
        no_body(request)
        return self._change(rights, lambda: self._topics.delete(name, rights))

    async def _change(self, rights: Rights, change: Callable[[], Awaitable[T]]) -> T:
        """Change a topic. Each change is a commit of its own, and no owner has too many of them under way."""
        quotas, owner = self._context.quotas, owner_key(rights.owner)
        quotas.take("topic_changes", owner)
        try:
            return await change()
        finally:
            quotas.give("topic_changes", owner)

    def _publish(self, request: Request, name: str, rights: Rights, reply: Reply) -> Coroutine[Any, Any, Answer] | None:
        self._may(rights, "publish", name)
        query = publish_query(request.target.query)
        made = self._is_made(name)
        store = partial(self._publishing.publish, request, name, rights)
        if self._context.bodies.wants(request, query):
            reading = partial(self._context.bodies.drafts, request, query, owner_key(rights.owner))
            return self._after_reading(request, name, rights, reading, store)
        drafts = drafts_of(request.headers, query, request.body)
        if made:
            return self._after_making(request, name, rights, partial(store, drafts))
        store(drafts, reply)
        if request.memo.plan is None and not any(header in _NAMED for header, _ in request.headers):
            request.memo.plan = self._plan(request, name, query)
        return None

    def _plan(self, request: Request, name: str, query: PublishQuery) -> Callable[[bytes, Receiver], bool]:
        """Return the way in which further publications with an equal head are carried out."""
        context, config, headers = self._context, self._context.config, request.headers
        token = token_of(headers, request.target.query, config.hub_cookie, config.hub_origins)
        verifier, append = context.verifier, self._publishing.append
        if (draft := fixed_draft(headers, query)) is not None:
            return PublishPlan(context, self._publishing, name, draft, token)

        def publish(body: bytes, receiver: Receiver) -> bool:
            if len(body) >= LARGE_BODY:
                return False
            try:
                rights = verifier.anonymous if token is None else verifier.rights(token, context.wall())
            except BadToken:
                return False
            known = context.topics.named(name)
            if known is None or known.settings.soft or not rights.may("publish", name):
                return False
            drafts = drafts_of(headers, query, body)
            append(Publication(name, drafts), owner_key(rights.owner), self._reply(request, receiver))
            return True

        return publish

    def _key(
        self, request: Request, name: str, key: str, rights: Rights, reply: Reply
    ) -> Coroutine[Any, Any, Answer] | None:
        method = request.method
        if method in (b"GET", b"HEAD"):
            self._may(rights, "subscribe", name)
            return self._keys.get(self._topics.find(name), key, rights)
        self._method(request, b"GET", b"PUT", b"DELETE")
        self._may(rights, "publish", name)
        made = self._is_made(name)
        store = partial(self._keys.store, request, name, key, rights)
        if method == b"PUT" and self._context.bodies.wants(request, None):
            reading = partial(self._context.bodies.draft, request, key, owner_key(rights.owner))
            return self._after_reading(request, name, rights, reading, store)
        drafts = self._keys.draft(request, key)
        if made:
            return self._after_making(request, name, rights, partial(store, drafts))
        store(drafts, reply)
        return None

    def _is_made(self, name: str) -> bool:
        """Return whether a publication makes its topic."""
        if self._context.topics.named(name) is None and self._topics.made_by_publishing(name):
            return True
        self._topics.find(name)
        return False

    async def _after_reading(
        self,
        request: Request,
        name: str,
        rights: Rights,
        reading: Callable[[], Awaitable[tuple[Draft, ...]]],
        act: Callable[[tuple[Draft, ...], Reply], None],
    ) -> Answer:
        """Publish events that are read apart; return the answer of the publication."""
        drafts = await reading()
        return await self._after_making(request, name, rights, partial(act, drafts))

    async def _after_making(self, request: Request, name: str, rights: Rights, act: Callable[[Reply], None]) -> Answer:
        """Make a topic, then publish; return the answer of the publication."""
        # First, since a request that is refused must not make the topic.
        if_match(request.headers)
        idempotency_key(request.headers)
        if self._context.topics.named(name) is None and self._topics.made_by_publishing(name):
            await self._change(rights, lambda: self._topics.make(name, rights, TopicSettings()))
        return await answer_of(act)

    # --- rights

    def _rights(self, request: Request) -> Rights:
        context, config = self._context, self._context.config
        try:
            token = token_of(
                request.headers,
                request.target.query,
                config.hub_cookie,
                config.hub_origins,
                api_key=request.target.path[0] == "v1",
            )
            return context.verifier.anonymous if token is None else context.verifier.rights(token, context.wall())
        except BadToken as error:
            raise Problem(
                401, "unauthorized", str(error), headers=[("WWW-Authenticate", 'Bearer realm="hub"')]
            ) from error

    def _may(self, rights: Rights, right: Right, name: str) -> None:
        if not rights.may(right, name):
            if rights is self._context.verifier.anonymous:
                text = f"{right} on {name!r} needs a token: send Authorization: Bearer TOKEN"
                raise Problem(401, "unauthorized", text, headers=[("WWW-Authenticate", 'Bearer realm="hub"')])
            raise Problem(403, "forbidden", f"the token has no right to {right} on {name!r}")

    def _method(self, request: Request, *allowed: bytes) -> None:
        method = b"GET" if request.method == b"HEAD" else request.method
        if method not in allowed:
            names = b", ".join(allowed).decode()
            raise Problem(405, "method", f"the method here must be one of {names}", headers=[("Allow", names)])


def _is_socket(request: Request) -> bool:
    return request.header(b"content-type") == EVENTS_TYPE.encode()
