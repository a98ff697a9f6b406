"""How findings are shown in a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from analyzers.model import Finding
from inferostat.cli.output import table


def findings_table(findings: Sequence[Finding]) -> Table:
    shown = table("Findings", "code", "finding", "scope", "severity", "sure", "what")
    for finding in findings:
        shown.add_row(
            finding.code,
            finding.slug,
            str(finding.scope),
            finding.severity.name.lower(),
            f"{finding.confidence:.0%}",
            finding.summary,
        )
    return shown
