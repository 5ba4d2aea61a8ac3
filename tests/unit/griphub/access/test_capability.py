"""Capabilities of links: fields in, text out, and texts that are refused."""

from __future__ import annotations

import base64
import dataclasses
import hmac
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.access.capability import (
    CAPABILITY_MAX,
    EXPIRY_STEP,
    BadCapability,
    Capability,
    Mode,
    read,
    rounded_expiry,
    sign,
)

SECRET = b"s" * 32
SHARED = Capability("follow", 7, 1, "sse", (None, None, False), 1_700_000_400)
PAGE = Capability(
    "snapshot",
    2**40,
    300,
    "lines",
    ("a", "ä\0", True),
    0,
    position=2**62,
    until=9,
    limit=5,
    truncated=True,
    after_key="k",
    turn=2**32 - 1,
)
LARGEST = Capability(
    "watch",
    *(2**63 - 1, 2**63 - 1, "r" * 16, ("l" * 256, "h" * 256, True), 2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1, True),
    "k" * 1024,
    2**63 - 1,
)
NUMBERS = st.integers(0, 2**63 - 1)
BOUNDS = st.none() | st.text(st.characters(codec="utf-8"), max_size=60)
CAPABILITIES = st.builds(
    Capability,
    mode=st.sampled_from(("follow", "watch", "snapshot")),
    topic=NUMBERS,
    access=NUMBERS,
    representation=st.sampled_from(("sse", "lines", "ws", "poll")),
    keys=st.tuples(BOUNDS, BOUNDS, st.booleans()),
    expires=NUMBERS,
    position=st.none() | NUMBERS,
    until=NUMBERS,
    limit=NUMBERS,
    truncated=st.booleans(),
    after_key=BOUNDS,
    turn=st.none() | NUMBERS,
)


@given(CAPABILITIES)
def test_a_capability_is_read_as_it_was_signed(capability: Capability) -> None:
    text = sign(capability, SECRET)
    assert read(text, SECRET) == capability
    assert len(text) <= CAPABILITY_MAX
    assert set(text) <= set(string.ascii_letters + string.digits + "-_")


@given(CAPABILITIES, CAPABILITIES)
def test_texts_are_equal_exactly_for_equal_capabilities(one: Capability, other: Capability) -> None:
    assert (sign(one, SECRET) == sign(other, SECRET)) is (one == other)
    assert sign(dataclasses.replace(one), SECRET) == sign(one, SECRET)


def test_a_shared_link_is_short() -> None:
    assert len(sign(SHARED, SECRET)) <= 48


def test_the_largest_capability_fits() -> None:
    text = sign(LARGEST, SECRET)
    assert len(text) <= CAPABILITY_MAX
    assert read(text, SECRET) == LARGEST


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": -1}, "topic is -1"),
        ({"expires": 2**63}, "expires is"),
        ({"position": -5}, "position is -5"),
        ({"representation": "r" * 17}, "representation has 17 bytes: expected at most 16"),
        ({"keys": ("ä" * 129, None, True)}, "low has 258 bytes: expected at most 256"),
        ({"keys": (None, "h" * 257, True)}, "high has 257 bytes"),
        ({"after_key": "k" * 1025}, "after_key has 1025 bytes"),
    ],
)
def test_fields_beyond_their_bounds_are_not_signed(change: dict[str, object], reason: str) -> None:
    fields = {field.name: getattr(SHARED, field.name) for field in dataclasses.fields(SHARED)}
    with pytest.raises(ValueError, match=reason):
        sign(Capability(**{**fields, **change}), SECRET)


@pytest.mark.parametrize("capability", [SHARED, PAGE])
def test_no_bit_can_be_changed(capability: Capability) -> None:
    text = sign(capability, SECRET)
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for place in range(len(raw)):
        for bit in range(8):
            altered = bytearray(raw)
            altered[place] ^= 1 << bit
            with pytest.raises(BadCapability, match="not signed by this hub"):
                read(base64.urlsafe_b64encode(altered).rstrip(b"=").decode(), SECRET)


@pytest.mark.parametrize("capability", [SHARED, PAGE, dataclasses.replace(SHARED, topic=300)])
def test_no_character_can_be_changed(capability: Capability) -> None:
    text = sign(capability, SECRET)
    for place in range(len(text)):
        for character in string.ascii_letters + string.digits + "-_":
            if character != text[place]:
                with pytest.raises(BadCapability):
                    read(text[:place] + character + text[place + 1 :], SECRET)


def test_no_text_can_be_cut_or_extended() -> None:
    text = sign(PAGE, SECRET)
    for size in range(len(text)):
        with pytest.raises(BadCapability):
            read(text[:size], SECRET)
    for more in ("A", "AA", "AAAA", "=", "\n", " "):
        with pytest.raises(BadCapability):
            read(text + more, SECRET)


