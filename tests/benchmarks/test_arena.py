import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.arena.choice import best, chosen_plans
from benchmarks.arena.jobs import AGENT, ORACLE, Job, Wanted, first_round, longest_first, unknown
from benchmarks.arena.running import Arena
from benchmarks.arena.source import Fingerprints, digest
from benchmarks.arena.store import Played, Store
from tests.benchmarks.arena_runs import figures, played

WANTED = Wanted(("calm", "storm"), ("none", ORACLE, AGENT), (1, 2), (0.8,))
PLANS = {"calm": 1, "storm": 3}
REQUESTS = {"calm": 100.0, "storm": 900.0}


class Stage:
    """Plays jobs by hand-made figures: plan 1 of the storm is best; `failing` jobs fail."""

    def __init__(self, failing: frozenset[str] = frozenset()) -> None:
        self.failing = failing
        self.jobs: list[Job] = []
        self._lock = threading.Lock()

    def __call__(self, job: Job) -> Played:
        with self._lock:
            self.jobs.append(job)
        if job.key in self.failing:
            return Played(job, None, error="ValueError: on purpose")
        per_dollar = 40.0 if job.plan == 1 else 30.0
        return Played(job, figures(success_per_dollar=per_dollar), (1.0,), None if job.plan is None else "a plan")


def arena(folder: Path, stage: Stage, heard: list[tuple[int, int]] | None = None) -> list[Played]:
    with ThreadPoolExecutor(2) as executor:
        told = [] if heard is None else heard
        one = Arena(executor, stage, Store(folder), Fingerprints(), "abc", lambda done, of, _: told.append((done, of)))
        return one.run(WANTED, REQUESTS, PLANS)


def test_everything_wanted_is_played_once(tmp_path: Path) -> None:
    stage = Stage()
    heard: list[tuple[int, int]] = []
    found = arena(tmp_path, stage, heard)
    assert len(stage.jobs) == len(set(stage.jobs)) == len(found)
    by_policy = {policy: [job for job in stage.jobs if job.policy == policy] for policy in WANTED.policies}
    # two scenarios, each two seeds and one other g on the first seed
    assert len(by_policy["none"]) == len(by_policy[AGENT]) == 2 * 3
    assert {(job.seed, job.g) for job in by_policy["none"]} == {(1, 1.0), (2, 1.0), (1, 0.8)}
    # four plans searched, then the best of each scenario on the other seed and the other g
    assert len(by_policy[ORACLE]) == 4 + 2 * 2
    assert {job.plan for job in by_policy[ORACLE] if job.scenario == "storm" and job.seed == 2} == {1}
    assert heard[-1] == (len(found), len(found))
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_interrupted_arena_goes_on_and_plays_failures_anew(tmp_path: Path) -> None:
    failing = Job("calm", "none", 2).key
    first = Stage(frozenset({failing}))
    found = arena(tmp_path, first)
    assert [one.job.key for one in found if one.error is not None] == [failing]
    lines = (tmp_path / "runs.jsonl").read_text().splitlines(keepends=True)
    gone = [json.loads(line)["job"] for line in lines[-3:]]
    (tmp_path / "runs.jsonl").write_text("".join(lines[:-3]) + lines[-3][:40])  # cut off in the middle of a line

    second = Stage()
    again = arena(tmp_path, second)
    wanted = {Job(**job).key for job in gone} | {failing}
    assert {job.key for job in second.jobs} == wanted
    assert {one.job for one in again} == {one.job for one in found}
    assert all(one.error is None for one in again)

    third = Stage()
    assert {one.job: one.score for one in arena(tmp_path, third)} == {one.job: one.score for one in again}
    assert third.jobs == []


