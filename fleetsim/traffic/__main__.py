"""Figures of a trace file or of a generated family: `python -m fleetsim.traffic FILE|FAMILY [-o json]`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from fleetsim.traffic.families import FAMILIES
from fleetsim.traffic.figures import measure
from fleetsim.traffic.generate import from_family
from fleetsim.traffic.reader import open_profile, open_trace, recognise
from fleetsim.traffic.rows import TraceError

SCHEMA_VERSION = 1


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with the fault on stderr."""
    parser = argparse.ArgumentParser(prog="python -m fleetsim.traffic", description=__doc__)
    parser.add_argument("source", help=f"a trace file, or one of {', '.join(FAMILIES)}")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--duration", type=float, default=3600.0, help="seconds to generate (default 3600)")
    parser.add_argument("--seed", type=int, default=1, help="of a family (default 1)")
    chosen = parser.parse_args(arguments)
    try:
        figures = _figures(chosen.source, chosen.duration, chosen.seed)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    document = {"schema_version": SCHEMA_VERSION, "source": chosen.source, **figures}
    print(json.dumps(document, indent=2) if chosen.output == "json" else _table(document))
    return 0


def _figures(source: str, duration_s: float, seed: int) -> dict[str, Any]:
    if source in FAMILIES:
        return {"kind": "family", "seed": seed, **asdict(measure(from_family(FAMILIES[source], duration_s, seed)))}
    try:
        kind = recognise(source)
    except TraceError as error:
        if error.line is None:
            raise ValueError(f"{error}, or a family: {', '.join(FAMILIES)}") from error
        raise
    if kind == "servegen":
        return {"kind": kind, **open_profile(source).summary()}
    return {"kind": kind, **asdict(measure(open_trace(source)))}


def _table(document: dict[str, Any]) -> str:
    rows: list[tuple[str, str]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{part}", _cell(inner)) for part, inner in value.items()]
        else:
            rows.append((name, _cell(value)))
    return "\n".join(f"{name:<20} {value}" for name, value in rows)


def _cell(value: Any) -> str:
    if value is None:
        return "unknown"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
