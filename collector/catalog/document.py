"""docs/signals.md, generated from the catalog: `python -m collector.catalog.document > docs/signals.md`."""

from __future__ import annotations

from collections.abc import Iterator

from collector.catalog.products import PRODUCTS, Product, ProductSignal, product
from collector.catalog.signals import signals
from collector.model import Level

_HEAD = """# Signals

Generated from `collector/catalog` by `python -m collector.catalog.document`; do not edit.

A signal is known, idle or unknown with a reason; unknown is never zero. Names are matched without Ray's
`ray_` prefix and with colons as underscores. Of several names the first present is used; they are summed only
where it says "sum of". If two names are present and differ, the first is used and a warning says so.
"""
_TITLES = {
    Level.ENDPOINT: "Endpoint: one serving replica",
    Level.DEVICE: "Device: one GPU",
    Level.ROUTE: "Route: one gateway's way into a pool",
}


def document() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_signals(), *(line for name in PRODUCTS for line in _product(product(name)))])


def _signals() -> Iterator[str]:
    for level in Level:
        yield f"## {_TITLES[level]}\n"
        yield "| signal | kind | unit | parts become | meaning |\n|---|---|---|---|---|"
        for entry in signals().values():
            signal = entry.signal
            if signal.level is level:
                row = (f"`{signal.name}`", signal.kind, signal.unit, entry.aggregate, signal.help)
                yield f"| {' | '.join(row)} |"
        yield ""


def _product(known: Product) -> Iterator[str]:
    yield f"## {known.title}\n"
    if known.releases:
        ranges = ", ".join(release.range for release in known.releases)
        yield f"Releases told apart by their families: {ranges}.\n"
    if known.sentinels:
        yield f"Numbers that mean no value: {', '.join(f'{value:.0f}' for value in known.sentinels)}.\n"
    yield "| signal | read from | only where | conversion | valid range |\n|---|---|---|---|---|"
    for signal in known.signals.values():
        row = (
            f"`{signal.name}`",
            _families(signal),
            _conditions(signal),
            _conversion(signal),
            _valid(signal),
        )
        yield f"| {' | '.join(row)} |"
    yield ""


def _families(signal: ProductSignal) -> str:
    names = [f"`{family.name}`" for family in signal.families if not family.fallback]
    fallbacks = [f"`{family.name}`" for family in signal.families if family.fallback]
    told = f"sum of {' and '.join(names)}" if signal.adds_up else ", else ".join(names)
    if fallbacks:
        told += f"; substitute {', '.join(fallbacks)}"
    notes = dict.fromkeys(f"`{family.name}` {family.note}" for family in signal.families if family.note)
    return "; ".join([told, *notes])


def _conditions(signal: ProductSignal) -> str:
    wanted = [f"{label} is {' or '.join(texts)}" for label, texts in signal.where.items()]
    unwanted = [f"{label} is not {' or '.join(texts)}" for label, texts in signal.unless.items()]
    return ", ".join([*wanted, *unwanted])


def _conversion(signal: ProductSignal) -> str:
    if signal.levels is not None:
        label, values = signal.levels
        return f"{label}: " + ", ".join(f"{text} = {number:g}" for text, number in values.items())
    if signal.product_of:
        return " x ".join(signal.product_of)
    return "" if signal.scale == 1.0 else f"x {signal.scale:g}"


def _valid(signal: ProductSignal) -> str:
    return f"{signal.low:g} to {signal.high:g}" if signal.high != float("inf") else f"from {signal.low:g}"


if __name__ == "__main__":
    print(document(), end="")