def test_runs_of_other_code_are_not_taken(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "fleetsim").mkdir(parents=True)
    (root / "inferostat").mkdir()
    for folder in ("actuators", "analyzers", "collector", "benchmarks/arena"):
        (root / folder).mkdir(parents=True)
    (root / "benchmarks/arena/playing.py").write_text("")
    (root / "fleetsim/engine.py").write_text("a = 1\n")
    peer, agent = Job("calm", "none", 1), Job("calm", AGENT, 1)

    before = Fingerprints(root)
    assert before.of(peer) == Fingerprints(root).of(peer)
    assert before.of(peer) != before.of(Job("calm", "none", 2))

    (root / "inferostat/loop.py").write_text("b = 1\n")
    ours = Fingerprints(root)
    assert ours.of(peer) == before.of(peer)  # the peers do not depend on the agent
    assert ours.of(agent) != before.of(agent)

    (root / "fleetsim/engine.py").write_text("a = 2\n")
    assert Fingerprints(root).of(peer) != before.of(peer)


def test_digest_tells_where_a_file_ends(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("xy")
    (tmp_path / "b.py").write_text("z")
    one = digest(tmp_path, ["a.py", "b.py"])
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "b.py").write_text("yz")
    assert digest(tmp_path, ["a.py", "b.py"]) != one


def test_store_gives_back_what_it_was_given(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    one = played("calm", ORACLE, 2, 0.8, 3, recovery_s=None)
    store.append("f1", "abc", one)
    store.append("f2", "abc", Played(Job("calm", "none", 1), None, error="no"))
    assert store.read(["f1", "f2", "f3"]) == {"f1": one}
    store.clear()
    assert store.read(["f1"]) == {}


def test_longest_first_puts_the_agent_s_runs_of_long_scenarios_in_front() -> None:
    jobs = longest_first(first_round(WANTED, PLANS), REQUESTS)
    assert [job.policy for job in jobs[:3]] == [AGENT] * 3
    assert all(job.scenario == "storm" for job in jobs[:3])
    assert {job.scenario for job in jobs[-3:]} == {"calm"}
    assert jobs[-1].policy != AGENT


def test_search_can_try_some_plans_only() -> None:
    some = replace(WANTED, plan_step=2)
    assert [(job.scenario, job.plan) for job in some.searches(PLANS)] == [("calm", 0), ("storm", 0), ("storm", 2)]


def test_oracle_does_not_starve_the_pool_for_dollars() -> None:
    plans = {
        0: figures(slo_attainment=0.99, success_per_dollar=20.0),
        1: figures(slo_attainment=0.98, success_per_dollar=25.0),  # within 2 % of the best
        2: figures(slo_attainment=0.90, success_per_dollar=60.0),  # cheap, and turns one in ten away
    }
    assert best(plans) == 1
    assert best({5: figures(slo_attainment=None, success_per_dollar=None)}) == 5


def test_a_plan_is_chosen_by_the_search_alone() -> None:
    """The chosen plan is played on all seeds: a bad one must not make another plan the choice afterwards."""
    search = [
        played("s", "oracle", 1, plan=0, slo_attainment=0.9, success_per_dollar=100.0),
        played("s", "oracle", 1, plan=1, slo_attainment=0.9, success_per_dollar=90.0),
    ]
    others = [played("s", "oracle", 2, plan=0, slo_attainment=0.5, success_per_dollar=10.0)]
    others += [played("s", "oracle", 1, 1.25, plan=0, slo_attainment=0.4, success_per_dollar=5.0)]
    assert chosen_plans(search) == chosen_plans([*search, *others]) == {"s": 0}


@given(st.dictionaries(st.integers(0, 15), st.tuples(st.floats(0, 1), st.floats(0, 100)), min_size=1, max_size=16))
@settings(deadline=None, max_examples=50)
def test_oracle_s_choice_is_near_the_top_and_no_near_plan_is_cheaper(plans: dict[int, tuple[float, float]]) -> None:
    scores = {plan: figures(slo_attainment=a, success_per_dollar=d) for plan, (a, d) in plans.items()}
    attainment, dollars = plans[best(scores)]
    top = max(a for a, _ in plans.values())
    assert attainment >= top * 0.98
    assert all(d <= dollars for a, d in plans.values() if a >= top * 0.98)


@pytest.mark.parametrize(("names", "told"), [(["a"], None), (["a", "z"], "expected policies out of a, b, found z")])
def test_unknown_names_are_told_with_the_choices(names: list[str], told: str | None) -> None:
    found = unknown(names, ["a", "b"], "policies")
    assert found == told if told is None else found is not None and found.startswith(told)
