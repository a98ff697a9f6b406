"""Finished runs in a file, one JSON line each, so that an interrupted arena goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.arena.jobs import Job
from fleetsim.score import Score


@dataclass(frozen=True, slots=True)
class Played:
    """A run that is over. Without a score it failed, and `error` says how.

    `curve`: goodput ratio of the calls that arrived in each `CURVE_STEP_S` seconds; None where none did.
    """

    job: Job
    score: Score | None
    curve: tuple[float | None, ...] = ()
    plan: str | None = None  # the oracle's, in words
    error: str | None = None
    wall_s: float = 0.0


class Store:
    """The runs of a folder that were played with today's code."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "runs.jsonl"

    def read(self, fingerprints: Iterable[str]) -> dict[str, Played]:
        """Runs that succeeded, by fingerprint, out of those asked for. A line cut off by an interruption is none."""
        asked, found = frozenset(fingerprints), dict[str, Played]()
        if not self.path.exists():
            return found
        with self.path.open() as lines:
            for line in lines:
                try:
                    document = json.loads(line)
                except ValueError:
                    continue
                if document["fingerprint"] in asked and document["error"] is None:
                    found[document["fingerprint"]] = _played(document)
        return found

    def append(self, fingerprint: str, commit: str, played: Played) -> None:
        document = {"fingerprint": fingerprint, "commit": commit, **asdict(played)}
        with self.path.open("a") as file:
            if file.tell() and not self._ends_with_newline():
                file.write("\n")
            file.write(json.dumps(document) + "\n")

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) == b"\n"


def _played(document: dict[str, Any]) -> Played:
    return Played(
        job=Job(**document["job"]),
        score=Score(**document["score"]),
        curve=tuple(document["curve"]),
        plan=document["plan"],
        wall_s=document["wall_s"],
    )
