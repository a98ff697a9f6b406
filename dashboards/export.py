"""Copy the dashboards out of the package: files for Grafana's provider or ConfigMaps for its sidecar."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from dashboards.build import FOLDER

SIDECAR_LABEL = {"grafana_dashboard": "1"}
FOLDER_ANNOTATION = {"grafana_folder": "inferostat"}


def export(directory: Path, as_kubernetes: bool = False) -> list[Path]:
    """Write every dashboard into `directory` (made if missing) and return the files written.

    Plain: the JSON as it is. Kubernetes: one ConfigMap a dashboard with the sidecar's label; the JSON inside
    is compact, since `kubectl apply` keeps a copy in an annotation of at most 256 KiB.
    """
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"expected a directory to write to, found the file {directory}; name another")
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for source in sorted(FOLDER.glob("*.json")):
        text = source.read_text(encoding="utf-8")
        target = directory / source.name
        if as_kubernetes:
            target = directory / f"dashboard-{source.stem}.yaml"
            text = _config_map(source, text)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return written


def _config_map(source: Path, text: str) -> str:
    compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"inferostat-dashboard-{source.stem}",
                "labels": {"app.kubernetes.io/name": "inferostat", **SIDECAR_LABEL},
                "annotations": dict(FOLDER_ANNOTATION),
            },
            "data": {source.name: compact},
        },
        sort_keys=False,
        allow_unicode=True,
        width=2**31,
    )
