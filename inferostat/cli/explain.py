"""`inferostat explain CODE`: what a finding means and what to do, from docs/findings.md."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from analyzers.codes import resolve
from analyzers.runbook import section
from inferostat.cli.output import fail


def explain(
    code: Annotated[str, typer.Argument(help="A finding's code (IS0203) or slug (retry-storm).")],
) -> None:
    """Meaning, evidence, false friends and runbook of a finding."""
    try:
        slug, number = resolve(code)
    except KeyError as error:
        raise fail(str(error.args[0])) from error
    text = section(slug)
    if text is None:
        raise fail(f"expected a section {slug} ({number}) in docs/findings.md, found none")
    sys.stdout.write(text.rstrip() + "\n")
