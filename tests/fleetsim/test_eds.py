import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fleetsim.eds import EndpointFile, port_of
from fleetsim.files import locked, replace_json


@pytest.fixture
def endpoints(tmp_path: Path) -> EndpointFile:
    file = EndpointFile(tmp_path / "eds.json", "llm")
    file.create()
    return file


def read(file: EndpointFile) -> dict[int, Any]:
    document = json.loads(file.path.read_text())
    return {port_of(item): item for item in document["resources"][0]["endpoints"][0]["lb_endpoints"]}


def operate(file: EndpointFile, port: int, **fields: object) -> None:
    """What whoever operates the gateway does to an endpoint."""
    with locked(file.path):
        document = json.loads(file.path.read_text())
        for item in document["resources"][0]["endpoints"][0]["lb_endpoints"]:
            if port_of(item) == port:
                item.update(fields)
        replace_json(file.path, document)


def test_membership_edits_keep_the_weights_and_health_of_others(endpoints: EndpointFile) -> None:
    endpoints.add(1)
    endpoints.add(2)
    operate(endpoints, 1, load_balancing_weight=7, health_status="UNHEALTHY")
    endpoints.add(3)
    endpoints.add(1)
    endpoints.remove(2)
    found = read(endpoints)
    assert set(found) == {1, 3}
    assert (found[1]["load_balancing_weight"], found[1]["health_status"]) == (7, "UNHEALTHY")


def test_end_of_a_drain_restores_only_what_the_drain_set(endpoints: EndpointFile) -> None:
    endpoints.add(1)
    endpoints.set_draining(1, True)
    assert read(endpoints)[1]["health_status"] == "DRAINING"
    endpoints.set_draining(1, False)
    assert read(endpoints)[1]["health_status"] == "HEALTHY"
    operate(endpoints, 1, health_status="UNHEALTHY")
    endpoints.set_draining(1, False)
    assert read(endpoints)[1]["health_status"] == "UNHEALTHY"


def test_writers_do_not_overwrite_each_other(endpoints: EndpointFile) -> None:
    def add(first: int) -> None:
        for port in range(first, first + 20):
            endpoints.add(port)

    threads = [threading.Thread(target=add, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(endpoints)) == 60
    leftovers = {p.name for p in endpoints.path.parent.iterdir()}
    assert leftovers == {"eds.json", "eds.json.lock"}
