"""Requests of the push API: paths, bodies and rights. Answers are in tests/e2e/test_hub_pubsub.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from griphub.access.owner import ANONYMOUS, Owner
from griphub.access.patterns import Patterns
from griphub.access.rights import Rights
from griphub.api.context import Context
from griphub.api.pubsub_requests import PubsubRequests
from griphub.api.request import Request, target_of
from griphub.pubsub.status import ApiError

ALICE = Rights(Owner("i", "alice"), Patterns(["p/*"]), Patterns(["p/*"]), Patterns(["p/*"]), 0)
NOBODY = Rights(ANONYMOUS, Patterns([]), Patterns([]), Patterns([]), 0)


class House:
    """Requests with parts that only note that they were reached."""

    def __init__(self) -> None:
        self.reached: list[Any] = []
        parts = SimpleNamespace(
            find=lambda name: self.reached.append(str(name)), publish=lambda *rest: self.reached.append(rest[:2])
        )

        async def refresh() -> None:
            return None

        context = SimpleNamespace(
            pubsub=SimpleNamespace(refresh=refresh), verifier=SimpleNamespace(anonymous=NOBODY), quotas=None
        )
        self.requests = PubsubRequests(cast(Context, context), *cast(Any, (parts, parts, parts)))

    async def ask(self, method: str, target: str, body: bytes = b"", rights: Rights = ALICE) -> Any:
        raw = target.encode()
        work = self.requests.begin(
            Request(method.encode(), target_of(raw), [], body, raw), lambda: rights, lambda answer: None
        )
        return None if work is None else await work


async def test_a_publication_is_given_to_its_part() -> None:
    house = House()
    await house.ask(
        "POST",
        "/v1/projects/p/topics/tt-1:publish?%24alt=json%3Benum-encoding%3Dint",
        b'{"messages": [{"data": "YQ"}]}',
    )
    [found, (topic, [draft])] = house.reached
    assert (found, topic, draft.data) == ("projects/p/topics/tt-1", "p/tt-1", b"a")


@pytest.mark.parametrize(
    ("method", "target", "body", "rights", "code"),
    [
        ("GET", "/v1/projects/p/nothing/x", b"", ALICE, "NOT_FOUND"),
        ("GET", "/v1/projects/p/topics/tt-1?unknown=1", b"", ALICE, "INVALID_ARGUMENT"),
        ("GET", "/v1/projects/p/topics/tt-1?alt=media", b"", ALICE, "INVALID_ARGUMENT"),
        ("POST", "/v1/projects/p/topics/tt-1:publish", b"[]", ALICE, "INVALID_ARGUMENT"),
        ("POST", "/v1/projects/q/topics/tt-1:publish", b"{}", ALICE, "PERMISSION_DENIED"),
        ("POST", "/v1/projects/p/topics/tt-1:publish", b"{}", NOBODY, "UNAUTHENTICATED"),
        ("GET", "/v1/projects/q/topics/tt-1", b"", ALICE, "PERMISSION_DENIED"),
        ("GET", "/v1/projects/p/topics/tt-1/snapshots", b"", ALICE, "UNIMPLEMENTED"),
        ("POST", "/v1/projects/p/topics/tt-1:setIamPolicy", b"{}", ALICE, "UNIMPLEMENTED"),
    ],
)
async def test_refusals(method: str, target: str, body: bytes, rights: Rights, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        await House().ask(method, target, body, rights)
    assert refused.value.code == code
