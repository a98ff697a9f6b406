"""The committed JSON is what the code gives, and the exports carry it unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dashboards import build
from dashboards.export import export


def test_committed_json_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_check_names_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    assert build.main(["--check"]) == 1
    assert "fleet.json: differs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0


def test_export_plain(tmp_path: Path) -> None:
    written = export(tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["fleet.json"]
    assert written[0].read_bytes() == (build.FOLDER / "fleet.json").read_bytes()


def test_export_config_map_fits_kubernetes(tmp_path: Path) -> None:
    (path,) = export(tmp_path, as_kubernetes=True)
    assert path.stat().st_size < 256 * 1024
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (document["apiVersion"], document["kind"]) == ("v1", "ConfigMap")
    assert document["metadata"]["labels"]["grafana_dashboard"] == "1"
    committed = json.loads((build.FOLDER / "fleet.json").read_text(encoding="utf-8"))
    assert json.loads(document["data"]["fleet.json"]) == committed


def test_export_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(NotADirectoryError, match="expected a directory"):
        export(tmp_path / "taken")
