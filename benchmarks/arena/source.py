"""What code a figure was measured with: so that figures of other code are never taken for this one's."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arena.jobs import AGENT, Job

ROOT = Path(__file__).parents[2]
WORLD = ("fleetsim", "benchmarks/arena/playing.py")
MIND = ("actuators", "analyzers", "collector", "inferostat")
SUFFIXES = frozenset({".py", ".yaml", ".toml", ".json"})


@dataclass(frozen=True, slots=True)
class Revision:
    """The commit that is checked out, and whether the code differs from it. None: not a checkout."""

    commit: str | None
    dirty: bool

    def __str__(self) -> str:
        return "no commit" if self.commit is None else self.commit[:12] + (" with changes" if self.dirty else "")


def revision(root: Path = ROOT) -> Revision:
    """As git tells; results and documents do not make the code dirty."""
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", *WORLD, *MIND)
    return Revision(commit, bool(changed))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


class Fingerprints:
    """Fingerprints of jobs: the job, and the contents of all code that can change its figures.

    The agent's code is in the agent's only, so a change of the agent does not play its peers anew.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._world = digest(root, WORLD)
        self._agent = digest(root, (*WORLD, *MIND))

    def of(self, job: Job) -> str:
        code = self._agent if job.policy == AGENT else self._world
        return hashlib.sha256(f"{code} {job.key}".encode()).hexdigest()[:16]


def digest(root: Path, parts: Iterable[str]) -> str:
    """SHA-256 over names and contents of the code and data files under `parts` (folders or files)."""
    found = hashlib.sha256()
    for part in parts:
        top = root / part
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.suffix in SUFFIXES and file.is_file():
                content = file.read_bytes()
                found.update(f"{file.relative_to(root)} {len(content)}\n".encode())
                found.update(content)
    return found.hexdigest()
