"""The inventory against recorded registries of other releases, and that the rules cover each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rules.export import FOLDER
from tests.dashboards import inventory, promql

SCRAPES = Path(__file__).parents[3] / "shared" / "scrapes" / "generated"
RELEASES = ("0.8.5", "0.9.2", "0.11.0", "0.15.1", "0.20.2", "0.28.0", "0.33.0")
# what a dashboard cannot do without, and the retired name that stands in for it
NEEDED = (
    "llm:requests_running",
    "llm:requests_waiting",
    "llm:kv_cache_usage:ratio",
    "llm:generation_tokens_total",
    "llm:prompt_tokens_total",
    "llm:preemptions_total",
    "llm:prefix_cache_hits_total",
    "llm:prefix_cache_queries_total",
    "llm:requests_finished_total",
    "llm:ttft_seconds_bucket",
    "llm:itl_seconds_bucket",
    "llm:e2e_seconds_bucket",
    "llm:queue_time_seconds_bucket",
)


def body(release: str) -> dict[str, str]:
    path = SCRAPES / f"vllm-{release}-registry.prom"
    if not path.is_file():
        pytest.skip(f"needs {path.name} from the folder shared beside the project")
    return inventory.typed(path.read_text(encoding="utf-8"))


@pytest.mark.shared
@pytest.mark.parametrize("release", RELEASES)
def test_every_normalised_name_has_a_source_in_every_release(release: str) -> None:
    exposed = set(body(release))
    rules = yaml.safe_load((FOLDER / "recording.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    sources = {rule["record"]: promql.metrics(rule["expr"]) for rule in rules}
    assert {name for name in NEEDED if not sources[name] & exposed} == set()


@pytest.mark.shared
def test_retired_names_were_there_and_are_gone() -> None:
    old, new = body("0.8.5"), body("0.33.0")
    for name, (kind, _) in inventory.VLLM_RETIRED.items():
        member = f"{name}_count" if kind == "histogram" else name
        assert member in old
        assert member not in new


def test_documented_metrics_are_read_from_the_table() -> None:
    names = inventory.documented()
    assert names["inferostat_actions_total"] == "counter"
    assert names["inferostat_cycle_duration_seconds_bucket"] == "counter"
    assert all(re.fullmatch(r"inferostat_\w+", name) for name in names)
