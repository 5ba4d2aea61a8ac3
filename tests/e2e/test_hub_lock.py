"""A store has one writer; the lock ends with its process, however that ends."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import urllib.request

import pytest

from griphub.store.errors import StoreInUse, StoreProblem
from griphub.store.file_lock import FileLock
from tests.support.hub import HubSite, hub_site
from tests.support.service import Service

HOLDER = """
import pathlib, sys
from griphub.store.file_lock import FileLock
lock = FileLock(pathlib.Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_the_second_is_told_who_has_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hub.db"
    first = FileLock(path)
    with pytest.raises(StoreInUse, match=f"{path} is open in process {os.getpid()}:"):
        FileLock(path)
    first.release()
    first.release()
    FileLock(path).release()


def test_a_killed_process_holds_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hub.db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(StoreInUse, match=f"in process {holder.pid}:"):
            FileLock(path)
    finally:
        holder.kill()
        holder.communicate()
    FileLock(path).release()


def test_a_folder_that_is_missing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StoreProblem, match="cannot make"):
        FileLock(tmp_path / "missing" / "hub.db")


def test_a_second_hub_on_the_store_of_another_names_its_process_and_the_first_goes_on(tmp_path: pathlib.Path) -> None:
    with hub_site() as first:
        path = first.directory / "hub.db"
        second = HubSite({"hub.store": str(path)})
        try:
            config = str(second.directory / "gripproxy.conf")
            service = second.service = Service([sys.executable, "-m", "gripproxy", f"--config={config}"])
            service.wait_for_log(rf"{path} is open in process {first.pid('writer_process')}")
            assert "Traceback" not in service.log
            assert "hub ready" not in service.log
        finally:
            second.stop()
        request = urllib.request.Request(f"{first.url}/topics/t", data=b"{}", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == 201
