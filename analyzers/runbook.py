"""Sections of docs/findings.md (shipped beside the analyzers): what each finding means and what to do."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources


@cache
def sections() -> dict[str, str]:
    """Slug -> its section, heading included."""
    text = resources.files("analyzers").joinpath("findings.md").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^(?=## )", text)[1:]
    return {_slug(part): part for part in parts}


def section(slug: str) -> str | None:
    return sections().get(slug)


def _slug(part: str) -> str:
    heading = part.splitlines()[0].removeprefix("## ")
    words = re.findall(r"[a-z][a-z0-9-]+", heading)
    return str(words[0]) if words else ""
