"""The EDS file as a place where several writers meet."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators import eds
from actuators.eds import EdsFile, EndpointState, Health
from actuators.model import ActuatorError
from fleetsim.eds import EndpointFile

EDITS = 200
MEMBERS = 50

WEIGHTS_PROGRAM = f"""
import sys
from pathlib import Path
from actuators import eds
path = Path(sys.argv[1])
for number in range({EDITS}):
    with eds.locked(path, 30.0):
        file = eds.read(path)
        state = file.state("llm", "127.0.0.1:1000")
        file.put("llm", "127.0.0.1:1000", eds.EndpointState(state.weight + 1, state.health))
        eds.replace(path, file.document)
"""

MEMBERS_PROGRAM = f"""
import sys
from pathlib import Path
from fleetsim.eds import EndpointFile
file = EndpointFile(Path(sys.argv[1]), "llm")
for number in range({MEMBERS}):
    file.add(2000 + number)
"""


def _file(path: Path) -> EndpointFile:
    file = EndpointFile(path, "llm")
    file.create()
    file.add(1000)
    with eds.locked(path, 1.0):
        document = eds.read(path)
        document.put("llm", "127.0.0.1:1000", EndpointState(1, Health.HEALTHY))
        eds.replace(path, document.document)
    return file


def test_three_writers_lose_nothing(tmp_path: Path) -> None:
    """Two processes that move one weight 200 times each, and the fleet's own code adding 50 endpoints."""
    path = tmp_path / "eds.json"
    _file(path)
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(path)])
        for program in (WEIGHTS_PROGRAM, WEIGHTS_PROGRAM, MEMBERS_PROGRAM)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    states = eds.read(path).states("llm")
    assert states["127.0.0.1:1000"].weight == 1 + 2 * EDITS
    assert len(states) == 1 + MEMBERS
    assert sorted(item.name for item in tmp_path.iterdir()) == ["eds.json", "eds.json.lock"]


def test_lock_held_for_too_long_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "eds.json"
    with (
        eds.locked(path, 1.0),
        pytest.raises(ActuatorError, match="stuck writer"),
        eds.locked(path, 0.02),
    ):
        pass


def test_mode_bits_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "eds.json"
    path.write_text('{"resources": []}')
    path.chmod(0o640)
    eds.replace(path, {"resources": [], "version_info": "2"})
    assert path.stat().st_mode & 0o777 == 0o640
    assert json.loads(path.read_text())["version_info"] == "2"


def test_replace_without_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ActuatorError, match="expected to replace the file"):
        eds.replace(tmp_path / "eds.json", {})
    assert list(tmp_path.iterdir()) == []


def test_ipv6_is_named_as_in_envoys_metrics() -> None:
    assert eds.socket_name({"address": "fd00::1", "port_value": 8000}) == "[fd00::1]:8000"


def test_endpoint_without_weight_or_health_has_envoys_defaults() -> None:
    file = EdsFile(Path("eds.json"), _document([(9000, {})]))
    assert file.state("llm", "127.0.0.1:9000") == EndpointState(1, Health.UNKNOWN)


def _document(endpoints: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    entries = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}, **more}
        for port, more in endpoints
    ]
    other = {"cluster_name": "other", "endpoints": [{"lb_endpoints": copy.deepcopy(entries)}]}
    return {
        "version_info": "7",
        "resources": [other, {"cluster_name": "llm", "endpoints": [{"lb_endpoints": entries}]}],
    }


@given(
    ports=st.lists(st.integers(1, 65535), min_size=1, max_size=6, unique=True),
    foreign=st.dictionaries(st.sampled_from(["metadata", "priority_hint", "x"]), st.integers(), max_size=3),
    weight=st.integers(1, 100),
    health=st.sampled_from(Health),
)
def test_put_changes_weight_and_health_of_one_endpoint_only(
    ports: list[int], foreign: dict[str, int], weight: int, health: Health
) -> None:
    document = _document([(port, dict(foreign)) for port in ports])
    expected = copy.deepcopy(document)
    entry = expected["resources"][1]["endpoints"][0]["lb_endpoints"][-1]
    entry |= {"load_balancing_weight": weight, "health_status": health.value}
    file = EdsFile(Path("eds.json"), document)
    file.put("llm", f"127.0.0.1:{ports[-1]}", EndpointState(weight, health))
    assert file.document == expected
