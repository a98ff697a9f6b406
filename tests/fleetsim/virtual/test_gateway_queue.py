from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.virtual.attempt import Attempt
from fleetsim.virtual.gateway_queue import PriorityQueue
from tests.fleetsim.virtual.gateway_parts import FakeClient


def waiting(priority: int = 0) -> Attempt:
    return Attempt(FakeClient(), None, prompt_tokens=1, output_tokens=1, priority=priority)


def test_full_the_newest_of_the_lowest_priority_has_to_go() -> None:
    queue = PriorityQueue(3)
    old, new, high = waiting(0), waiting(0), waiting(2)
    assert [queue.add(a) for a in (old, new, high)] == [None, None, None]
    late, urgent = waiting(0), waiting(1)
    assert queue.add(late) is late
    assert queue.add(urgent) is new
    assert len(queue) == 3 and queue.head() is high


def test_without_places_everybody_is_turned_away() -> None:
    attempt = waiting(9)
    assert PriorityQueue(0).add(attempt) is attempt


def test_taking_from_nobody_is_an_error() -> None:
    with pytest.raises(IndexError, match="expected a request that waits"):
        PriorityQueue(1).take()


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 4), st.lists(st.tuples(st.sampled_from("aatc"), st.integers(0, 3)), max_size=50))
def test_it_equals_a_sorted_list(capacity: int, steps: list[tuple[str, int]]) -> None:
    queue, model = PriorityQueue(capacity), list[Attempt]()  # the model: by priority, then age
    for what, n in steps:
        if what == "a":
            attempt = waiting(n)
            model.append(attempt)
            model.sort(key=lambda a: -a.priority)
            expected = model.pop() if len(model) > capacity else None
            assert queue.add(attempt) is expected
        elif what == "t" and model:
            queue.take()
            del model[0]
        elif what == "c" and model:
            gone = model.pop(n % len(model))
            gone.open = False
            queue.discard()
        assert len(queue) == len(model)
        assert queue.head() is (model[0] if model else None)
