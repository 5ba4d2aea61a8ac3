"""gripproxy.config.hub_section: keys of the hub, each bad value refused, and combinations that cannot work."""

from __future__ import annotations

import pathlib

import pytest

from gripproxy.config import Config, ConfigError, load_config
from gripproxy.config.exposure import exposures, shipped_keys
from gripproxy.config.hub_section import TOKEN_KEYS_MAX, split_token_key

OPEN = "store=hub.db\nhub_anonymous=all\n"
"""Lines of a hub that works."""


class Loader:
    """A directory with a config file."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory

    def load(self, hub: str, others: str = "") -> Config:
        path = self.directory / "g.conf"
        path.write_text(f"{others}\n[hub]\n{hub}\n")
        return load_config(str(path))

    def error(self, hub: str, others: str = "") -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(hub, others)
        return str(caught.value).replace(str(self.directory) + "/", "")


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Loader:
    return Loader(tmp_path)


class TestStore:
    def test_without_a_store_there_is_no_hub(self, files: Loader) -> None:
        config = files.load("hub_sync=off")
        assert config.hub.store == ""
        assert config.services == {"worker", "handler"}
        assert config.handler.reserved_prefix == ""

    def test_built_in_values_have_none(self) -> None:
        assert load_config(None).hub.store == ""

    def test_is_beside_the_config_file_and_starts_the_hub(self, files: Loader) -> None:
        config = files.load(OPEN)
        assert config.hub.store == str(files.directory / "hub.db")
        assert config.services == {"worker", "handler", "hub"}

    def test_the_hub_may_run_without_the_others(self, files: Loader) -> None:
        assert files.load(OPEN, "[runner]\nservices=hub").services == {"hub"}

    def test_a_hub_without_a_store_is_no_service(self, files: Loader) -> None:
        assert "services names no process" in files.error("", "[runner]\nservices=hub")

    def test_its_prefix_is_reserved(self, files: Loader) -> None:
        assert files.load(OPEN).handler.reserved_prefix == "hub/"
        assert files.load(OPEN + "prefix=store-").handler.reserved_prefix == "store-"
        assert files.load(OPEN, "[handler]\nreserved_prefix=hub/").handler.reserved_prefix == "hub/"

    def test_two_prefixes_that_differ_are_named(self, files: Loader) -> None:
        error = files.error(OPEN + "prefix=a/", "[handler]\nreserved_prefix=b/")
        assert error.startswith("g.conf:2: reserved_prefix=b/ in [handler] and prefix=a/ in [hub] differ")

    def test_rundir_has_room_for_its_sockets(self, files: Loader) -> None:
        fits = "/" + "r" * (107 - len("//pushpin-hub-control"))
        assert files.load(OPEN, f"[global]\nrundir={fits}").globals.rundir == fits
        assert "rundir is too long" in files.error(OPEN, f"[global]\nrundir={fits}r")
        assert files.load("", f"[global]\nrundir={fits}r").globals.rundir == fits + "r"


class TestAccess:
    def test_a_hub_that_would_refuse_every_request_does_not_start(self, files: Loader) -> None:
        error = files.error("store=hub.db")
        assert error.startswith("g.conf:3: the hub would refuse every request: write hub_key=base64:SECRET")
        assert "hub_anonymous=subscribe" in error

    @pytest.mark.parametrize("line", ["hub_key=secret", "hub_anonymous=subscribe", "hub_anonymous=all"])
    def test_keys_or_anonymous_rights_open_it(self, line: str, files: Loader) -> None:
        assert files.load(f"store=hub.db\n{line}").hub.store

    def test_several_keys_with_and_without_names(self, files: Loader) -> None:
        (files.directory / "k.hex").write_text("00ff" * 16)
        config = files.load("store=hub.db\nhub_key=one:base64:c2VjcmV0, base64:YWJj, two:file:k.hex, plain")
        assert config.hub.hub_key == ("one:base64:c2VjcmV0", "base64:YWJj", "two:file:k.hex", "plain")

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ("one:base64:c2Vj, one:secret", "two keys are named 'one'"),
            ("one:file:absent.pem", "key 'one': cannot read the key file"),
            ("secret, base64:???", "key 2: what follows base64: is not valid base64"),
            ("one:", "key 'one' is empty"),
            (",".join(f"k{number}:secret" for number in range(TOKEN_KEYS_MAX + 1)), "at most 16 keys are possible"),
        ],
    )
    def test_bad_keys(self, value: str, reason: str, files: Loader) -> None:
        error = files.error(f"store=hub.db\nhub_key={value}")
        assert error.startswith(f"g.conf:4: hub_key: {reason}")

    def test_as_many_keys_as_are_possible(self, files: Loader) -> None:
        value = ",".join(f"k{number}:secret" for number in range(TOKEN_KEYS_MAX))
        assert len(files.load(f"store=hub.db\nhub_key={value}").hub.hub_key) == TOKEN_KEYS_MAX

    @pytest.mark.parametrize(
        ("text", "kid", "key"),
        [
            ("secret", "", "secret"),
            ("a1:secret", "a1", "secret"),
            ("a:b:c", "a", "b:c"),
            ("base64:YWJj", "", "base64:YWJj"),
            ("a.1:base64:YWJj", "a.1", "base64:YWJj"),
            ("a.b:file:x:y", "a.b", "file:x:y"),
            ("two words:x", "", "two words:x"),
            (":x", "", ":x"),
            ("a:", "a", ""),
            ("x" * 65 + ":y", "", "x" * 65 + ":y"),
        ],
    )
    def test_names_of_keys(self, text: str, kid: str, key: str) -> None:
        assert split_token_key(text) == (kid, key)

    def test_the_shipped_key_is_found(self, files: Loader) -> None:
        (found,) = shipped_keys(files.load("store=hub.db\nhub_key=a:good, b:changeme"))
        assert found.startswith("hub_key=changeme is the key that is shipped")
        assert shipped_keys(files.load("hub_key=changeme")) == []

    def test_metrics_that_others_reach_are_found(self, files: Loader) -> None:
        (found,) = exposures(files.load(OPEN + "prometheus_port=9092"))
        assert found.endswith("write prometheus_port=127.0.0.1:9092 in [hub]")
        assert exposures(files.load(OPEN + "prometheus_port=127.0.0.1:9092")) == []


class TestValues:
    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("hub_sync=fast", "hub_sync must be one of full, normal, off, not 'fast'"),
            ("hub_anonymous=publish", "hub_anonymous must be one of none, subscribe, all, not 'publish'"),
            ("readers=0", "readers must be 1 to 16, not 0"),
            ("readers=17", "readers must be 1 to 16, not 17"),
            ("ballast=-1", "ballast must be 0 to"),
            ("content_max=500001", "content_max must be 0 to 500000"),
            ("idempotency_ttl=59", "idempotency_ttl must be 60 to"),
            ("topics_max=0", "topics_max must be 1 to"),
            ("hub_origins=https://a.example/page", "hub_origins: must be origins like https://www.example.com"),
            ("hub_cookie=a b", "hub_cookie: must be the name of a cookie"),
            ("listen=0", "listen: port must be 1 to 65535, not '0'"),
            ("listen=::1:80", "listen: an IPv6 address needs brackets"),
            ("listen_path=hub", "listen_path: must be a path like /hub, of letters, digits and -_.~, not 'hub'"),
            ("listen_path=/", "listen_path: must be a path like /hub"),
            ("listen_path=/a//b", "listen_path: must be a path like /hub"),
            ("listen_path=/a?b", "listen_path: must be a path like /hub"),
            ("publish=https://a:1", "publish: must be http://host:port or the path of a socket, not 'https://a:1'"),
            ("publish=http://a", "publish: must be http://host:port"),
            ("publish=http://a:0", "publish: port must be 1 to 65535"),
            ("publish_sub=tcp://*:5562", "publish_sub: must be tcp://host:port or ipc://path"),
            ("publish_sub=5562", "publish_sub: must be tcp://host:port or ipc://path"),
        ],
    )
    def test_refused(self, line: str, reason: str, files: Loader) -> None:
        assert files.error(line).startswith(f"g.conf:3: {reason}")

    def test_taken(self, files: Loader) -> None:
        lines = (
            "readers=16\nballast=0\nhub_origins=https://A.example, http://b.example:8080\nlisten=127.0.0.1:7997\n"
            "publish=http://other.example:5561/\npublish_sub=tcp://other.example:5562\nhub_autocreate=a, logs/*\n"
        )
        hub = files.load(OPEN + lines, "[global]\nport_offset=10\n[proxy]\nsig_key=secret").hub
        assert hub.hub_origins == ("https://a.example", "http://b.example:8080")
        assert (hub.publish, hub.publish_sub) == ("http://other.example:5561", "tcp://other.example:5562")
        assert hub.listen == "127.0.0.1:7997"
        assert hub.hub_autocreate == ("a", "logs/*")

    @pytest.mark.parametrize(("value", "path"), [("/hub", "/hub"), ("/hub/", "/hub"), ("/a/b-1/", "/a/b-1")])
    def test_path_at_another_proxy(self, value: str, path: str, files: Loader) -> None:
        lines = f"listen=7997\nlisten_path={value}\n"
        assert files.load(OPEN + lines, "[proxy]\nsig_key=secret").hub.listen_path == path

    def test_control_socket_of_another_proxy(self, files: Loader) -> None:
        hub = files.load(OPEN + "publish=/run/other/control\npublish_sub=ipc:///run/other/sub").hub
        assert (hub.publish, hub.publish_sub) == ("/run/other/control", "ipc:///run/other/sub")

    def test_names_in_other_sections_are_warnings(self, files: Loader) -> None:
        (warning,) = files.load("", "[handler]\nhub_sync=off").warnings
        assert "unknown key 'hub_sync' in [handler] (it belongs to [hub])" in warning


class TestCombinations:
    @pytest.mark.parametrize("name", ["publish", "publish_sub"])
    def test_both_addresses_of_another_proxy(self, name: str, files: Loader) -> None:
        value = {"publish": "http://a:1", "publish_sub": "tcp://a:2"}[name]
        missing = "publish_sub" if name == "publish" else "publish"
        error = files.error(OPEN + f"{name}={value}")
        assert error.startswith(f"g.conf:5: {name} names another proxy: write {missing}")

    def test_a_port_for_a_proxy_in_front_needs_its_key(self, files: Loader) -> None:
        assert files.error(OPEN + "listen=7997").startswith("g.conf:5: listen needs sig_key in [proxy]")

    def test_a_path_needs_its_port(self, files: Loader) -> None:
        assert files.error(OPEN + "listen_path=/hub").startswith("g.conf:5: listen_path is for requests to the port")

    def test_a_reserved_key_needs_a_prefix(self, files: Loader) -> None:
        assert "reserved_key needs reserved_prefix" in files.error("", "[handler]\nreserved_key=secret")
        assert files.load(OPEN, "[handler]\nreserved_key=secret").handler.reserved_key == "secret"
