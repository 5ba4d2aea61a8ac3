"""The router: routes in use, signers, and forwarders by route and target."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.backend.router import Router, load_signers
from gripproxy.grip.signature import KeyProblem
from gripproxy.routing.grammar import parse_routes
from gripproxy.routing.table import RouteTable
from tests.support.doubles import config


def table(*lines: str) -> RouteTable:
    return parse_routes("\n".join(lines), "routes")[0]


def router(**changes: Any) -> Router:
    return Router(config(**changes))


def test_a_signer_is_made_once() -> None:
    made = router()
    assert made.signer("key", "a") is made.signer("key", "a")
    assert made.signer("key", "a") is not made.signer("key", "b")
    assert made.signer("", "a") is None


def test_a_key_that_cannot_be_read() -> None:
    with pytest.raises(KeyProblem):
        router().signer("file:/there/is/none", "")


def test_forwarders_are_made_once_for_each_target_and_way_of_signing() -> None:
    made = router()
    [route] = table("*,sig_key=k one:80 two:80").routes
    assert made.forwarder(route, 0) is made.forwarder(route, 0)
    assert made.forwarder(route, 0) is not made.forwarder(route, 1)
    assert b"Grip-Sig" in made.forwarder(route, 0).grip_headers()
    assert b"Grip-Sig" not in made.forwarder(route, 0, signed=False).grip_headers()


def test_requests_of_a_route_with_an_unreadable_key_go_out_unsigned() -> None:
    made = router()
    [route] = table("*,sig_key=k one:80").routes
    route.sig_key = "file:/there/is/none"
    assert b"Grip-Sig" not in made.forwarder(route, 0).grip_headers()


def test_new_routes_bring_their_signers_and_the_usual_one_stays() -> None:
    made = router(sig_key="usual", sig_iss="me")
    usual = made.signer("usual", "me")
    routes = table("*,sig_key=other,sig_iss=you one:80")
    made.use(routes, 7, load_signers(routes, config(sig_key="usual", sig_iss="me")))
    assert (made.routes, made.generation) == (routes, 7)
    assert made.signer("usual", "me") is usual
    assert set(made._signers) == {("usual", "me"), ("other", "you")}


@pytest.mark.parametrize("everywhere", [True, False])
def test_debug_and_cors_are_set_by_route_or_for_all(everywhere: bool) -> None:
    made = router(debug=everywhere, auto_cross_origin=everywhere)
    plain, special = table("a one:80", "b,debug,aco one:80").routes
    assert (made.debug(plain), made.cors(plain)) == (everywhere, everywhere)
    assert (made.debug(special), made.cors(special)) == (True, True)
