"""Write the dashboards' JSON, or check that what is committed is what the code gives.

`python -m dashboards.build` writes; `--check` exits with 1 and names the files that differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards import fleet

FOLDER = Path(__file__).parent


def render() -> dict[str, str]:
    """File name -> text of every dashboard."""
    return {"fleet.json": json.dumps(fleet.build(), indent=2, ensure_ascii=False) + "\n"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dashboards.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    check = parser.parse_args(arguments).check
    outdated = [
        name
        for name, text in render().items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    if not check:
        for name in outdated:
            (FOLDER / name).write_text(render()[name], encoding="utf-8")
    for name in outdated:
        state = "differs from the code; run python -m dashboards.build" if check else "written"
        print(f"dashboards/{name}: {state}", file=sys.stderr)
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
