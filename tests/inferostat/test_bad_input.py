"""Every bad input of the table, run: an explained error, the right finding, no action, nothing lost.

The cases are those of `python -m benchmarks.bad_input`, which writes docs/results/bad-input.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from benchmarks.bad_input import gateway, journal, process, targets
from benchmarks.bad_input.__main__ import markdown
from benchmarks.bad_input.lab import Lab, laboratory
from benchmarks.bad_input.row import Row, explains

TABLE = Path(__file__).parents[2] / "docs" / "results" / "bad-input.md"
UNREADABLE = ("target-unreachable (warning)", "telemetry-outage (critical)")
INERT = ("controller-inert (warning)", "target-unreachable (warning)")
NO_JOURNAL = ("controller-inert (critical)",)
NO_EFFECT = "actuation-ineffective (warning)"

TARGETS = {
    "unreachable: refused, but it serves": ("target-unreachable (warning)",),
    "unreachable since the start: packets are dropped": UNREADABLE,
    **{case.name: UNREADABLE for case in targets.CASES},
    "restarts": ("metric-contract (info)",),
    "restarts and does not export its start time": ("metric-contract (info)",),
}
ENVOY = {
    "gone": INERT,
    "restarted, with limits in force": ("change-correlated (info)",),
    "answers 500": INERT,
    "accepts and never answers": INERT,
    "accepts and ignores": (NO_EFFECT,),
    "accepts and ignores: another EDS file": (NO_EFFECT,),
    "EDS file not readable": (NO_EFFECT,),
}
JOURNAL = {
    "disk takes no writes": NO_JOURNAL,
    "file moved away": NO_JOURNAL,
    "locked by another program": NO_JOURNAL,
    "damaged at the start": ("change-correlated (warning)",),
    "used by another agent": (),
}
PROCESS: dict[str, tuple[str, ...]] = {
    "ten mistakes in one file": (),
    "no such file": (),
    "not YAML": (),
    "the page's port is taken": (),
    "the journal cannot be created": (),
    "mistakes in a reload": (),
    "told to stop while a scrape hangs": (),
}


@pytest.mark.component
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(targets.rows, TARGETS, id="targets"),
        pytest.param(gateway.rows, ENVOY, id="envoy"),
        pytest.param(journal.rows, JOURNAL, id="journal"),
        pytest.param(process.rows, PROCESS, id="process"),
    ],
)
async def test_each_is_explained_and_nothing_is_done_or_lost(
    tmp_path: Path, rows: Callable[[Lab], AsyncIterator[Row]], expected: dict[str, tuple[str, ...]]
) -> None:
    async with laboratory(tmp_path) as lab:
        found = {row.case: row async for row in rows(lab)}
    assert {case: row.broken for case, row in found.items() if row.broken} == {}
    assert {case: row.acted for case, row in found.items() if row.acted} == {}
    assert {case: row.findings for case, row in found.items()} == expected
    committed = _verdicts(TABLE.read_text("utf-8"))
    stale = _verdicts(markdown(list(found.values()))) - committed
    assert not stale, "write it again: python -m benchmarks.bad_input --write docs/results/bad-input.md"


def _verdicts(table: str) -> set[tuple[str, str, str]]:
    """Case, findings and actions of every row of a table; an error's wording may vary with the moment."""
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {(cells[0], cells[2], cells[3]) for cells in rows}


def test_the_table_holds_every_promise() -> None:
    table = TABLE.read_text("utf-8")
    total = len(TARGETS) + len(ENVOY) + len(JOURNAL) + len(PROCESS)
    assert f"{total} of {total} rows hold every promise" in table
    assert "Broken" not in table


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("expected HTTP 200, found 401; give a token", True),
        ("cannot: expected a file, found none: make one", True),
        ("expected HTTP 200, found 401", False),
        ("found 401; give a token", False),
        ("something failed", False),
        ("", False),
    ],
)
def test_what_counts_as_an_explanation(text: str, is_one: bool) -> None:
    assert explains(text) is is_one


@pytest.mark.component
async def test_mode_advise_says_and_never_writes(tmp_path: Path) -> None:
    """A storm at the real Envoy, and an engine that goes down: in mode advise nothing reaches Envoy."""
    async with laboratory(tmp_path) as lab:
        levers, file = await lab.levers(), lab.gateway.endpoints.path.read_bytes()
        async with lab.agent(lab.document(mode="advise")) as agent:
            await agent.cycles(6)
            gateway.begin_overload(lab)
            storm = await agent.until(gateway.STORM, 12) + await agent.cycles(3)
            await lab.engines[-1].stop()
            down = await agent.until("engine-down", 10) + await agent.cycles(3)
            advised = {
                str(action.key.lever)
                for report in [*storm, *down]
                if report.decision is not None
                for action, outcome in zip(report.decision.actions, report.outcomes, strict=True)
                if outcome.status == "advised"
            }
            statuses = {outcome.status for report in [*storm, *down] for outcome in report.outcomes}
            held = agent.parts.journal.held()
        assert {"breaker", "retry_budget", "weight"} <= advised
        assert statuses == {"advised"}
        assert lab.proxy.writes == 0
        assert await lab.levers() == levers
        assert lab.gateway.endpoints.path.read_bytes() == file
        assert held == {}
