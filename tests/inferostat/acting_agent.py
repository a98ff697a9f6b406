"""An agent reduced to what must survive kill -9: settle what was left open, then journal, apply, write down.

`python -m tests.inferostat.acting_agent JOURNAL ADMIN_URL ACTIONS` moves the breaker to a new value each
time, so that every write at Envoy can be told from every other. It prints a line when it starts to act.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from actuators.envoy import EnvoyBackend
from actuators.model import Action, Lever, LeverKey
from inferostat.journal import Journal, resolve

KEY = LeverKey(Lever.BREAKER, "default", "default")
FIRST_VALUE = 1000


async def main(path: Path, admin_url: str, actions: int) -> None:
    backend = EnvoyBackend.from_options("edge", {"admin_url": admin_url, "clusters": {"default": "llm"}})
    journal = Journal.start(path, 0.0)
    for pending in journal.unfinished():
        (reading,) = await backend.read((pending.action.key,))
        outcome = resolve(pending.action, reading, 0.0)
        if outcome is not None:
            journal.finish(pending.action, outcome)
    number = len(journal.actions(1_000_000))
    print("acting", flush=True)
    for _ in range(actions):
        (reading,) = await backend.read((KEY,))
        action = Action(f"a{number}", 0.0, KEY, reading.value, float(FIRST_VALUE + number), "test")
        journal.begin(action, "edge")
        journal.finish(action, await backend.apply(action, 0.0))
        number += 1
    journal.close()
    await backend.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
