"""What one body of one target says, in canonical signals.

`TargetReader(product=None, route=None).read(body, content_type)` gives a `Reading`; keep one reader per
target, it remembers the body's layout and which signals it has seen. Frames are built from `reading.rows`:

- engine target (vLLM): `rows[Level.ENDPOINT]`, one row, key `SELF_ROW` (""): the target itself;
- GPU exporter (DCGM): `rows[Level.DEVICE]`, one row a device, key = UUID (or `gpu` where there is none; a MIG
  instance is `UUID/instance`); labels `gpu`, `host`, `pod`, `namespace`, `model`, `instance` where known;
  series without device labels belong to the only device, or to a row with key "" where there are several;
- gateway (Envoy): `rows[Level.ROUTE]`, one row a cluster, key = cluster name, and `rows[Level.ENDPOINT]`, one
  row an upstream address, key = "host:port" as the gateway writes it, with the `gateway_*` signals only and
  the label `cluster`. Signals of the listener (`arrivals`, ...) go to the route given as `route=`, or to the
  only cluster; otherwise to a row of their own, keyed `listener:<prefix>`.

A level the target does not have is absent from `rows`. `columns` holds every scalar signal the product can
give at that level, seen or not, in the catalog's order, the same in every reading of the product; so do
`histograms`. Values are canonical units; counters are totals as read.

Where `error` is set the body must not be used: it is no metrics body, is cut off, or of no known product.
Within a row an unknown part makes a sum unknown (it would be too small) and is left out of a mean, maximum or
minimum, which then say so in their reason. `signals` aggregates the known rows, for people to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from collector.catalog import PRODUCTS, canonical_key, recognise, wanted_keys
from collector.catalog import product as catalog_product
from collector.compiler import compile_plan
from collector.evaluate import Evaluation, Evaluator
from collector.exposition import Exposition, ExpositionReader, Layout
from collector.model import Level
from collector.plan import CellId
from collector.rows import SELF_ROW, Rows
from collector.summary import SignalReading, document, series_of, summarise

__all__ = ["SELF_ROW", "Reading", "Rows", "SignalReading", "TargetReader", "reading_document"]


@dataclass(frozen=True)
class Reading:
    """One body. `error` is set when the body as a whole must not be used."""

    product: str | None
    version: str | None  # range of releases the families point to, such as "0.20-0.30"
    model: str | None  # model name(s) the engine serves
    rows: Mapping[Level, Rows] = field(default_factory=dict)
    parse_errors: tuple[str, ...] = ()  # "line 3: expected ..., found ..."
    warnings: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()  # signals seen before on this target and now gone
    error: str | None = None
    exposition: Exposition | None = field(default=None, repr=False)
    evaluator: Evaluator | None = field(default=None, repr=False)
    evaluation: Evaluation | None = field(default=None, repr=False)

    @cached_property
    def signals(self) -> Mapping[str, SignalReading]:
        """Every canonical signal of the product, aggregated over the target's rows."""
        if self.evaluator is None:
            return {}
        return summarise(self.evaluator.plan.product, self.rows)

    @cached_property
    def series(self) -> tuple[Mapping[str, object], ...]:
        """The parts: signal, metric, labels, value and state of each series and histogram that was read."""
        if self.evaluator is None or self.evaluation is None:
            return ()
        return series_of(self.evaluator.plan, self.evaluation)


@dataclass(frozen=True)
class _Prepared:
    """What a layout means, kept as long as the layout is the same object."""

    layout: Layout
    product: str
    version: str | None
    model: str | None
    evaluator: Evaluator
    missed: tuple[str, ...]
    parse_errors: tuple[str, ...]