def test_another_secret_or_purpose_is_refused() -> None:
    for text in (sign(SHARED, b"t" * 32), sign(SHARED, SECRET, "mailbox"), sign(SHARED, b"")):
        with pytest.raises(BadCapability, match="not signed by this hub"):
            read(text, SECRET)
    text = sign(SHARED, SECRET, "mailbox")
    assert read(text, SECRET, "mailbox") == SHARED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no link of this hub"),
        ("A", "is no link of this hub"),
        ("AA", "not signed"),
        ("a b", "is no link of this hub"),
        ("ä" * 30, "is no link of this hub"),
        ("a/b+", "is no link of this hub"),
        ("\0" * 30, "is no link of this hub"),
        ("\ud800", "is no link of this hub"),
        ("A" * 44, "not signed"),
        ("A" * CAPABILITY_MAX, "not signed"),
        ("A" * (CAPABILITY_MAX + 1), f"has {CAPABILITY_MAX + 1} bytes: expected at most {CAPABILITY_MAX}"),
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(BadCapability, match=reason):
        read(text, SECRET)


@given(st.text(max_size=80) | st.text(string.ascii_letters, max_size=80))
def test_no_text_but_a_signed_one_is_read(text: str) -> None:
    with pytest.raises(BadCapability):
        read(text, SECRET)


def _signed(packed: bytes) -> str:
    """Sign any bytes, as another version of the hub with the same secret would."""
    key = hmac.digest(SECRET, b"griphub/capability/link", "sha256")
    return base64.urlsafe_b64encode(packed + hmac.digest(key, packed, "sha256")[:16]).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x01",
        b"\x02\x00\x00\x01\x01\x00\x00\x00\x00",  # another version
        b"\x01\x09\x00\x01\x01\x00\x00\x00\x00",  # a mode that does not exist
        b"\x01\x00\x00\x01\x01\x00\x00\x00\x05abc",  # a text that is cut off
        b"\x01\x00\x00\x01\x01\x00\x00\x00\x01\xff",  # no UTF-8
        b"\x01\x00\x00\x01\x01\x00\x00\x00\x00more",
        b"\x01\x00\x00" + b"\xff" * 60,  # a number without end
    ],
)
def test_fields_of_another_version_are_refused(packed: bytes) -> None:
    with pytest.raises(BadCapability, match="another version of the hub"):
        read(_signed(packed), SECRET)


def test_the_format_stays_as_links_of_earlier_processes_have_it() -> None:
    packed = b"\x01\x00\x00\x07\x01\x90\xe5\xcf\xaa\x06\x00\x00\x03sse"
    assert sign(SHARED, SECRET) == _signed(packed)


@pytest.mark.parametrize(
    ("now", "access", "problem"),
    [
        (1_700_000_399.9, 1, None),
        (1_700_000_400.0, 1, "expired"),
        (0.0, 2, "revoked"),
        (0.0, 0, "revoked"),
        (1_800_000_000.0, 2, "revoked"),
    ],
)
def test_a_capability_ends_by_time_and_by_revocation(now: float, access: int, problem: str | None) -> None:
    assert SHARED.problem(now, access) == problem


def test_without_expiry_only_revocation_ends_it() -> None:
    assert PAGE.problem(1e12, 300) is None
    assert PAGE.problem(0.0, 301) == "revoked"


@pytest.mark.parametrize("mode", ["follow", "watch", "snapshot"])
def test_modes_are_different_rights(mode: Mode) -> None:
    assert read(sign(dataclasses.replace(SHARED, mode=mode), SECRET), SECRET).mode == mode


@pytest.mark.parametrize(
    ("now", "ttl", "rights_end", "expected"),
    [
        (0.0, 600.0, 0, 600),
        (0.1, 600.0, 0, 1200),
        (599.9, 600.0, 0, 1200),
        (600.0, 600.0, 0, 1200),
        (600.1, 600.0, 0, 1800),
        (0.0, 3600.0, 601, 1200),
        (0.0, 3600.0, 1200, 1200),
        (0.0, 300.0, 1200, 600),
        (700.5, 0.0, 0, 1200),
    ],
)
def test_expiry_is_rounded_up(now: float, ttl: float, rights_end: int, expected: int) -> None:
    assert rounded_expiry(now, ttl, rights_end) == expected


@given(st.floats(0, 1e10), st.floats(0, 1e8))
def test_a_link_lives_for_its_time_and_less_than_a_step_longer(now: float, ttl: float) -> None:
    end = rounded_expiry(now, ttl)
    assert end - EXPIRY_STEP < now + ttl <= end
    assert end % EXPIRY_STEP == 0
