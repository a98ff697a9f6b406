"""Backends of this project and of third parties, found through their distributions' entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actuators import registry
from actuators.dry_run import DryRunBackend
from actuators.model import ActuatorError, Backend, Lever

THIRD_PARTY = """
from actuators.model import Lever, Outcome, Status


class Acme:
    levers = frozenset({Lever.SCALE})

    def __init__(self, name):
        self.name = name

    @classmethod
    def from_options(cls, name, options):
        return cls(name)

    async def read(self, keys):
        return ()

    async def apply(self, action, now):
        return Outcome(action.id, now, Status.FAILED)

    async def close(self):
        pass


class Half:
    @classmethod
    def from_options(cls, name, options):
        return object.__new__(cls)


nothing = None
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution `acme-actuators` as an installer would lay it out."""
    (tmp_path / "acme_actuators.py").write_text(THIRD_PARTY)
    _distribution(
        tmp_path,
        "acme-actuators",
        "acme = acme_actuators:Acme\nhalf = acme_actuators:Half\nmissing = acme_actuators:Gone\n"
        "nothing = acme_actuators:nothing\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("acme_actuators", None)


def _distribution(folder: Path, name: str, points: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{points}")


def test_own_backends_are_installed() -> None:
    assert {"dry_run", "embedded", "envoy"} <= set(registry.available())
    assert isinstance(registry.build("dry_run", "dry", {}), DryRunBackend)


def test_third_party_backend_is_found_and_built(third_party: Path) -> None:
    backend = registry.build("acme", "mine", {})
    assert isinstance(backend, Backend)
    assert (backend.name, backend.levers) == ("mine", frozenset({Lever.SCALE}))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("hyperdrive", "expected one of acme, dry_run, embedded, envoy"),
        ("missing", "reinstall its package"),
        ("half", "found no name, levers, read, apply, close"),
        ("nothing", "it is no backend"),
    ],
)
def test_what_cannot_be_had_says_why(third_party: Path, kind: str, says: str) -> None:
    with pytest.raises(ActuatorError) as caught:
        registry.build(kind, "mine", {})
    assert says in str(caught.value) and "'mine'" in str(caught.value)


def test_two_packages_that_claim_one_name(third_party: Path) -> None:
    _distribution(third_party, "other-actuators", "acme = other:Acme\n")
    with pytest.raises(ActuatorError, match="uninstall one of them"):
        registry.build("acme", "mine", {})
