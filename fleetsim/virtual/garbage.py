"""The garbage collector, out of the way of a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# A run makes hundreds of thousands of records that live to its end. At the usual 700 new objects to a collection they
# would be walked again and again: 15 to 20 % of a run's time. Calls and attempts let go of each other by themselves.
YOUNG_OBJECTS = 100_000


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Collect once in many objects while the context lasts."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
