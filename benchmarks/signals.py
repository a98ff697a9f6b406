"""Signals of recorded bodies against a table made without our reader: `python -m benchmarks.signals BODY...`

One line a body: product, release, signals known and unknown, how many equal the table, what differs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.signal_table import ExpectedHistogram, expected_signals
from collector.model import Histogram
from collector.reading import Reading, SignalReading, TargetReader


@dataclass(frozen=True)
class Comparison:
    """One body. `wrong`: signals that differ from the table, are missing, or are known but not in it."""

    body: str
    reading: Reading
    known: int
    unknown: int
    equal: int
    wrong: tuple[str, ...]


def compare(path: Path) -> Comparison:
    """Read one body both ways."""
    body = path.read_bytes()
    reading = TargetReader().read(body, complete=True)
    if reading.product is None or reading.error is not None:
        return Comparison(path.name, reading, 0, 0, 0, ())
    expected = expected_signals(body, reading.product)
    known = {name: signal for name, signal in reading.signals.items() if signal.state.usable}
    wrong = tuple(_differences(known, expected))
    return Comparison(path.name, reading, len(known), len(reading.signals) - len(known), len(known) - len(wrong), wrong)


def _differences(
    known: Mapping[str, SignalReading], expected: Mapping[str, float | ExpectedHistogram]
) -> Iterator[str]:
    for name in known.keys() | expected.keys():
        if name not in known:
            yield f"{name}: expected {expected[name]}, found unknown"
        elif name not in expected:
            yield f"{name}: expected unknown, found {known[name].value}"
        elif not _equal(known[name].value, expected[name]):
            yield f"{name}: expected {expected[name]}, found {known[name].value}"


def _equal(found: float | Histogram | None, expected: float | ExpectedHistogram) -> bool:
    if isinstance(expected, ExpectedHistogram):
        if not isinstance(found, Histogram):
            return False
        bounds, counts = zip(*sorted(expected.buckets.items()), strict=True)
        return (
            _close(found.bounds.tolist(), bounds)
            and found.counts.tolist() == list(counts)
            and found.count == expected.count
            and math.isclose(found.sum, expected.sum, rel_tol=1e-12)
        )
    return isinstance(found, float) and math.isclose(found, expected, rel_tol=1e-12)


def _close(found: Sequence[float], expected: Sequence[float]) -> bool:
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(math.isclose(a, b, rel_tol=1e-12) for a, b in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.signals", description=__doc__)
    parser.add_argument("bodies", nargs="+", type=Path, metavar="BODY", help="a recorded /metrics body")
    found = [compare(path) for path in parser.parse_args(arguments).bodies]
    print(f"{'body':44} {'product':8} {'release':26} {'known':>5} {'unknown':>7} {'equal':>5}  wrong")
    for one in found:
        product, release = one.reading.product or "-", one.reading.version or "-"
        told = "; ".join(one.wrong) or one.reading.error or "-"
        print(f"{one.body:44} {product:8} {release:26} {one.known:5} {one.unknown:7} {one.equal:5}  {told}")
    known, unknown, equal = (sum(getattr(one, part) for one in found) for part in ("known", "unknown", "equal"))
    wrong = sum(len(one.wrong) for one in found)
    print(f"{len(found)} bodies: {known} signals known, {unknown} unknown, {equal} equal, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
