"""The published trace files, where they are."""

from pathlib import Path

import pytest

TRACES = (Path(__file__).resolve().parents[3] / ".." / "shared" / "traces").resolve()

needs_traces = [
    pytest.mark.shared,
    pytest.mark.skipif(not TRACES.is_dir(), reason="the published trace files are not beside the project"),
]