class TargetReader:
    """Reads one target's bodies.

    `product` (vllm, dcgm, envoy) is what configuration says the target is; without it the body tells.
    `route` is the gateway's cluster that signals of the listener belong to.
    """

    def __init__(self, product: str | None = None, route: str | None = None) -> None:
        if product is not None:
            catalog_product(product)  # raises for a name the catalog does not have
        self._expected = product
        self._route = route
        keys = wanted_keys()
        self._reader = ExpositionReader(lambda name: canonical_key(name) in keys)
        self._prepared: _Prepared | None = None
        self._seen: set[CellId] = set()
        self._product: str | None = None

    def read(self, body: bytes, content_type: str | None = None, complete: bool = False) -> Reading:
        """One body; errors are in the reading. `complete`: the body is whole (a file), whatever its end."""
        exposition = self._reader.read(body, content_type, complete)
        layout = exposition.layout
        if layout.error is not None:
            errors = tuple(map(str, layout.errors))
            return Reading(self._product, None, None, parse_errors=errors, error=layout.error)
        prepared = self._prepared
        changed: tuple[str, ...] = ()
        if prepared is None or prepared.layout is not layout:
            found, changed = self._identify(layout)
            if found is None:
                return Reading(
                    None, None, None,
                    parse_errors=tuple(map(str, layout.errors)),
                    error=changed[0],
                )  # fmt: skip
            prepared = self._prepared = self._prepare(layout, found)
        evaluation = prepared.evaluator.run(exposition.values)
        return Reading(
            product=prepared.product,
            version=prepared.version,
            model=prepared.model,
            rows=evaluation.rows,
            parse_errors=prepared.parse_errors,
            warnings=(*changed, *prepared.evaluator.plan.warnings, *evaluation.warnings),
            missed=prepared.missed,
            exposition=exposition,
            evaluator=prepared.evaluator,
            evaluation=evaluation,
        )

    def _identify(self, layout: Layout) -> tuple[str | None, tuple[str, ...]]:
        """The product of a body and what to warn of, or None and the error."""
        keys = frozenset(canonical_key(sample.name) for sample in layout.samples)
        found = recognise(keys)
        names = ", ".join(PRODUCTS)
        if found is None:
            return None, (f"expected metrics of one of {names}, found none of their names; check the address",)
        if self._expected is not None and found != self._expected:
            return None, (f"expected metrics of {self._expected}, found those of {found}; correct the target",)
        previous, self._product = self._product, found
        if previous not in (None, found):
            self._seen.clear()
            return found, (f"the target was {previous} and is {found} now; what was known of it is forgotten",)
        return found, ()

    def _prepare(self, layout: Layout, found: str) -> _Prepared:
        known = catalog_product(found)
        plan = compile_plan(layout, known, self._route)
        present = plan.cells.keys() | plan.constants.keys()
        gone = {name for _, _, name in self._seen} - {name for _, _, name in present}
        evaluator = Evaluator(plan, frozenset(self._seen))
        self._seen |= present
        keys = frozenset(canonical_key(sample.name) for sample in layout.samples)
        label = known.model_label
        models = {s.labels[label] for s in layout.samples if s.labels.get(label)} if label is not None else set()
        return _Prepared(
            layout,
            found,
            known.release(keys),
            ", ".join(sorted(models)) or None,
            evaluator,
            tuple(name for name in known.signals if name in gone),
            tuple(map(str, layout.errors)),
        )


def reading_document(target: str, reading: Reading) -> dict[str, object]:
    """`{target, engine, version, model, error, signals, series, parse_errors, warnings}`, ready for JSON.

    `signals`: name -> `{value, state, reason, unit}`, a histogram's value is `{count, sum, buckets}`.
    """
    errors = reading.parse_errors if reading.error is None else (reading.error, *reading.parse_errors)
    return {
        "target": target,
        "engine": reading.product,
        "version": reading.version,
        "model": reading.model,
        "error": reading.error,
        "signals": {name: document(signal) for name, signal in reading.signals.items()},
        "series": list(reading.series),
        "parse_errors": list(errors),
        "warnings": list(reading.warnings),
    }
