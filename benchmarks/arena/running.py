"""Run jobs in parallel, resuming from a store. The only part that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, as_completed

from benchmarks.arena.choice import chosen_plans
from benchmarks.arena.jobs import ORACLE, Job, Wanted, first_round, longest_first
from benchmarks.arena.source import Fingerprints
from benchmarks.arena.store import Played, Store


class Arena:
    """Plays what is wanted. `tell(done, of, played)` hears of each run; `played` is None for the ones found finished.

    `requests` and `plans`: by scenario, how many calls it makes and how many plans the oracle has.
    """

    def __init__(
        self,
        executor: Executor,
        play: Callable[[Job], Played],
        store: Store,
        fingerprints: Fingerprints,
        commit: str,
        tell: Callable[[int, int, Played | None], None],
    ) -> None:
        self._executor = executor
        self._play = play
        self._store = store
        self._fingerprints = fingerprints
        self._commit = commit
        self._tell = tell
        self._done = self._of = 0
        self.resumed = 0

    def run(self, wanted: Wanted, requests: Mapping[str, float], plans: Mapping[str, int]) -> list[Played]:
        """Every run wanted, the oracle's searches included."""
        first = first_round(wanted, plans)
        per_scenario = len(wanted.seeds) - 1 + len(wanted.g)  # the search has played its choice on the first seed
        self._of = len(first) + (len(wanted.scenarios) * per_scenario if ORACLE in wanted.policies else 0)
        played = self._play_all(longest_first(first, requests))
        if ORACLE not in wanted.policies:
            return played
        searched = {one.job for one in played}
        second = [job for job in wanted.runs(ORACLE, chosen_plans(played)) if job not in searched]
        self._of = len(first) + len(second)
        return played + self._play_all(longest_first(second, requests))

    def _play_all(self, jobs: Sequence[Job]) -> list[Played]:
        by_fingerprint = {self._fingerprints.of(job): job for job in jobs}
        found = self._store.read(by_fingerprint)
        self.resumed += len(found)
        self._done += len(found)
        self._tell(self._done, self._of, None)
        missing = [(fingerprint, job) for fingerprint, job in by_fingerprint.items() if fingerprint not in found]
        for fingerprint, one in self._results(missing):
            self._store.append(fingerprint, self._commit, one)
            found[fingerprint] = one
            self._done += 1
            self._tell(self._done, self._of, one)
        return [found[fingerprint] for fingerprint in by_fingerprint]

    def _results(self, missing: Sequence[tuple[str, Job]]) -> Iterable[tuple[str, Played]]:
        waiting = {self._executor.submit(self._play, job): fingerprint for fingerprint, job in missing}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            for future in waiting:
                future.cancel()
