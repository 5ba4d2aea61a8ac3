import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gripproxy.grip.links import Address, LinkError, NextLink, check_uri, resolve, split


class TestCheckUri:
    @pytest.mark.parametrize(
        "uri",
        [
            b"/", b"/a?b=c&d=%20#f", b"a/b", b"../a", b"?x", b"#f", b";x", b"//h/a", b"//h:8080", b"http://h", b"HTTPS://h:443/",
            b"http://[::1]:80/a", b"http://1.2.3.4", b"http://h:/", b"/a:b", b"./a:b", b":a", b"/[x]",
        ],
    )  # fmt: skip
    def test_good_links_stay_as_they_are(self, uri: bytes) -> None:
        assert check_uri(uri) == uri

    @pytest.mark.parametrize(
        ("uri", "safe"),
        [
            (b"/a b", b"/a%20b"),
            (b"/\xc3\xa4?q=\xc3\xa4", b"/%C3%A4?q=%C3%A4"),
            (b'/"<>\\^`{|}', b"/%22%3C%3E%5C%5E%60%7B%7C%7D"),
            (b"/100%", b"/100%"),
        ],
    )
    def test_what_a_request_line_cannot_carry_is_encoded(self, uri: bytes, safe: bytes) -> None:
        assert check_uri(uri) == safe

    @pytest.mark.parametrize(
        ("uri", "reason"),
        [
            (b"", "empty"),
            (b"/a\r\nX: y", "control characters"),
            (b"/\x00", "control characters"),
            (b"/a\tb", "control characters"),
            (b"/a\x7f", "control characters"),
            (b"ftp://h/", "http or https"),
            (b"javascript:alert(1)", "http or https"),
            (b"1:2", "bad scheme"),
            (b"http:a", "no host"),
            (b"http://", "name or name:port"),
            (b"//", "name or name:port"),
            (b"http://u:p@h/", "name or name:port"),
            (b"http://h:x/", "name or name:port"),
            (b"http://h:0/", "1 to 65535"),
            (b"http://h:65536/", "1 to 65535"),
            (b"http://h:123456/", "name or name:port"),
            (b"http://[::1/", "name or name:port"),
            (b"http://a b/", "name or name:port"),
            (b"http://\xc3\xa4/", "ASCII"),
        ],
    )
    def test_bad_links_are_refused(self, uri: bytes, reason: str) -> None:
        with pytest.raises(LinkError, match=reason):
            check_uri(uri)


class TestResolve:
    """RFC 3986 §5.4, all its examples."""

    @pytest.mark.parametrize(
        ("link", "expected"),
        [
            (b"g:h", b"g:h"), (b"g", b"http://a/b/c/g"), (b"./g", b"http://a/b/c/g"), (b"g/", b"http://a/b/c/g/"),
            (b"/g", b"http://a/g"), (b"//g", b"http://g"), (b"?y", b"http://a/b/c/d;p?y"), (b"g?y", b"http://a/b/c/g?y"),
            (b"#s", b"http://a/b/c/d;p?q#s"), (b"g#s", b"http://a/b/c/g#s"), (b"g?y#s", b"http://a/b/c/g?y#s"),
            (b";x", b"http://a/b/c/;x"), (b"g;x", b"http://a/b/c/g;x"), (b"g;x?y#s", b"http://a/b/c/g;x?y#s"),
            (b"", b"http://a/b/c/d;p?q"), (b".", b"http://a/b/c/"), (b"./", b"http://a/b/c/"), (b"..", b"http://a/b/"),
            (b"../", b"http://a/b/"), (b"../g", b"http://a/b/g"), (b"../..", b"http://a/"), (b"../../", b"http://a/"),
            (b"../../g", b"http://a/g"), (b"../../../g", b"http://a/g"), (b"../../../../g", b"http://a/g"),
            (b"/./g", b"http://a/g"), (b"/../g", b"http://a/g"), (b"g.", b"http://a/b/c/g."), (b".g", b"http://a/b/c/.g"),
            (b"g..", b"http://a/b/c/g.."), (b"..g", b"http://a/b/c/..g"), (b"./../g", b"http://a/b/g"),
            (b"./g/.", b"http://a/b/c/g/"), (b"g/./h", b"http://a/b/c/g/h"), (b"g/../h", b"http://a/b/c/h"),
            (b"g;x=1/./y", b"http://a/b/c/g;x=1/y"), (b"g;x=1/../y", b"http://a/b/c/y"),
            (b"g?y/./x", b"http://a/b/c/g?y/./x"), (b"g?y/../x", b"http://a/b/c/g?y/../x"),
            (b"g#s/./x", b"http://a/b/c/g#s/./x"), (b"g#s/../x", b"http://a/b/c/g#s/../x"), (b"http:g", b"http:g"),
        ],
    )  # fmt: skip
    def test_rfc_examples(self, link: bytes, expected: bytes) -> None:
        assert resolve(b"http://a/b/c/d;p?q", link) == expected

    @pytest.mark.parametrize(
        ("base", "link", "expected"),
        [
            (b"http://h", b"g", b"http://h/g"),
            (b"http://h?x", b"g", b"http://h/g"),
            (b"http://h:81/rel", b"/rel?after=3", b"http://h:81/rel?after=3"),
            (b"http://h/a?x=1", b"https://o/p/../q", b"https://o/q"),
            (b"https://h/a", b"//o", b"https://o"),
            (b"http://h/a?b", b"?", b"http://h/a?"),
        ],
    )
    def test_more(self, base: bytes, link: bytes, expected: bytes) -> None:
        assert resolve(base, link) == expected

    def test_a_bad_scheme_is_an_error(self) -> None:
        with pytest.raises(LinkError):
            resolve(b"http://h/", b"1:2")


class TestSplit:
    @pytest.mark.parametrize(
        ("uri", "expected"),
        [
            (b"http://h", Address(False, "h", 80, b"/")),
            (b"https://H.Example/a?b#c", Address(True, "h.example", 443, b"/a?b")),
            (b"http://h:8080?x", Address(False, "h", 8080, b"/?x")),
            (b"http://[::1]:81/", Address(False, "::1", 81, b"/")),
            (b"HTTP://h:/", Address(False, "h", 80, b"/")),
        ],
    )
    def test_parts(self, uri: bytes, expected: Address) -> None:
        assert split(uri) == expected

    @pytest.mark.parametrize("uri", [b"/a", b"//h/a", b"ftp://h/", b"http:a", b"http://u@h/", b"http://h:99999/"])
    def test_not_an_address(self, uri: bytes) -> None:
        with pytest.raises(LinkError):
            split(uri)


def test_a_next_link_is_fetched_after_two_quiet_minutes() -> None:
    assert NextLink(b"/a").timeout == 120


@settings(deadline=None)
@given(st.one_of(st.binary(), st.text("/.:?#[]@ahtp1% ").map(str.encode)))
def test_a_checked_link_always_resolves_to_a_clean_address(uri: bytes) -> None:
    try:
        checked = check_uri(uri)
    except LinkError:
        return
    address = split(resolve(b"http://h.example/a/b?c", checked))
    assert address.target.startswith(b"/")
    assert address.target.isascii()
    assert not any(byte <= 0x20 or byte == 0x7F for byte in address.target)
    assert address.host
    assert 0 < address.port < 65536
