"""promtool, amtool and a running Alertmanager on the rules."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import pytest
import yaml

from rules.export import FOLDER, INHIBITION_FILE, RULE_FILES, export

T = TypeVar("T")

pytestmark = pytest.mark.component


def tool(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"needs one of {', '.join(names)} (Debian packages prometheus, prometheus-alertmanager)")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules() -> None:
    files = [FOLDER / name for name in RULE_FILES]
    out = run(tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *files)
    assert out.count("SUCCESS") == len(files)


@pytest.mark.parametrize("path", sorted((FOLDER / "tests").glob("*.yaml")), ids=lambda path: path.stem)
def test_promtool_tests(path: Path) -> None:
    assert "SUCCESS" in run(tool("promtool"), "test", "rules", path)


def test_promtool_accepts_exported_rules(tmp_path: Path) -> None:
    for path in export(tmp_path / "k8s", as_kubernetes=True):
        plain = tmp_path / path.name
        plain.write_text(yaml.safe_dump(yaml.safe_load(path.read_text())["spec"]))
        run(tool("promtool"), "check", "rules", plain)


def alertmanager_config(folder: Path) -> Path:
    inhibition = yaml.safe_load((FOLDER / INHIBITION_FILE).read_text(encoding="utf-8"))
    config = folder / "alertmanager.yaml"
    config.write_text(yaml.safe_dump({"route": {"receiver": "none"}, "receivers": [{"name": "none"}], **inhibition}))
    return config


def test_amtool_accepts_the_inhibition(tmp_path: Path) -> None:
    out = run(tool("amtool"), "check-config", alertmanager_config(tmp_path))
    count = len(yaml.safe_load((FOLDER / INHIBITION_FILE).read_text())["inhibit_rules"])
    assert f"{count} inhibit rules" in out


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """Base URL of a running Alertmanager with our inhibition rules."""
    binary = tool("prometheus-alertmanager", "alertmanager")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = alertmanager_config(tmp_path)
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [
                binary,
                f"--config.file={config}",
                f"--storage.path={tmp_path / 'data'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            until(lambda: get(f"http://{address}/-/ready"), tmp_path / "log")
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(timeout=10)


def get(url: str) -> str | None:
    try:
        with urlopen(url, timeout=2) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return None


def until(condition: Callable[[], T], log: Path, seconds: float = 20) -> T:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"expected within {seconds} s, never came; log:\n{log.read_text()[-2000:]}")


def test_causes_silence_symptoms(alertmanager: str, tmp_path: Path) -> None:
    """A storm silences the queue alert of its own pool only; a dead engine silences what is said of it."""
    sent = [
        {"alertname": "LLMRetryStorm", "severity": "critical", "pool": "a"},
        {"alertname": "LLMQueueTimeHigh", "severity": "warning", "pool": "a", "job": "e", "instance": "1"},
        {"alertname": "LLMQueueTimeHigh", "severity": "warning", "pool": "b", "job": "e", "instance": "2"},
        {"alertname": "LLMQueueTimeHigh", "severity": "warning", "job": "e", "instance": "3"},
        {"alertname": "LLMTargetDown", "severity": "warning", "job": "e", "instance": "4"},
        {"alertname": "LLMDecodeStalled", "severity": "critical", "job": "e", "instance": "4"},
        {"alertname": "LLMDecodeStalled", "severity": "critical", "job": "e", "instance": "5"},
        {"alertname": "LLMGPUXid", "severity": "critical", "job": "g", "UUID": "GPU-1"},
        {"alertname": "LLMGPUXid", "severity": "warning", "job": "g", "UUID": "GPU-1"},
        {"alertname": "LLMGPUXid", "severity": "warning", "job": "g", "UUID": "GPU-2"},
    ]
    body = json.dumps([{"labels": labels} for labels in sent]).encode()
    request = Request(f"{alertmanager}/api/v2/alerts", data=body, headers={"content-type": "application/json"})
    with urlopen(request, timeout=5) as answer:
        assert answer.status == 200

    def alerts() -> list[dict[str, Any]]:
        found = json.loads(get(f"{alertmanager}/api/v2/alerts") or "[]")
        settled = len(found) == len(sent) and all(a["status"]["state"] != "unprocessed" for a in found)
        return found if settled else []

    states = {
        frozenset(alert["labels"].items()): alert["status"]["state"] for alert in until(alerts, tmp_path / "log", 30)
    }
    silenced = [labels for labels in sent if states[frozenset(labels.items())] == "suppressed"]
    assert silenced == [sent[1], sent[5], sent[8]]
