"""Copy the rules out of the package, as rule files or as PrometheusRule objects."""

from __future__ import annotations

from pathlib import Path

import yaml

FOLDER = Path(__file__).parent
RULE_FILES = ("recording.yaml", "slo.yaml", "alerts.yaml", "agent_alerts.yaml")
INHIBITION_FILE = "inhibition.yaml"
RUNBOOK = "docs/findings.md"


def export(directory: Path, as_kubernetes: bool = False, runbook: str = RUNBOOK) -> list[Path]:
    """Write the rules into `directory` (made if missing) and return the files written.

    Plain: the rule files, and the part for Alertmanager. Kubernetes: a PrometheusRule for each rule file; the
    inhibition belongs into Alertmanager's own configuration and is left out. `runbook` replaces the page that
    runbook_url points to, for whoever serves the documentation somewhere.
    """
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"expected a directory to write to, found the file {directory}; name another")
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name in RULE_FILES if as_kubernetes else (*RULE_FILES, INHIBITION_FILE):
        text = (FOLDER / name).read_text(encoding="utf-8").replace(f"{RUNBOOK}#", f"{runbook}#")
        target = directory / name
        target.write_text(_prometheus_rule(name, text) if as_kubernetes else text, encoding="utf-8")
        written.append(target)
    return written


def _prometheus_rule(name: str, text: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": f"inferostat-{Path(name).stem.replace('_', '-')}",
                "labels": {"app.kubernetes.io/name": "inferostat"},
            },
            "spec": yaml.safe_load(text),
        },
        sort_keys=False,
        allow_unicode=True,
    )
