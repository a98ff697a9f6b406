"""Where the command line keeps the embedded fleet's files."""

from __future__ import annotations

import os
from pathlib import Path


def embedded_dir() -> Path:
    """The embedded fleet's folder: journal, token, Envoy's files. Only its owner may look into it."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    path = Path(base) / "inferostat"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
