"""Double-entry bookkeeping of acting: what the journal says was done against what the systems were told. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from actuators.model import Lever, LeverValue, Status
from benchmarks.forwarder import Write
from inferostat.journal import ActionRecord

LIMITS = (Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET)
FULL_PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Account:
    """Actions by what is wrong with them; all empty is a clean account.

    `lost`: in the journal as done, never seen by the system. `doubled`: seen more often than done.
    `unrecorded`: seen, not in the journal as done. `open`: without an outcome.
    """

    done: int
    seen: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    unrecorded: tuple[str, ...]
    open: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.unrecorded or self.open)


def runtime_keys(cluster: str) -> dict[str, Lever]:
    """The key of Envoy's runtime that carries each limit's value."""
    return {
        f"circuit_breakers.{cluster}.default.max_requests": Lever.BREAKER,
        f"inferostat.{cluster}.shed_percent": Lever.ADMISSION,
        f"inferostat.{cluster}.shed_retries_percent": Lever.RETRY_BUDGET,
    }


def limit_value(lever: Lever, text: str) -> LeverValue:
    """A limit by the text of its runtime key; an empty text removes the key, which is "off"."""
    if not text:
        return None
    return float(text) if lever is Lever.BREAKER else FULL_PERCENT - float(text)


def limits_in_force(runtime: Mapping[str, Any], cluster: str) -> dict[Lever, LeverValue]:
    """The limits by the document of Envoy's `GET /runtime?format=json`."""
    entries = runtime["entries"]
    return {
        lever: limit_value(lever, entries[key]["final_value"] if key in entries else "")
        for key, lever in runtime_keys(cluster).items()
    }


def at_envoy(records: Iterable[ActionRecord], writes: Sequence[Write], cluster: str) -> Account:
    """The limits: writes carry no id, so each lever's values must come in the journal's order, each once."""
    keys = runtime_keys(cluster)
    ordered = sorted(records, key=lambda record: (record.action.at, record.action.id))
    lost: list[str] = []
    doubled: list[str] = []
    unrecorded: list[str] = []
    done_in_all = 0
    for key, lever in keys.items():
        mine = [record for record in ordered if record.action.key.lever is lever and _done(record)]
        done = [record.action.after for record in mine]
        seen = [limit_value(lever, write.query[key]) for write in writes if key in write.query]
        done_in_all += len(done)
        for what, i, j, k, m in SequenceMatcher(None, done, seen, autojunk=False).get_opcodes():
            if what in ("delete", "replace"):
                lost += [record.action.id for record in mine[i:j]]
            if what in ("insert", "replace"):
                for place in range(k, m):
                    again = seen[place] in (*seen[max(0, place - 1) : place], *seen[place + 1 : place + 2])
                    (doubled if again else unrecorded).append(f"{lever} {seen[place]}")
    open_ones = [record.action.id for record in ordered if _limit(record) and record.outcome is None]
    return Account(done_in_all, len(writes), tuple(lost), tuple(doubled), tuple(unrecorded), tuple(open_ones))


def at_fleet(records: Iterable[ActionRecord], calls: Iterable[Mapping[str, Any]], writes: Sequence[Write]) -> Account:
    """Scaling: the fleet's own log (`GET /admin/log`) and what was sent to it, both by request id.

    A request sent twice is doubled even where the fleet answered the second time from memory.
    """
    mine = [record for record in records if record.action.key.lever is Lever.SCALE]
    done = {record.action.id for record in mine if _done(record)}
    carried_out = Counter(str(call["request_id"]) for call in calls if _moves(call) and call["status"] == 200)
    sent = Counter(str(write.body.get("request_id")) for write in writes)
    return Account(
        done=len(done),
        seen=carried_out.total(),
        lost=tuple(sorted(done - carried_out.keys())),
        doubled=tuple(sorted(name for name, times in (carried_out | sent).items() if times > 1)),
        unrecorded=tuple(sorted(carried_out.keys() - done)),
        open=tuple(record.action.id for record in mine if record.outcome is None),
    )


def _done(record: ActionRecord) -> bool:
    return record.outcome is not None and record.outcome.status is Status.APPLIED


def _limit(record: ActionRecord) -> bool:
    return record.action.key.lever in LIMITS


def _moves(call: Mapping[str, Any]) -> bool:
    return str(call["what"]).startswith("PUT ")
