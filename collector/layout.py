"""What a body holds, apart from how it is parsed: samples, their values, errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from collector.model import FloatArray


class Sample(NamedTuple):
    """One wanted series of a body: everything but its value. `labels` must not be changed."""

    name: str
    labels: Mapping[str, str]
    line: int  # 1-based


class ParseError(NamedTuple):
    line: int  # 1-based; 0: the body as a whole
    message: str
    name: str | None = None  # the family that is incomplete, where the line still tells

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True)
class Layout:
    """What two scrapes of one target have in common; the same object as long as only numbers change."""

    samples: tuple[Sample, ...]
    types: Mapping[str, str]  # family -> what `# TYPE` says
    errors: tuple[ParseError, ...] = ()
    error: str | None = None  # the body is no metrics body, or is cut off
    openmetrics: bool = False

    def families(self) -> dict[str, list[int]]:
        """Sample indices by metric name."""
        grouped: dict[str, list[int]] = {}
        for index, sample in enumerate(self.samples):
            grouped.setdefault(sample.name, []).append(index)
        return grouped


@dataclass(frozen=True)
class Exposition:
    """One body: `values[i]` and `timestamps[i]` (unix s, NaN without) belong to `layout.samples[i]`."""

    layout: Layout
    values: FloatArray
    timestamps: FloatArray | None = None  # None: no sample has one
