"""kill -9 of the whole agent while it acts: `python -m benchmarks.kill --kills 50 --seed 1`.

A real fleet behind a real Envoy goes from storm to ebb and back, so that the agent moves limits and replicas all
the time. Every write passes a forwarder that counts it, and that kills the agent when a write is on its way, when
the system has it but the agent not the answer, or at a random moment of the cycle. While the agent is dead, its
journal is compared with what is in force; after its restart, its word on what was left open with what was true.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from benchmarks.accounts import Account
from benchmarks.agent import AgentStarter, configuration
from benchmarks.forwarder import forwarding
from benchmarks.killer import Kill, Killer, Result
from benchmarks.tide import SCENARIO, Tide
from fleetsim.children import ChildError
from fleetsim.conductor import embedded
from fleetsim.file_sd import POOL
from fleetsim.scenario import load_scenario

INTERVAL_S = 0.5
ADMIN_DELAY_S = 0.1  # at most, there and back: admin interfaces are not as quick as on loopback
LEVERS = frozenset({"breaker", "admission", "retry_budget", "scale"})


async def kill_often(kills: int, seed: int, workdir: Path, told: Callable[[Kill], None] = lambda kill: None) -> Result:
    """Fleet, clients and agent in `workdir`; `told` hears of each kill once it is judged."""
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / "tide.yaml"
    path.write_text(SCENARIO)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(embedded(str(path), workdir, seed))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        forwarders = {
            "envoy": await stack.enter_async_context(
                forwarding(running.fleet["gateway"]["admin_url"], session, lambda r: r.path == "/runtime_modify")
            ),
            "fleet": await stack.enter_async_context(
                forwarding(running.fleet["admin_url"], session, lambda r: r.method == "PUT")
            ),
        }
        delays = random.Random(seed)
        for forwarder in forwarders.values():
            forwarder.delay_s = lambda: delays.uniform(0.0, ADMIN_DELAY_S)
        document = configuration(running, load_scenario(str(path)), workdir, LEVERS)
        document["interval"] = INTERVAL_S
        document["backends"]["envoy"]["admin_url"] = forwarders["envoy"].url
        document["backends"]["fleet"]["admin_url"] = forwarders["fleet"].url
        # replicas move as fast as everything else here, and on a number that is known right after a restart
        pool = document["pools"][POOL]
        pool["scaling"] |= {"up_stabilisation": 1.0, "down_stabilisation": 2.0, "inflight_per_replica": 40.0}
        pool["levers"]["scale"] |= {"cooldown": 1.0, "verify_within": 5.0, "minimum": running.fleet["engines"]}
        await stack.enter_async_context(Tide(running, session).flowing())
        killer = Killer(
            AgentStarter(document, workdir),
            workdir / "journal.sqlite",
            running,
            session,
            forwarders,
            seed,
            spread_s=2 * INTERVAL_S,
        )
        return await killer.run(kills, told)


def row(number: int, kill: Kill) -> str:
    """One line of the table."""
    settled = ", ".join(f"{name.split('-', 1)[1]} {status}" for name, status in kill.found.items()) or "nothing open"
    wrong = "" if kill.right else f"  WRONG: demanded {dict(kill.demanded)}, differing {kill.differing}"
    return f"{number:>4}  {kill.moment:<24} {kill.lived_s:>6.1f}  {settled}{wrong}"


def summary(result: Result) -> str:
    """The figures of all kills, and the two accounts."""
    statuses = Counter(str(status) for kill in result.kills for status in kill.found.values())
    inside = sum(1 for kill in result.kills if kill.demanded)
    lines = [
        f"{len(result.kills)} kills, {inside} of them with an action open; settled as {dict(statuses) or 'nothing'};"
        f" moments {dict(Counter(kill.moment for kill in result.kills))}",
        _account("Envoy", result.envoy),
        _account("fleet", result.fleet),
        f"in force at the end but not in the journal: {', '.join(result.differing) or 'nothing'}",
    ]
    return "\n".join(lines)


def _account(name: str, account: Account) -> str:
    return (
        f"{name}: {account.done} actions done by the journal, {account.seen} writes seen; lost {len(account.lost)},"
        f" doubled {len(account.doubled)}, unrecorded {len(account.unrecorded)}, open {len(account.open)}"
    )


async def _main(kills: int, seed: int, workdir: Path) -> int:
    print(f"{'kill':>4}  {'moment':<24} {'up (s)':>6}  settled after the restart as", flush=True)
    numbers = iter(range(1, kills + 1))
    result = await kill_often(kills, seed, workdir, lambda kill: print(row(next(numbers), kill), flush=True))
    print(summary(result))
    return 0 if result.right else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workdir", type=Path, help="keep logs and journal here")
    options = parser.parse_args()
    try:
        if options.workdir is not None:
            return asyncio.run(_main(options.kills, options.seed, options.workdir))
        with tempfile.TemporaryDirectory(prefix="inferostat-kill-") as folder:
            return asyncio.run(_main(options.kills, options.seed, Path(folder)))
    except ChildError as error:
        print(f"kill: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
