"""What is to be played: one run a job, and the order that keeps all cores busy to the end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

AGENT = "inferostat"
ORACLE = "oracle"

# One of each kind of incident: nothing; more load than there is room for; a storm that outlives its trigger; a fault
# that hides among healthy replicas; capacity gone; blindness; waste; agents. All are over well before 900 s.
QUICK = (
    "steady-state",
    "spike-x3",
    "degraded-gpu-80",
    "noisy-neighbour",
    "crash-30",
    "telemetry-outage-at-peak",
    "idle-and-back",
    "agentic-fan-out",
)
QUICK_DURATION_S = 900.0

AGENT_COST = 8.0  # a run of the agent, in runs of a peer: it scrapes, analyses and decides every two seconds


@dataclass(frozen=True, slots=True)
class Job:
    """One run. `g` scales the engines' time; `plan` is the oracle's, by its place among the scenario's plans."""

    scenario: str
    policy: str
    seed: int
    g: float = 1.0
    plan: int | None = None
    duration_s: float | None = None  # None: the scenario's

    @property
    def key(self) -> str:
        parts = [self.scenario, self.policy, f"seed {self.seed}", f"g {self.g:g}"]
        parts += [f"plan {self.plan}"] if self.plan is not None else []
        parts += [f"{self.duration_s:g} s"] if self.duration_s is not None else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An arena. `g` besides 1 is played on the first seed only; of the oracle's plans each `plan_step`-th is tried."""

    scenarios: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    g: tuple[float, ...] = ()
    duration_s: float | None = None
    plan_step: int = 1

    def runs(self, policy: str, plans: Mapping[str, int] | None = None) -> Iterator[Job]:
        """All runs of one policy; the oracle's with the plan chosen for each scenario, where there is one."""
        for scenario in self.scenarios:
            plan = None if plans is None else plans.get(scenario)
            if plans is not None and plan is None:
                continue
            for seed in self.seeds:
                yield Job(scenario, policy, seed, 1.0, plan, self.duration_s)
            for g in self.g:
                yield Job(scenario, policy, self.seeds[0], g, plan, self.duration_s)

    def searches(self, plans: Mapping[str, int]) -> Iterator[Job]:
        """Each plan of the oracle's that is tried, once; `plans` counts them by scenario."""
        for scenario in self.scenarios:
            for plan in range(0, plans[scenario], self.plan_step):
                yield Job(scenario, ORACLE, self.seeds[0], 1.0, plan, self.duration_s)


def first_round(wanted: Wanted, plans: Mapping[str, int]) -> list[Job]:
    """Everything but what depends on the oracle's choice of plan."""
    jobs = [job for policy in wanted.policies if policy != ORACLE for job in wanted.runs(policy)]
    return jobs + (list(wanted.searches(plans)) if ORACLE in wanted.policies else [])


def longest_first(jobs: Iterable[Job], requests: Mapping[str, float]) -> list[Job]:
    """By what a run is expected to take, so that the last runs are short and the cores finish together.

    `requests`: how many calls a scenario is expected to make, up to a factor.
    """

    def expected(job: Job) -> float:
        return requests[job.scenario] * (AGENT_COST if job.policy == AGENT else 1.0)

    return sorted(jobs, key=expected, reverse=True)


def unknown(names: Sequence[str], known: Sequence[str], what: str) -> str | None:
    """What to say if some names are not known; None if all are."""
    wrong = [name for name in names if name not in known]
    return f"expected {what} out of {', '.join(known)}, found {', '.join(wrong)}: correct the list" if wrong else None
