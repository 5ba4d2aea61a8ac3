"""Identity of the hub (scenario 37)."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from griphub.pubsub.identity import IdentityKey, IdentityTokens, KeyRing, keyring_of, new_key

NOW = 1_800_000_000.0
ENDPOINT = "https://example.com/push"


@pytest.fixture(scope="module")
def keys() -> list[IdentityKey]:
    return [new_key(NOW), new_key(NOW + 1)]


def verified(token: str, jwks: bytes, audience: str = ENDPOINT) -> dict[str, Any]:
    """Claims of a token, verified with the keys that a receiver has fetched."""
    kid = jwt.get_unverified_header(token)["kid"]
    key = {each["kid"]: each for each in json.loads(jwks)["keys"]}[kid]
    options: Any = {"verify_exp": False, "verify_iat": False}
    return dict(jwt.decode(token, jwt.PyJWK(key).key, ["RS256"], options, audience=audience))


def test_a_token_has_the_claims_of_the_documented_example(keys: list[IdentityKey]) -> None:
    token = IdentityTokens("https://hub.example", keys[0]).token("push@example.com", ENDPOINT, "p", NOW)
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "kid": keys[0].kid, "typ": "JWT"}
    assert verified(token, KeyRing((keys[0],)).jwks(NOW)) == {
        "iss": "https://hub.example",
        "aud": ENDPOINT,
        "azp": "push@example.com",
        "sub": "push@example.com",
        "email": "push@example.com",
        "email_verified": True,
        "hub_project": "p",
        "iat": int(NOW),
        "exp": int(NOW) + 3600,
    }


def test_one_token_is_for_one_receiver_and_renewed_before_its_end(keys: list[IdentityKey]) -> None:
    tokens = IdentityTokens("i", keys[0])
    first = tokens.token("a@b", ENDPOINT, "p", NOW)
    assert tokens.token("a@b", ENDPOINT, "p", NOW + 2699) == first
    assert tokens.token("a@b", ENDPOINT + "/", "p", NOW) != first
    assert tokens.token("c@b", ENDPOINT, "p", NOW) != first
    assert tokens.token("a@b", ENDPOINT, "q", NOW) != first
    renewed = tokens.token("a@b", ENDPOINT, "p", NOW + 2700)
    assert verified(renewed, KeyRing((keys[0],)).jwks(NOW))["exp"] == int(NOW) + 6300


def test_a_clock_that_went_back_makes_no_token_of_the_future(keys: list[IdentityKey]) -> None:
    tokens = IdentityTokens("i", keys[0])
    tokens.token("a@b", ENDPOINT, "p", NOW)
    earlier = tokens.token("a@b", ENDPOINT, "p", NOW - 5000)
    assert verified(earlier, KeyRing((keys[0],)).jwks(NOW))["iat"] == int(NOW) - 5000


def test_after_a_rotation_earlier_tokens_are_verified_for_two_hours(keys: list[IdentityKey]) -> None:
    tokens, ring = IdentityTokens("i", keys[0]), KeyRing((keys[0],))
    old = tokens.token("a@b", ENDPOINT, "p", NOW)
    ring = ring.rotated(keys[1], NOW + 10)
    tokens.use(ring.current)
    new = tokens.token("a@b", ENDPOINT, "p", NOW + 10)
    assert jwt.get_unverified_header(new)["kid"] == keys[1].kid
    for token in (old, new):
        assert verified(token, ring.jwks(NOW + 10 + 7199))
    assert [each["kid"] for each in json.loads(ring.jwks(NOW + 10 + 7200))["keys"]] == [keys[1].kid]
    assert len(ring.rotated(keys[0], NOW + 10_000).keys) == 2


def test_the_set_has_public_parts_only(keys: list[IdentityKey]) -> None:
    [key] = json.loads(KeyRing((keys[0],)).jwks(NOW))["keys"]
    assert set(key) == {"kty", "alg", "use", "kid", "n", "e"}


def test_keys_are_kept_as_text(keys: list[IdentityKey]) -> None:
    ring = KeyRing((keys[0],)).rotated(keys[1], NOW)
    assert keyring_of(ring.text()) == ring
    assert "PRIVATE" not in repr(ring)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{}",
        "[]",
        '{"keys": []}',
        '{"keys": [{"kid": "a"}]}',
        '{"keys": [{"kid":"a","pem":"x","created":1,"replaced":null}]}',
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several libraries
        keyring_of(text)


def test_the_number_of_tokens_is_bounded(keys: list[IdentityKey], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("griphub.pubsub.identity.TOKENS_MAX", 3)
    tokens = IdentityTokens("i", keys[0])
    made = [tokens.token("a@b", f"https://{number}/", "p", NOW) for number in range(4)]
    assert tokens.token("a@b", "https://3/", "p", NOW + 1) == made[3]
    assert tokens.token("a@b", "https://0/", "p", NOW + 1) != made[0]
