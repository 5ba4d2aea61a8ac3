"""The commands by which docs/production.md makes a service, in a folder that stands for the root (apt: systemd).

``useradd`` and ``systemctl`` change the files of that folder with options of their own, since no systemd runs there.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

from tests.install.test_wheel import PATIENCE, source_of
from tests.support.document_commands import commands
from tests.support.service import ROOT

PAGE = "docs/production.md"
TEXT = (ROOT / PAGE).read_text()


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with what a fresh Debian has of the files that the commands change."""
    for folder in ("opt", "etc/systemd/system", "etc/default"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("passwd", "group", "shadow", "gshadow"):
        (tmp_path / "etc" / name).touch()
    (tmp_path / "etc/login.defs").write_text("SYS_UID_MIN 100\nSYS_UID_MAX 999\n")
    return tmp_path


def test_a_service_as_the_page_says(root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = source_of(tmp_path_factory.mktemp("source"))
    first = TEXT[: TEXT.index("## A service")].count("\n")
    last = TEXT[: TEXT.index("`check` says what is dangerous")].count("\n")
    typed = [command.text for command in commands(PAGE) if first < command.line <= last]
    assert len(typed) == 7
    printed = []
    for text in typed:
        for folder in ("/opt/", "/etc/"):
            text = re.sub(rf"(?<=[ ]){folder}|^{folder}", f"{root}{folder}", text)
        text = text.replace("useradd ", f"useradd --prefix {root} ").replace(" enable --now", f" --root={root} enable")
        done = subprocess.run(
            text,
            shell=True,
            cwd=source,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        # check has warnings, that of the shipped key among them: it says what to decide.
        assert done.returncode == (1 if " check " in text else 0), (text, done)
        printed.append(done.stdout)
    assert "write sig_key=" in printed[-2]
    assert (root / "etc/passwd").read_text().startswith("gripproxy:x:")
    assert sorted(path.name for path in (root / "etc/gripproxy").iterdir()) == ["gripproxy.conf", "routes"]
    wanted = root / "etc/systemd/system/multi-user.target.wants/gripproxy.service"
    assert os.readlink(wanted) == "/etc/systemd/system/gripproxy.service"
    unit = (root / "etc/systemd/system/gripproxy.service").read_text()
    [start] = re.findall(r"(?m)^ExecStart=(\S+) --config=(\S+)$", unit)
    for path in start:
        assert (root / path.removeprefix("/")).is_file()
