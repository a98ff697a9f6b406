"""The levers that are keys of Envoy's runtime, and the spelling of their values. Pure.

`circuit_breakers.<cluster>.default.*` are Envoy's own keys. `inferostat.<cluster>.*` are the runtime
fractions of the gateway's routes that answer 429 instead of forwarding; a fraction counts what is turned
away, the lever counts what is let in. Removing a key puts the gateway's own configuration in force again.
"""

from __future__ import annotations

from collections.abc import Mapping

from actuators.envoy_admin import RuntimeEntry
from actuators.model import Lever, LeverKey, LeverReading, LeverValue
from actuators.values import FULL_PERCENT, canonical

RUNTIME_LEVERS = frozenset({Lever.BREAKER, Lever.ADMISSION, Lever.RETRY_BUDGET})
REMOVE = ""

# Envoy's own retries may add at most this percent of the active requests, whatever clients are allowed.
OWN_RETRY_PERCENT = 20


def encode(lever: Lever, cluster: str, value: LeverValue) -> dict[str, str]:
    """Runtime keys and texts that put the value in force; None removes them."""
    whole = canonical(lever, value)
    let_in = None if whole is None else int(whole)
    shed = REMOVE if let_in is None else str(int(FULL_PERCENT) - let_in)
    if lever is Lever.BREAKER:
        return {_main_key(lever, cluster): REMOVE if let_in is None else str(let_in)}
    if lever is Lever.ADMISSION:
        return {_main_key(lever, cluster): shed}
    own = REMOVE if let_in is None else str(min(OWN_RETRY_PERCENT, let_in))
    return {
        _main_key(lever, cluster): shed,
        f"circuit_breakers.{cluster}.default.retry_budget.budget_percent": own,
    }


def in_force(entries: Mapping[str, RuntimeEntry], wanted: Mapping[str, str]) -> bool:
    """Whether every key has the text, absent ones included."""
    return all((entries[key].value if key in entries else REMOVE) == text for key, text in wanted.items())


def decode(key: LeverKey, cluster: str, entries: Mapping[str, RuntimeEntry], admin_layer: str) -> LeverReading:
    """The lever's value from the runtime. A value of another layer than the admin one has another owner."""
    name = _main_key(key.lever, cluster)
    entry = entries.get(name)
    if entry is None:
        return LeverReading(key, known=True)
    owner = None if entry.layer == admin_layer else f"runtime layer {entry.layer}"
    try:
        number = float(entry.value)
    except ValueError:
        return LeverReading(
            key,
            known=False,
            owner=owner,
            reason=f"expected a number in runtime key {name}, found {entry.value!r}: remove the key",
        )
    value = number if key.lever is Lever.BREAKER else FULL_PERCENT - number
    return LeverReading(key, known=True, value=value, owner=owner)


def _main_key(lever: Lever, cluster: str) -> str:
    if lever is Lever.BREAKER:
        return f"circuit_breakers.{cluster}.default.max_requests"
    if lever is Lever.ADMISSION:
        return f"inferostat.{cluster}.shed_percent"
    return f"inferostat.{cluster}.shed_retries_percent"
