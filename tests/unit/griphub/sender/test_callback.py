"""Callback URLs: the strict form, and the tricks that are refused."""

from __future__ import annotations

import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import URL_MAX, BadCallback, CallbackUrl, parse_callback

POLICY = AddressPolicy()


def parsed(text: str) -> CallbackUrl:
    return parse_callback(text, POLICY)


@pytest.mark.parametrize(
    ("text", "host", "port", "target", "normal"),
    [
        ("https://example.com", "example.com", 443, "/", "https://example.com/"),
        ("http://example.com/hook", "example.com", 80, "/hook", "http://example.com/hook"),
        ("HTTPS://EXAMPLE.com.:443/a?b=c&d", "example.com", 443, "/a?b=c&d", "https://example.com/a?b=c&d"),
        ("http://example.com?x", "example.com", 80, "/?x", "http://example.com/?x"),
        ("http://example.com:443/", "example.com", 443, "/", "http://example.com:443/"),
        ("https://example.com:80/", "example.com", 80, "/", "https://example.com:80/"),
        ("https://example.com:1024/", "example.com", 1024, "/", "https://example.com:1024/"),
        ("https://example.com:65535/%C3%A9", "example.com", 65535, "/%C3%A9", "https://example.com:65535/%C3%A9"),
        ("https://bücher.example/", "xn--bcher-kva.example", 443, "/", "https://xn--bcher-kva.example/"),
        ("https://my_host.a-b.c1/", "my_host.a-b.c1", 443, "/", "https://my_host.a-b.c1/"),
        ("https://8.8.8.8/", "8.8.8.8", 443, "/", "https://8.8.8.8/"),
        ("https://[2600:0::0001]:8443/x", "2600::1", 8443, "/x", "https://[2600::1]:8443/x"),
        ("http://1.example/", "1.example", 80, "/", "http://1.example/"),
    ],
)
def test_accepted(text: str, host: str, port: int, target: str, normal: str) -> None:
    url = parsed(text)
    assert (url.host, url.port, url.target, str(url)) == (host, port, target, normal)
    assert parsed(str(url)) == url


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected http://HOST/PATH"),
        ("/hook", "expected http://HOST/PATH"),
        ("example.com/hook", "expected http://HOST/PATH"),
        ("http:example.com", "expected http://HOST/PATH"),
        ("ftp://example.com/", "'ftp': expected http or https"),
        ("file:///etc/passwd", "'file': expected http or https"),
        ("://example.com/", "'': expected http or https"),
        ("gopher://example.com/", "expected http or https"),
        (" http://example.com/", "expected http or https"),
        ("https:///x", "no host"),
        ("https://:8080/x", "no host"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com#@other/", "fragment"),
        ("https://user@example.com/", "user information"),
        ("https://user:pass@example.com/", "user information"),
        ("https://@example.com/", "user information"),
        ("https://example.com:22/", "'22': expected 80, 443, or 1024"),
        ("https://example.com:1023/", "'1023': expected 80"),
        ("https://example.com:65536/", "'65536': expected 80"),
        ("https://example.com:0/", "'0': expected 80"),
        ("https://example.com:/", "'': expected 80"),
        ("https://example.com:٨٠/", "expected 80"),
        ("https://example.com:+80/", "expected 80"),
        ("https://example.com/a b", "other characters as %XX"),
        ("https://example.com/\r\nX: y", "other characters as %XX"),
        ("https://example.com/\x00", "other characters as %XX"),
        ("https://example.com/é", "other characters as %XX"),
        ("https://example.com/%4", "other characters as %XX"),
        ("https://example.com\\@other/", "user information"),
        ("https://example.com\\x/", "letters, digits, hyphens"),
        ("https://exa\tmple.com/", "letters, digits, hyphens"),
        ("https://example.com\n/", "letters, digits, hyphens"),
        ("https://exam%70le.com/", "letters, digits, hyphens"),
        ("https://example..com/", "letters, digits, hyphens"),
        ("https://-example.com/", "letters, digits, hyphens"),
        ("https://example.com../", "letters, digits, hyphens"),
        ("https://./", "letters, digits, hyphens"),
        ("https://" + "a" * 64 + ".com/", "letters, digits, hyphens"),
        ("https://" + "a." * 150 + "com/", "at most 253"),
        ("https://*/", "letters, digits, hyphens"),
        ("https://[::1/", "expected 80"),
        ("https://[::1]x/", "expected 80"),
        ("https://[::1]x:80/", "in brackets"),
        ("https://[fe80::1%25eth0]/", "without a zone"),
        ("https://[v1.x]/", "in brackets"),
        ("https://::1/", "expected 80"),
        ("https://::80/", "letters, digits, hyphens"),
        ("https://ex\ud800ample.com/", "A-labels"),
        ("https://straße.example/", "A-labels"),
        ("https://ExämPLE。com/", "A-labels"),
        ("https://\uff11\uff12\uff17.0.0.1/", "A-labels"),  # full-width digits
        ("https://" + "é" * 250 + "/", "A-labels"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(BadCallback) as refused:
        parsed(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "host",
    ["127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "08.8.8.8", "1.2.3.4.5", "8.8.8.256"],
)
def test_only_the_usual_form_of_an_ipv4_address(host: str) -> None:
    with pytest.raises(BadCallback, match=r"four decimal numbers|loopback"):
        parsed(f"http://{host}/")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::a00:1]", "[fd00::1]"],
)
def test_addresses_are_judged_at_once(host: str) -> None:
    with pytest.raises(BadCallback, match="not to be called"):
        parsed(f"http://{host}/")
    allowing = AddressPolicy(allow=["0.0.0.0/0", "::/0"])
    assert parse_callback(f"http://{host}/", allowing).is_address


def test_a_password_is_not_shown() -> None:
    with pytest.raises(BadCallback) as refused:
        parsed("https://user:hidden@example.com/")
    assert "hidden" not in str(refused.value)


def test_length() -> None:
    longest = "https://example.com/".ljust(URL_MAX, "a")
    assert str(parsed(longest)) == longest
    with pytest.raises(BadCallback, match="at most 2048"):
        parsed(longest + "a")
    with pytest.raises(BadCallback, match="at most 2048"):
        parsed("https://" + "ü" * 1100)
    with pytest.raises(BadCallback, match="at most 2048"):
        # Its A-labels are longer than the name.
        parsed("https://bücher.example/".ljust(URL_MAX - 1, "a"))
    with pytest.raises(BadCallback, match="at most 2048"):
        parsed("a" * 10_000_000)


@given(
    st.lists(
        st.sampled_from(
            [*"ab.:/?#@[]%\\ \t\n", "http://", "https://", "127.0.0.1", "::1", "0x7f", ":80", "%41", "é", "。", "xn--"]
        ),
        max_size=12,
    )
)
def test_whatever_is_accepted_means_one_host_to_every_parser(parts: list[str]) -> None:
    text = "https://" + "".join(parts)
    try:
        url = parsed(text)
    except BadCallback:
        return
    split = urllib.parse.urlsplit(str(url))
    assert split.hostname == url.host
    assert (split.port or 443) == url.port
    assert (split.username, split.password, split.fragment) == (None, None, "")
    assert parsed(str(url)) == url
