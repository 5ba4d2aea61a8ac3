"""The hub of the demo, and the commands of docs/hub.md typed into a shell."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from tests.e2e.test_examples import Example, Shell, started, transcripts
from tests.support.service import ROOT, alive, descendants


@pytest.fixture(scope="module")
def demo() -> Iterator[Example]:
    with started("demo") as example:
        yield example


def process_of(example: Example, kind: str) -> int:
    """Return the process id of a child of the service by the words of its command line."""
    for pid in descendants(example.service.process.pid):
        with contextlib.suppress(OSError):
            if kind.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    raise AssertionError(f"no process {kind}")


def test_the_page(demo: Example) -> None:
    answer = demo.ask("GET", "/hub.html")
    assert answer.line == "200 OK"
    assert b"new EventSource(" in answer.body


def test_what_the_document_shows(demo: Example, tmp_path: pathlib.Path) -> None:
    """Each command of docs/hub.md shows the lines printed below it; the process that it kills is the hub."""
    hub = process_of(demo, "hub")
    with Shell(tmp_path, {":7999": f":{demo.port}", "=12345": f"={hub}"}) as shell:
        blocks = transcripts("docs/hub.md")
        assert len(blocks) >= 4
        for command, shown in (step for block in blocks for step in block):
            shell.type(command)
            shell.wait_for(shown)
    assert not alive(hub)


def test_what_the_page_about_mailboxes_shows(demo: Example, tmp_path: pathlib.Path) -> None:
    """Each command of docs/mailboxes.md shows the lines printed below it."""
    with Shell(tmp_path, {":7999": f":{demo.port}"}) as shell:
        blocks = transcripts("docs/mailboxes.md")
        assert len(blocks) == 2
        for command, shown in (step for block in blocks for step in block):
            shell.type(command)
            shell.wait_for(shown)


def test_what_the_page_about_watching_shows(demo: Example, tmp_path: pathlib.Path) -> None:
    """Each command of docs/watch.md shows the lines printed below it."""
    with Shell(tmp_path, {":7999": f":{demo.port}"}) as shell:
        blocks = transcripts("docs/watch.md")
        assert len(blocks) == 4
        for command, shown in (step for block in blocks for step in block):
            shell.type(command)
            shell.wait_for(shown)


def test_what_the_page_about_push_subscriptions_shows(demo: Example, tmp_path: pathlib.Path) -> None:
    """Each command of docs/push.md shows the lines printed below it."""
    with Shell(tmp_path, {":7999": f":{demo.port}"}) as shell:
        blocks = transcripts("docs/push.md")
        assert len(blocks) == 2
        for command, shown in (step for block in blocks for step in block):
            shell.type(command)
            shell.wait_for(shown)


def test_what_the_page_about_soft_topics_shows(demo: Example, tmp_path: pathlib.Path) -> None:
    """Each command of docs/soft-topics.md shows the lines printed below it."""
    with Shell(tmp_path, {":7999": f":{demo.port}"}) as shell:
        blocks = transcripts("docs/soft-topics.md")
        assert len(blocks) == 1
        for command, shown in (step for block in blocks for step in block):
            shell.type(command)
            shell.wait_for(shown)


def test_events_of_the_document_are_those_of_the_hub(demo: Example) -> None:
    """The objects in docs/hub.md have the members that the hub gives."""
    assert demo.ask("PUT", "/hub/topics/members").status in (200, 201)
    answer = demo.ask("PUT", "/hub/topics/members/keys/apple", '{"price":4}')
    assert answer.status == 201
    (event,) = json.loads(demo.ask("GET", "/hub/topics/members/events").body)["events"]
    shown = [json.loads(block) for block in blocks_of("json")]
    published = next(document for document in shown if "version_cursor" in document and "events" in document)
    assert json.loads(answer.body).keys() == published.keys()
    assert json.loads(answer.body)["events"][0].keys() == published["events"][0].keys()
    received = next(document for document in shown if document.get("type") == "event")
    assert {*event, "data"} - {"data_base64"} == {*received}


def test_settings_of_the_document_are_accepted(demo: Example) -> None:
    settings = next(block for block in blocks_of("json") if '"retention"' in block)
    answer = demo.ask("PUT", "/hub/topics/settings", settings)
    assert answer.status == 201
    assert json.loads(answer.body)["retention"] == json.loads(settings)["retention"]
    batch = next(block for block in blocks_of("json") if "data_base64" in block)
    assert demo.ask("POST", "/hub/topics/settings/events?batch=true", batch).status == 201


def test_the_programs_of_the_document(demo: Example, tmp_path: pathlib.Path) -> None:
    """What the Python programs publish arrives in their follower."""
    publish, follow = blocks_of("python")
    url = f"http://127.0.0.1:{demo.port}/hub"
    for topic in ("orders-alice", "prices"):
        demo.ask("PUT", f"/hub/topics/{topic}")
    publish = publish.replace('if_match="0"', "if_match=None")
    (tmp_path / "publish.py").write_text(f"import asyncio\n{publish}\nasyncio.run(sell({url!r}, None))\n")
    subprocess.run([sys.executable, str(tmp_path / "publish.py")], cwd=ROOT, timeout=60, check=True, env=environment())
    events = json.loads(demo.ask("GET", "/hub/topics/orders-alice/events").body)["events"]
    assert [event.get("key") for event in events] == ["4711", "4712", "4711", None]
    demo.ask("PUT", "/hub/topics/prices/keys/apple", "3")
    (tmp_path / "follow.py").write_text(f"import asyncio\n{follow}\nasyncio.run(watch({url!r}, '0'))\n")
    child = subprocess.Popen(
        [sys.executable, "-u", str(tmp_path / "follow.py")], stdout=subprocess.PIPE, cwd=ROOT, env=environment()
    )
    try:
        assert child.stdout is not None
        assert select.select([child.stdout], [], [], 60)[0]
        assert child.stdout.readline().startswith(b"apple ")
    finally:
        child.kill()
        child.communicate()


def test_the_programs_of_the_page_about_watching(demo: Example, tmp_path: pathlib.Path) -> None:
    """The Python programs print snapshot, change and progress of a range, and what a cache knows."""
    (program,) = blocks_of("python", "docs/watch.md")
    url = f"http://127.0.0.1:{demo.port}/hub"
    topic = program.partition('Watcher(url, "')[2].partition('"')[0]
    demo.ask("PUT", f"/hub/topics/{topic}", '{"progress":1}')
    demo.ask("PUT", f"/hub/topics/{topic}/keys/apple", "4")
    (tmp_path / "read.py").write_text(f"import asyncio\n{program}\nasyncio.run(read({url!r}, None))\n")
    command = [sys.executable, str(tmp_path / "read.py")]
    shown = subprocess.run(command, cwd=ROOT, timeout=60, check=True, env=environment(), capture_output=True).stdout
    assert shown.startswith(b"at version ")
    assert b"'apple': b'4'" in shown
    (tmp_path / "watch.py").write_text(f"import asyncio\n{program}\nasyncio.run(watch({url!r}, None))\n")
    command = [sys.executable, "-u", str(tmp_path / "watch.py")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment())
    try:
        assert child.stdout is not None
        for expected in (b"all values are those of ", b"as of ", b"one transaction "):
            line = b""
            while not line.startswith(expected):
                assert select.select([child.stdout], [], [], 60)[0], expected
                line = child.stdout.readline()
                if line.startswith(b"as of "):
                    demo.ask("PUT", f"/hub/topics/{topic}/keys/apple", "5")
    finally:
        child.kill()
        child.communicate()


def test_the_programs_of_the_page_about_soft_topics(demo: Example, tmp_path: pathlib.Path) -> None:
    """The Python programs read the source, and go on with the changes that the hub has."""
    (program,) = blocks_of("python", "docs/soft-topics.md")
    url = f"http://127.0.0.1:{demo.port}/hub"
    topic = "programs"
    program = program.replace('"shelf"', f'"{topic}"')
    demo.ask("PUT", f"/hub/topics/{topic}", '{"store":"none","progress":1}')
    lines = '{"progress":{"version":"42"}}\n{"append":{"key":"apple","version":"43","data":5}}\n'
    ingest(f"{url}/topics/{topic}/ingest", lines)
    (tmp_path / "read.py").write_text(f"import asyncio\n{program}\nasyncio.run(read({url!r}))\n")
    command = [sys.executable, str(tmp_path / "read.py")]
    shown = subprocess.run(command, cwd=ROOT, timeout=60, check=True, env=environment(), capture_output=True).stdout
    assert shown.startswith(b"at version ")
    assert shown.endswith(b".42 {'apple': {'n': 3}}\n")
    (tmp_path / "watch.py").write_text(f"import asyncio\n{program}\nasyncio.run(watch({url!r}))\n")
    command = [sys.executable, "-u", str(tmp_path / "watch.py")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, cwd=ROOT, env=environment())
    try:
        assert child.stdout is not None
        for expected in (b"Snapshot(", b"Progress(", b"Change("):
            line = b""
            while not line.startswith(expected):
                assert select.select([child.stdout], [], [], 60)[0], expected
                line = child.stdout.readline()
            if expected == b"Progress(":
                ingest(f"{url}/topics/{topic}/ingest", '{"progress":{"version":"43"}}\n')
    finally:
        child.kill()
        child.communicate()


def test_the_program_of_the_page_about_mailboxes(demo: Example, tmp_path: pathlib.Path) -> None:
    """The Python program prints the events of its topics."""
    (program,) = blocks_of("python", "docs/mailboxes.md")
    url = f"http://127.0.0.1:{demo.port}/hub"
    for topic in ("dishes", "stock"):
        demo.ask("PUT", f"/hub/topics/{topic}")
    demo.ask("PUT", "/hub/topics/dishes/keys/today", '"stew"')
    (tmp_path / "watch.py").write_text(f"import asyncio\n{program}\nasyncio.run(watch({url!r}, None))\n")
    child = subprocess.Popen(
        [sys.executable, "-u", str(tmp_path / "watch.py")],
        stdout=subprocess.PIPE,
        bufsize=0,
        cwd=ROOT,
        env=environment(),
    )
    try:
        assert child.stdout is not None
        # The other tests have published to the topic as well.
        line = b""
        while not line.startswith(b"dishes today "):
            assert select.select([child.stdout], [], [], 60)[0]
            line = child.stdout.readline()
            assert line.startswith(b"dishes "), line
    finally:
        child.kill()
        child.communicate()


def ingest(url: str, lines: str) -> None:
    """Give lines to a soft topic."""
    request = urllib.request.Request(url, lines.encode(), {"Content-Type": "application/x-ndjson"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def blocks_of(language: str, page: str = "docs/hub.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
