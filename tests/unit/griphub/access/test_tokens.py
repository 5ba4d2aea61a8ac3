"""Tokens: claims in, rights or a reason out; and where a request may carry them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import pathlib
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from griphub.access import tokens
from griphub.access.owner import Owner
from griphub.access.patterns import PATTERNS_MAX
from griphub.access.tokens import KEYS_MAX, TOKEN_MAX, BadToken, TokenKey, TokenVerifier, key_of, token_of
from gripproxy.grip.errors import OperatorError
from gripproxy.grip.signature import Key

NOW = 1_700_000_000.5
SECRET = b"s" * 32
HS = Key.from_secret(SECRET)
CLAIMS = {
    "iss": "https://issuer",
    "sub": "alice",
    "aud": "hub",
    "exp": 1_700_000_060,
    "publish": ["orders"],
    "subscribe": ["orders", "news/*"],
    "admin": [],
}


def _pem(key: Any) -> bytes:
    data: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return data


def _public_pem(key: Any) -> bytes:
    data: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data


_RSA = rsa.generate_private_key(65537, 2048)
RSA_PUBLIC = _public_pem(_RSA)
RS = Key.from_pem(_pem(_RSA))
ES = Key.from_pem(_pem(ec.generate_private_key(ec.SECP256R1())))


def _part(content: object) -> bytes:
    data = content if isinstance(content, bytes) else orjson.dumps(content)
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def token(claims: object, header: object = None, secret: bytes = SECRET) -> bytes:
    """Return a JWT with any claims and header, signed with HS256."""
    body = _part({"alg": "HS256"} if header is None else header) + b"." + _part(claims)
    return body + b"." + _part(hmac.digest(secret, body, hashlib.sha256))


def claims(**changes: object) -> dict[str, object]:
    """Return right claims with some changed; those that are None are left out."""
    return {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}


@pytest.fixture
def verifier() -> TokenVerifier:
    return TokenVerifier([TokenKey(None, HS)], "hub", "none")


class TestRights:
    def test_claims_are_rights(self, verifier: TokenVerifier) -> None:
        rights = verifier.rights(token(CLAIMS), NOW)
        assert rights.owner == Owner("https://issuer", "alice")
        assert rights.expires == 1_700_000_060
        assert rights.may("publish", "orders")
        assert rights.may("subscribe", "news/1")
        assert not rights.may("publish", "news/1")
        assert not rights.may("admin", "orders")

    def test_missing_lists_give_no_right(self, verifier: TokenVerifier) -> None:
        rights = verifier.rights(token(claims(publish=None, subscribe=None, admin=None)), NOW)
        assert not rights.sees("orders")

    @pytest.mark.parametrize("audience", ["hub", ["hub"], ["other", "hub"], [7, None, {}, "hub"]])
    def test_the_audience_is_a_string_or_in_a_list(self, verifier: TokenVerifier, audience: object) -> None:
        assert verifier.rights(token(claims(aud=audience)), NOW).owner.sub == "alice"

    @pytest.mark.parametrize("begin", [0, 1_700_000_000, 1_700_000_060, 1.5])
    def test_an_issuer_may_be_a_minute_ahead(self, verifier: TokenVerifier, begin: object) -> None:
        assert verifier.rights(token(claims(nbf=begin)), NOW).owner.sub == "alice"

    @pytest.mark.parametrize("key", [HS, RS, ES], ids=lambda key: key.algorithm)
    def test_the_three_algorithms(self, key: Key) -> None:
        verifier = TokenVerifier([TokenKey(None, key)], "hub", "none")
        assert verifier.rights(key.sign(orjson.dumps(CLAIMS)), NOW).owner.sub == "alice"

    def test_other_claims_do_not_count(self, verifier: TokenVerifier) -> None:
        assert verifier.rights(token(claims(scope="x", jti=None, iat="y")), NOW).owner.sub == "alice"


class TestRefusedClaims:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"exp": None}, "exp is missing: expected a whole number of seconds"),
            ({"exp": 1_700_000_060.5}, r"exp is 1700000060\.5: expected a whole number"),
            ({"exp": 1_700_000_060.0}, r"exp is 1700000060\.0: expected"),
            ({"exp": "1700000060"}, "exp is '1700000060': expected"),
            ({"exp": True}, "exp is True: expected"),
            ({"exp": -1}, "exp is -1: expected"),
            ({"exp": 0}, "exp is 0: expected"),
            ({"exp": 1_700_000_060_000}, "exp is 1700000060000: expected a whole number of seconds"),
            ({"exp": [1_700_000_060]}, "exp is a list of 1: expected"),
            ({"exp": 1_700_000_000}, "exp is 1700000000, .* s ago: expected a token that has not expired"),
            ({"aud": None}, "aud is missing: expected 'hub'"),
            ({"aud": "other"}, "aud is 'other': expected 'hub'"),
            ({"aud": "hub "}, "aud is 'hub ': expected 'hub'"),
            ({"aud": "hubs"}, "aud is 'hubs': expected 'hub'"),
            ({"aud": []}, "aud is a list of 0: expected 'hub'"),
            ({"aud": [["hub"]]}, "aud is a list of 1: expected 'hub'"),
            ({"aud": {"hub": 1}}, "aud is an object: expected 'hub'"),
            ({"nbf": 1_700_000_062}, "nbf is 1700000062, in .* s: expected a token that counts already"),
            ({"nbf": "0"}, "nbf is '0': expected seconds"),
            ({"nbf": False}, "nbf is False: expected seconds"),
            ({"iss": None}, "iss is missing: expected a string that is not empty"),
            ({"iss": ""}, "iss is '': expected a string that is not empty"),
            ({"sub": None}, "sub is missing: expected a string"),
            ({"sub": ""}, "sub is '': expected a string"),
            ({"sub": 7}, "sub is 7: expected a string"),
            ({"sub": "a\0b"}, "sub is .*: expected text without control characters"),
            ({"iss": "a\nb"}, "iss is .*: expected text without control characters"),
            ({"sub": "ä" * 128}, "sub has 256 bytes: expected at most 255"),
            ({"publish": "orders"}, "publish is 'orders': expected a list of names"),
            ({"subscribe": {"orders": True}}, "subscribe is an object: expected a list"),
            ({"admin": ["a", 7]}, "admin is a list of 2: expected a list of names"),
            ({"publish": ["a*b"]}, "publish: the pattern 'a[*]b' has a [*] before its end"),
            ({"publish": [""]}, "publish: the pattern is empty"),
            ({"subscribe": ["a\0"]}, "subscribe: .* control character"),
            ({"admin": ["a" * 322]}, "admin: .* has 322 bytes"),
            ({"admin": ["a"] * (PATTERNS_MAX + 1)}, f"admin: more than {PATTERNS_MAX} patterns"),
        ],
    )
    def test_the_reason_names_the_claim(self, verifier: TokenVerifier, changes: dict[str, object], reason: str) -> None:
        with pytest.raises(BadToken, match=reason):
            verifier.rights(token(claims(**changes)), NOW)

    def test_a_long_value_is_shortened(self, verifier: TokenVerifier) -> None:
        with pytest.raises(BadToken) as caught:
            verifier.rights(token(claims(aud="x" * 4000)), NOW)
        assert len(str(caught.value)) < 200

    @pytest.mark.parametrize("depth", [100, 300, 1000, 2500])
    def test_deep_claims_are_refused(self, verifier: TokenVerifier, depth: int) -> None:
        nested = b"[" * depth + b"]" * depth
        for claim in (b"exp", b"aud", b"publish", b"sub"):
            whole = orjson.dumps(CLAIMS)[:-1] + b',"%b":%b}' % (claim, nested)
            with pytest.raises(BadToken, match=f"{claim.decode()} is a list|claims of the token cannot be read"):
                verifier.rights(token(whole), NOW)

    @pytest.mark.parametrize("depth", [300, 2000])
    def test_a_deep_header_is_refused(self, verifier: TokenVerifier, depth: int) -> None:
        nested = b'{"alg":"HS256","kid":' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(BadToken, match=r"kid is a list|header of the token cannot be read"):
            verifier.rights(token(CLAIMS, nested), NOW)

    @pytest.mark.parametrize(
        "content",
        [
            b'{"sub":"\xff"}',
            b'{"sub":"\\ud800"}',
            b'{"exp":NaN}',
            b"{",
            b"\xef\xbb\xbf{}",
            b"{}{}",
            b"\0",
        ],
    )
    def test_claims_that_are_no_json(self, verifier: TokenVerifier, content: bytes) -> None:
        with pytest.raises(BadToken, match="claims of the token cannot be read: expected a JSON object"):
            verifier.rights(token(content), NOW)

    @pytest.mark.parametrize("content", [b"[]", b'"a"', b"null", b"1"])
    def test_claims_that_are_no_object(self, verifier: TokenVerifier, content: bytes) -> None:
        with pytest.raises(BadToken, match="claims of the token is no JSON object"):
            verifier.rights(token(content), NOW)
        with pytest.raises(BadToken, match="header of the token is no JSON object"):
            verifier.rights(token(CLAIMS, content), NOW)


class TestRefusedTokens:
    @pytest.mark.parametrize(
        "text",
        [b"", b".", b"..", b"a.b", b"a.b.c.d", b"a b.c.d", b"a=.b.c", b"\xff.b.c", b"\0", b"a.b.c\n", b"a.b."],
    )
    def test_no_jwt(self, verifier: TokenVerifier, text: bytes) -> None:
        with pytest.raises(BadToken, match="is no JWT"):
            verifier.rights(text, NOW)

    @given(st.binary(max_size=60))
    def test_any_bytes(self, text: bytes) -> None:
        with pytest.raises(BadToken):
            TokenVerifier([TokenKey(None, HS)], "hub", "all").rights(text, NOW)

    def test_the_longest_token(self, verifier: TokenVerifier) -> None:
        short = token(claims(pad=""))
        sizes = [size for size in range(6100) if len(token(claims(pad="x" * size))) <= TOKEN_MAX]
        longest = token(claims(pad="x" * sizes[-1]))
        assert len(short) < len(longest) <= TOKEN_MAX
        assert verifier.rights(longest, NOW).owner.sub == "alice"
        with pytest.raises(BadToken, match=f"bytes: expected at most {TOKEN_MAX}"):
            verifier.rights(token(claims(pad="x" * (sizes[-1] + 4))), NOW)

    @pytest.mark.parametrize("algorithm", ["none", "None", "", None, "HS512", "RS256", "ES256", 7, ["HS256"]])
    def test_the_algorithm_is_that_of_the_key(self, verifier: TokenVerifier, algorithm: object) -> None:
        with pytest.raises(BadToken, match=r"alg is .*: expected HS256, as the key is"):
            verifier.rights(token(CLAIMS, {"alg": algorithm}), NOW)

    def test_none_without_a_signature(self, verifier: TokenVerifier) -> None:
        text = _part({"alg": "none"}) + b"." + _part(CLAIMS) + b"."
        for signature in (b"", b"AA"):
            with pytest.raises(BadToken):
                verifier.rights(text + signature, NOW)

    @pytest.mark.parametrize("secret", [RSA_PUBLIC, RSA_PUBLIC.strip(), b""])
    def test_a_public_key_is_no_secret(self, secret: bytes) -> None:
        verifier = TokenVerifier([TokenKey(None, Key.from_pem(RSA_PUBLIC))], "hub", "none")
        assert verifier.rights(RS.sign(orjson.dumps(CLAIMS)), NOW).owner.sub == "alice"
        with pytest.raises(BadToken, match="alg is 'HS256': expected RS256"):
            verifier.rights(token(CLAIMS, secret=secret), NOW)
        with pytest.raises(BadToken, match="signature"):
            verifier.rights(token(CLAIMS, {"alg": "RS256"}, secret), NOW)

    def test_a_public_key_is_no_secret_beside_a_secret(self) -> None:
        verifier = TokenVerifier([TokenKey(None, Key.from_pem(RSA_PUBLIC)), TokenKey(None, HS)], "hub", "none")
        with pytest.raises(BadToken, match="signature"):
            verifier.rights(token(CLAIMS, secret=RSA_PUBLIC), NOW)

    def test_another_key(self, verifier: TokenVerifier) -> None:
        with pytest.raises(BadToken, match="signature"):
            verifier.rights(token(CLAIMS, secret=b"t" * 32), NOW)

    def test_no_bit_can_be_changed(self, verifier: TokenVerifier) -> None:
        text = token(CLAIMS)
        for place in range(len(text) - 1):  # the last character has bits that mean nothing
            altered = bytearray(text)
            altered[place] ^= 1
            with pytest.raises(BadToken):
                verifier.rights(bytes(altered), NOW)

    @pytest.mark.parametrize("header", [{"alg": "HS256", "crit": ["x"], "x": 1}, {"alg": "HS256", "b64": False}])
    def test_extensions_of_the_format_are_refused(self, verifier: TokenVerifier, header: object) -> None:
        with pytest.raises(BadToken, match="signature"):
            verifier.rights(token(CLAIMS, header), NOW)

    def test_without_keys_no_token_counts(self) -> None:
        verifier = TokenVerifier([], "", "subscribe")
        with pytest.raises(BadToken, match="no key to verify tokens with"):
            verifier.rights(token(CLAIMS), NOW)


class TestKeys:
    OTHER = b"t" * 32

    @pytest.fixture
    def named(self) -> TokenVerifier:
        keys = [TokenKey("old", HS), TokenKey("new", Key.from_secret(self.OTHER)), TokenKey("ec", ES)]
        return TokenVerifier(keys, "hub", "none")

    def test_the_kid_chooses_the_key(self, named: TokenVerifier) -> None:
        assert named.rights(token(CLAIMS, {"alg": "HS256", "kid": "old"}), NOW)
        assert named.rights(token(CLAIMS, {"alg": "HS256", "kid": "new"}, self.OTHER), NOW)
        with pytest.raises(BadToken, match="signature"):
            named.rights(token(CLAIMS, {"alg": "HS256", "kid": "new"}), NOW)
        with pytest.raises(BadToken, match="alg is 'HS256': expected ES256"):
            named.rights(token(CLAIMS, {"alg": "HS256", "kid": "ec"}), NOW)

    @pytest.mark.parametrize("kid", ["other", "", "../old", "OLD", "old\0", "x" * 2000])
    def test_an_unknown_kid(self, named: TokenVerifier, kid: str) -> None:
        with pytest.raises(BadToken, match=r"kid is '.*: expected one of the hub's keys"):
            named.rights(token(CLAIMS, {"alg": "HS256", "kid": kid}), NOW)

    @pytest.mark.parametrize("kid", [7, ["old"], {"old": 1}, True])
    def test_a_kid_that_is_no_string(self, named: TokenVerifier, kid: object) -> None:
        with pytest.raises(BadToken, match=r"kid is .*: expected a string"):
            named.rights(token(CLAIMS, {"alg": "HS256", "kid": kid}), NOW)

    def test_a_missing_kid(self, named: TokenVerifier) -> None:
        with pytest.raises(BadToken, match="kid is missing: expected one of the hub's keys"):
            named.rights(token(CLAIMS), NOW)

    def test_keys_without_kid_are_for_tokens_that_no_other_key_has(self) -> None:
        keys = [TokenKey("a", ES), TokenKey(None, HS), TokenKey(None, Key.from_secret(self.OTHER))]
        verifier = TokenVerifier(keys, "hub", "none")
        assert verifier.rights(token(CLAIMS), NOW)
        assert verifier.rights(token(CLAIMS, {"alg": "HS256", "kid": "b"}, self.OTHER), NOW)
        with pytest.raises(BadToken):
            verifier.rights(token(CLAIMS, {"alg": "HS256", "kid": "a"}), NOW)

    def test_neither_key_nor_anonymous_right(self) -> None:
        with pytest.raises(OperatorError, match=r"write hub_key=KEY .* or hub_anonymous=subscribe"):
            TokenVerifier([], "hub", "none")

    def test_keys_need_an_audience(self) -> None:
        with pytest.raises(OperatorError, match="needs hub_aud"):
            TokenVerifier([TokenKey(None, HS)], "", "none")

    def test_a_kid_names_one_key(self) -> None:
        with pytest.raises(OperatorError, match="names a kid twice: expected each of a once"):
            TokenVerifier([TokenKey("a", HS), TokenKey("a", ES)], "hub", "none")

    def test_the_number_of_keys_is_bounded(self) -> None:
        TokenVerifier([TokenKey(str(number), HS) for number in range(KEYS_MAX)], "hub", "none")
        with pytest.raises(OperatorError, match=f"expected at most {KEYS_MAX}"):
            TokenVerifier([TokenKey(str(number), HS) for number in range(KEYS_MAX + 1)], "hub", "none")

    def test_anonymous_rights(self) -> None:
        assert TokenVerifier([], "", "subscribe").anonymous.may("subscribe", "any")
        assert not TokenVerifier([TokenKey(None, HS)], "hub", "none").anonymous.sees("any")


class TestRemembered:
    def test_a_token_is_verified_once(self, verifier: TokenVerifier) -> None:
        text = token(CLAIMS)
        assert verifier.rights(text, NOW) is verifier.rights(bytes(bytearray(text)), NOW + 30)

    def test_its_expiry_is_checked_at_each_use(self, verifier: TokenVerifier) -> None:
        text = token(CLAIMS)
        verifier.rights(text, NOW)
        verifier.rights(text, 1_700_000_059.9)
        for _ in range(2):
            with pytest.raises(BadToken, match="exp is 1700000060, 0 s ago"):
                verifier.rights(text, 1_700_000_060.0)
        assert (len(verifier._verified), verifier._size) == (0, 0)

    def test_refused_tokens_are_not_remembered(self, verifier: TokenVerifier) -> None:
        for text in (b"x", token(claims(sub="")), token(CLAIMS, secret=b"t")):
            with pytest.raises(BadToken):
                verifier.rights(text, NOW)
        assert (len(verifier._verified), verifier._size) == (0, 0)

    def test_their_number_is_bounded(self, verifier: TokenVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tokens, "_VERIFIED_MAX", 3)
        texts = [token(claims(sub=str(number))) for number in range(5)]
        for text in texts:
            verifier.rights(text, NOW)
        assert list(verifier._verified) == texts[2:]
        assert verifier._size == sum(map(len, texts[2:]))
        assert verifier.rights(texts[0], NOW).owner.sub == "0"

    def test_their_bytes_are_bounded(self, verifier: TokenVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = [token(claims(sub=str(number))) for number in range(4)]
        monkeypatch.setattr(tokens, "_VERIFIED_BYTES", 2 * len(texts[0]))
        for text in texts:
            verifier.rights(text, NOW)
        assert list(verifier._verified) == texts[2:]


class TestKeyOf:
    @pytest.mark.parametrize(
        ("kid", "text", "secret"),
        [
            ("", "secret", b"secret"),
            ("a1", "secret", b"secret"),
            ("a", "b:c", b"b:c"),
            ("", "base64:c2VjcmV0", b"secret"),
            ("a.1", "base64:c2VjcmV0", b"secret"),
        ],
    )
    def test_a_secret(self, kid: str, text: str, secret: bytes) -> None:
        entry = key_of(kid, text)
        assert (entry.kid, entry.key.algorithm) == (kid or None, "HS256")
        assert entry.key.is_secret(secret)

    def test_a_file(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "rsa.pem").write_bytes(RSA_PUBLIC)
        entry = key_of("main", "file:rsa.pem", tmp_path)
        assert (entry.kid, entry.key.algorithm) == ("main", "RS256")
        assert key_of("", f"file:{tmp_path}/rsa.pem").kid is None

    @pytest.mark.parametrize(
        ("kid", "text", "reason"),
        [
            ("", "", "hub_key: the key is empty: expected a secret, base64:SECRET or file:PATH"),
            ("a", "", "hub_key a: the key is empty"),
            ("a", "base64:", "hub_key a: the key is empty"),
            ("a", "base64:!", "hub_key a: .*not valid base64"),
            ("a", "file:missing.pem", "hub_key a: cannot read the key file .*missing.pem"),
            ("", "file:missing.pem", "hub_key: cannot read the key file .*missing.pem"),
        ],
    )
    def test_the_error_names_the_entry(self, tmp_path: pathlib.Path, kid: str, text: str, reason: str) -> None:
        with pytest.raises(OperatorError, match=reason):
            key_of(kid, text, tmp_path)


class TestTokenOf:
    ORIGINS = ("https://page", "http://localhost:8000", "null")

    def take(self, *headers: tuple[bytes, bytes], **query: list[str]) -> bytes | None:
        return token_of(headers, query, "hub", self.ORIGINS)

    @pytest.mark.parametrize("value", [b"Bearer abc", b"bearer abc", b"BEARER  abc "])
    def test_authorization(self, value: bytes) -> None:
        assert self.take((b"authorization", value)) == b"abc"

    @pytest.mark.parametrize("value", [b"Basic abc", b"Bearerabc", b"", b"abc"])
    def test_other_schemes_are_for_others(self, value: bytes) -> None:
        assert self.take((b"authorization", value)) is None

    def test_the_parameter(self) -> None:
        assert self.take(access_token=["abc"]) == b"abc"
        assert self.take(token=["abc"]) is None

    @pytest.mark.parametrize(
        "value", [b"hub=abc", b"a=b; hub=abc; c=d", b'hub="abc"', b"a;hub=abc", b"hub=abc;hub=abc"]
    )
    def test_a_cookie_with_an_allowed_origin(self, value: bytes) -> None:
        assert self.take((b"cookie", value), (b"origin", b"https://page")) == b"abc"

    @pytest.mark.parametrize("value", [b"xhub=abc", b"Hub=abc", b"hub", b"", b"a=hub=abc"])
    def test_other_cookies(self, value: bytes) -> None:
        if value == b"hub":
            with pytest.raises(BadToken, match="is empty"):
                self.take((b"cookie", value), (b"origin", b"https://page"))
        else:
            assert self.take((b"cookie", value), (b"origin", b"https://page")) is None

    @pytest.mark.parametrize(
        ("headers", "counts"),
        [
            ([], False),
            ([(b"origin", b"http://localhost:8000")], True),
            ([(b"origin", b"http://localhost")], False),
            ([(b"origin", b"https://page.evil")], False),
            ([(b"origin", b"https://page/")], False),
            ([(b"origin", b"null")], False),
            ([(b"origin", b"")], False),
            ([(b"origin", b"\xff")], False),
            ([(b"origin", b"https://page"), (b"origin", b"https://evil")], False),
            ([(b"sec-fetch-site", b"same-origin")], True),
            ([(b"sec-fetch-site", b"same-site")], False),
            ([(b"sec-fetch-site", b"none")], False),
            ([(b"sec-fetch-site", b"same-origin"), (b"origin", b"https://evil")], False),
        ],
    )
    def test_cookies_count_only_from_allowed_pages(self, headers: list[tuple[bytes, bytes]], counts: bool) -> None:
        assert self.take((b"cookie", b"hub=abc"), *headers) == (b"abc" if counts else None)

    def test_without_a_name_no_cookie_counts(self) -> None:
        headers = [(b"cookie", b"=abc; hub=abc"), (b"origin", b"https://page")]
        assert token_of(headers, {}, "", self.ORIGINS) is None

    def test_equal_tokens_are_one(self) -> None:
        headers = [(b"authorization", b"Bearer abc"), (b"cookie", b"hub=abc"), (b"origin", b"https://page")]
        assert self.take(*headers, access_token=["abc", "abc"]) == b"abc"

    @pytest.mark.parametrize(
        ("headers", "query"),
        [
            ([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")], []),
            ([(b"authorization", b"Bearer a")], ["b"]),
            ([], ["a", "b"]),
            ([(b"cookie", b"hub=a"), (b"origin", b"https://page")], ["b"]),
            ([(b"cookie", b"hub=a; hub=b"), (b"origin", b"https://page")], []),
            ([(b"authorization", b"Bearer")], ["b"]),
        ],
    )
    def test_different_tokens_are_an_error(self, headers: list[tuple[bytes, bytes]], query: list[str]) -> None:
        with pytest.raises(BadToken, match="different tokens: expected one"):
            self.take(*headers, access_token=query)

    def test_a_cookie_that_does_not_count_is_no_second_token(self) -> None:
        assert self.take((b"cookie", b"hub=a"), access_token=["b"]) == b"b"

    @pytest.mark.parametrize("value", [b"Bearer", b"Bearer ", b"bearer   "])
    def test_an_empty_token_is_an_error(self, value: bytes) -> None:
        with pytest.raises(BadToken, match="is empty: expected a JWT"):
            self.take((b"authorization", value))
        with pytest.raises(BadToken, match="is empty"):
            self.take(access_token=[""])
