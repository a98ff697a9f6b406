import math
from collections.abc import Iterable

import plotly.graph_objects as go

from benchmarks.arena.compare import METRICS, SERVED, Table, Verdict, conclude, losses, verdict
from benchmarks.arena.jobs import AGENT, ORACLE, Job
from benchmarks.arena.page import heat, over_time, page, per_dollar
from benchmarks.arena.report import COLUMNS, Header, cell, report
from benchmarks.arena.store import Played
from tests.benchmarks.arena_runs import figures, played

HEADER = Header("python -m benchmarks.arena", "abc123", "2026-01-02", (1, 2), "2 cores", 90.0, 4, 5400.0)
PER_DOLLAR, AFTER, RECOVERY = METRICS[1:]


def storm(ours: float, theirs: float, gs: Iterable[tuple[float, float, float]] = ()) -> list[Played]:
    """Attainments of inferostat and of a peer at g = 1 on two seeds, and at other g on the first."""
    runs = [played("storm", AGENT, seed, slo_attainment=ours) for seed in (1, 2)]
    runs += [played("storm", "hpa", seed, slo_attainment=theirs) for seed in (1, 2)]
    for g, our, their in gs:
        runs += [played("storm", AGENT, 1, g, slo_attainment=our), played("storm", "hpa", 1, g, slo_attainment=their)]
    return runs


def test_small_differences_are_none() -> None:
    assert verdict(SERVED, 0.904, 0.9) is Verdict.LEVEL
    assert verdict(SERVED, 0.906, 0.9) is Verdict.WINS
    assert verdict(SERVED, 0.89, 0.9) is Verdict.LOSES
    assert verdict(PER_DOLLAR, 98.1, 100.0) is Verdict.LEVEL
    assert verdict(PER_DOLLAR, 97.0, 100.0) is Verdict.LOSES
    assert verdict(RECOVERY, 40.0, 20.0) is Verdict.LOSES  # lower is better
    assert verdict(RECOVERY, math.inf, 20.0) is Verdict.LOSES
    assert verdict(RECOVERY, math.inf, math.inf) is Verdict.LEVEL


def test_conclusion_survives_only_if_it_is_the_same_at_every_g() -> None:
    def survives(runs: list[Played]) -> bool | None:
        found = conclude(Table(runs), "storm", "hpa", SERVED)
        assert found is not None
        return found.survives

    assert survives(storm(0.9, 0.8)) is None
    assert survives(storm(0.9, 0.8, [(0.8, 0.95, 0.9), (1.25, 0.7, 0.6)])) is True
    assert survives(storm(0.9, 0.8, [(0.8, 0.95, 0.9), (1.25, 0.6, 0.7)])) is False
    # a run at another g that failed proves nothing
    assert survives([*storm(0.9, 0.8), played("storm", AGENT, 1, 0.8, slo_attainment=0.9)]) is False


def test_dollars_are_compared_only_with_peers_that_serve_as_many() -> None:
    starving = [
        played("storm", AGENT, slo_attainment=0.9, success_per_dollar=30.0),
        played("storm", "miser", slo_attainment=0.5, success_per_dollar=90.0),
        played("storm", "frugal", slo_attainment=0.89, success_per_dollar=40.0),
    ]
    table = Table(starving)
    assert conclude(table, "storm", "miser", PER_DOLLAR) is None
    found = conclude(table, "storm", "frugal", PER_DOLLAR)
    assert found is not None and found.verdict is Verdict.LOSES


def test_losses_name_the_best_peer_and_count_the_others() -> None:
    runs = [
        played("storm", AGENT, slo_attainment=0.5, recovery_s=None),
        played("storm", "a", slo_attainment=0.8),
        played("storm", "b", slo_attainment=0.9),
        played("storm", "c", slo_attainment=0.4, recovery_s=None),
        played("storm", ORACLE, plan=0, slo_attainment=1.0),
        played("calm", AGENT),
        played("calm", "a"),
    ]
    found = {(one.scenario, one.metric): (one.peer, ahead) for one, ahead in losses(Table(runs))}
    assert found[("storm", SERVED)] == ("b", 2)  # the oracle is no peer
    assert found[("storm", RECOVERY)][1] == 2
    assert not [scenario for scenario, _ in found if scenario == "calm"]


def test_table_shows_the_chosen_plan_of_the_oracle_only() -> None:
    runs = [
        played("storm", ORACLE, plan=0, success_per_dollar=10.0),
        played("storm", ORACLE, plan=1, success_per_dollar=20.0),
        played("storm", ORACLE, seed=2, plan=1, success_per_dollar=22.0),
    ]
    table = Table(runs)
    assert table.plans == {"storm": 1}
    assert [score.success_per_dollar for score in table.scores("storm", ORACLE)] == [20.0, 22.0]


def test_report_begins_with_the_losses() -> None:
    runs = storm(0.8, 0.9, [(0.8, 0.95, 0.9)])
    text = report(Table(runs), HEADER, [Played(Job("calm", "none", 1), None, error="ValueError: on purpose")])
    assert "abc123" in text and "seeds 1, 2" in text and "1.5 minutes" in text
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[0] == "## Where inferostat loses to a peer"
    loss = next(line for line in text.splitlines() if line.startswith("| storm | served"))
    assert loss == "| storm | served within the objective | 80.0 % | hpa | 90.0 % | 10.0 %* | 1 |"
    assert "calm, none, seed 1, g 1: ValueError: on purpose" in text
    for table in text.split("\n\n"):
        widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
        assert len(widths) <= 1, table


def test_report_says_that_nothing_is_lost_or_did_not_play() -> None:
    assert "Nowhere" in report(Table(storm(0.9, 0.8)), HEADER, [])
    assert "did not play" in report(Table([played("calm", "none")]), HEADER, [])
    assert "# The arena" in report(Table([]), HEADER, [])


def test_cells_show_mean_and_range_and_what_is_missing() -> None:
    columns = {column.title: column for column in COLUMNS}
    scores = [figures(slo_attainment=a, recovery_s=r) for a, r in ((0.5, None), (0.75, 12.0))]
    assert cell(columns["served %"], scores) == "62.5 (50.0–75.0)"
    assert cell(columns["served %"], scores[:1]) == "50.0"
    assert cell(columns["recovery s"], scores) == "never in 1 of 2"
    assert cell(columns["recovery s"], scores[:1]) == "never"
    assert cell(columns["tasks %"], scores) == "-"


def test_plots_are_what_plotly_takes() -> None:
    table = Table([*storm(0.9, 0.8), played("storm", ORACLE, plan=0)])
    for figure in (heat(table), over_time(table, "storm", (300.0, 420.0), 20.0), per_dollar(table, "storm")):
        go.Figure(figure)  # refuses properties it does not know
    lines = over_time(table, "storm", None, 20.0)["data"]
    assert [line["name"] for line in lines] == [AGENT, "hpa", ORACLE]
    assert lines[0]["x"] == [10.0, 30.0, 50.0]


def test_page_needs_nothing_but_itself() -> None:
    text = page(Table(storm(0.9, 0.8)), "a <b> note", {"storm": (300.0, 420.0)}, 20.0)
    assert text.count("Plotly.newPlot(") >= 3
    assert "a &lt;b&gt; note" in text
    head = text[: text.index("<script>")]
    assert "src=" not in head and "<link" not in head
