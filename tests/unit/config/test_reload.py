"""gripproxy.config.reload: keys that a running service cannot change."""

from __future__ import annotations

import dataclasses
import pathlib

from gripproxy.config import load_config
from gripproxy.config.reload import adopt, needs_restart


def test_what_only_a_restart_obeys(tmp_path: pathlib.Path) -> None:
    config = load_config(None)
    text = (
        "[global]\nrundir=/elsewhere\nipc_prefix=x-\n[runner]\nservices=proxy\nhttp_port=1\nhttps_ports=2\n"
        "local_ports=/s\nreload_spread=7\n[proxy]\nworkers=9\nsig_iss=me\n"
        "[hub]\nstore=s\nhub_anonymous=all\n"
    )
    (tmp_path / "g.conf").write_text(text)
    (tmp_path / "routes").write_text("* test\n")
    fresh = load_config(str(tmp_path / "g.conf"))
    assert needs_restart(config, config) == []
    assert needs_restart(config, fresh) == [
        "[global] rundir",
        "[global] ipc_prefix",
        "[runner] services",
        "[runner] http_port",
        "[runner] https_ports",
        "[runner] local_ports",
        "[proxy] workers",
        "[hub] store",
    ]
    adopted = adopt(config, fresh)
    assert needs_restart(config, adopted) == []
    assert (adopted.runner.reload_spread, adopted.proxy.sig_iss) == (7, "me")
    assert adopted.path == fresh.path
    assert dataclasses.replace(adopted.proxy, workers=9) == fresh.proxy
