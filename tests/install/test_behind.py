"""The configurations of docs/production.md for servers in front, run as they stand there.

They come with apt: nginx-light haproxy caddy.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from websockets.sync.client import connect

from tests.support.ports import free_ports
from tests.support.service import ROOT, Service

PAGE = (ROOT / "docs" / "production.md").read_text()
PATIENCE = 60


def block(language: str) -> str:
    """Return the block of the page in a language; there is one."""
    [found] = re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE)
    return str(found)


class Site:
    """gripproxy with the keys of the page and its test routes, on free ports."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.http, self.control, self.metrics, self.front = free_ports(4)
        keys = block("ini").replace("7999", str(self.http))
        (folder / "g.conf").write_text(
            f"[global]\nrundir={folder}/run\n{keys}routesfile=routes\nworkers=1\nset_x_forwarded_protocol=true\n"
            f"[handler]\npush_in_http_port={self.control}\nprometheus_port=127.0.0.1:{self.metrics}\n"
        )
        (folder / "routes").write_text("* test\n")
        self.gripproxy = Service([sys.executable, "-m", "gripproxy", f"--config={folder}/g.conf"])
        self.gripproxy.wait_for_port(self.http, self.control, self.metrics)

    def publish(self, form: str, content: str) -> None:
        item = {"channel": "test", "formats": {form: {"content": content}}}
        data = json.dumps({"items": [item]}).encode()
        urllib.request.urlopen(f"http://127.0.0.1:{self.control}/publish", data, PATIENCE).close()

    def start(self, name: str) -> Service:
        """Start a server in front with the configuration of the page, but for its ports and folders."""
        text = block(name).replace("7999", str(self.http)).replace("7562", str(self.metrics))
        path, folder, front = self.folder / f"{name}.conf", self.folder, f"127.0.0.1:{self.front}"
        if name == "nginx":
            temp = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
            text = text.replace("listen 80;", f"listen {front};")
            path.write_text(
                f"daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
                f"http {{\naccess_log off;\nclient_body_temp_path {folder}/body;\n{temp}{text}}}\n"
            )
            command = ["nginx", "-e", "stderr", "-c", str(path)]
        elif name == "caddy":
            text = text.replace("example.com", f"http://127.0.0.1:{self.front}")
            path.write_text(f"{{\nadmin off\nauto_https off\ngrace_period 1s\n}}\n{text}")
            command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(path)]
        else:
            path.write_text(text.replace("bind :80", f"bind {front}"))
            command = ["haproxy", "-f", str(path)]
        found = shutil.which(command[0]) or shutil.which(command[0], path="/usr/sbin")
        assert found, f"{command[0]} not found: apt-get install nginx-light haproxy caddy"
        service = Service([found, *command[1:]], {"HOME": str(folder), "XDG_DATA_HOME": str(folder)})
        service.wait_for_port(self.front)
        return service


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("behind"))
    yield site
    site.gripproxy.stop()


@pytest.mark.parametrize("name", ["nginx", "caddy", "haproxy"])
def test_streams_long_polls_and_websockets_pass(site: Site, name: str) -> None:
    service = site.start(name)
    try:
        base = f"127.0.0.1:{site.front}"
        # What is published reaches the client at once, though the response goes on.
        with urllib.request.urlopen(f"http://{base}/stream", timeout=PATIENCE) as stream:
            assert stream.readline() == b"[stream opened]\n"
            for number in range(3):
                site.publish("http-stream", f"{number}\n")
                assert stream.readline() == b"%d\n" % number
        with connect(f"ws://{base}/ws", open_timeout=PATIENCE) as client:
            # The subscription is made before the handshake is answered.
            site.publish("ws-message", "over a WebSocket")
            assert client.recv(PATIENCE) == "over a WebSocket"
    finally:
        service.stop()
