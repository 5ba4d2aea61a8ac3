"""Addresses of this machine, from the kernel's tables."""

from __future__ import annotations

import pathlib

from griphub.callbacks.own_addresses import own_addresses

TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 192.0.2.0/24 2 0 2
        |-- 192.0.2.0
           /24 link UNICAST
        |-- 192.0.2.2
           /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
Local:
  +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 192.0.2.2
           /32 host LOCAL
"""

INET6 = """00000000000000000000000000000001 01 80 10 80       lo
20010db8000000000000000000000007 02 40 00 00     eth0
"""


def test_the_addresses_of_all_interfaces(tmp_path: pathlib.Path) -> None:
    (tmp_path / "fib_trie").write_text(TRIE)
    (tmp_path / "if_inet6").write_text(INET6)
    assert own_addresses(tmp_path) == ["127.0.0.1", "192.0.2.2", "2001:db8::7", "::1"]


def test_a_system_without_tables_has_none_that_are_known(tmp_path: pathlib.Path) -> None:
    assert own_addresses(tmp_path) == []
