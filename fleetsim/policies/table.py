"""The table of docs/policies.md, from the registry: `python -m fleetsim.policies.table docs/policies.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from fleetsim.policies.registry import POLICIES

BEGIN, END = "<!-- policies: begin -->", "<!-- policies: end -->"


def table() -> str:
    lines = [
        "| policy | decides by | defaults | missing data | simplified | after |",
        "|---|---|---|---|---|---|",
    ]
    for info in POLICIES.values():
        defaults = "; ".join(f"{key} {value}" for key, value in info.defaults.items())
        cells = (
            f"`{info.name}`: {info.title}",
            info.decides_by,
            defaults,
            info.missing,
            info.simplified,
            info.citation,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def refreshed(page: str) -> str:
    """The page with its table replaced; ValueError where it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected {BEGIN} and {END} in the page, found no such pair: put them where the table goes")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(refreshed(page.read_text()))
