"""The closed forms of a run of steps against counting it out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.engine import Sequence
from fleetsim.virtual.engine_decode import DecodeBatch
from fleetsim.virtual.engine_run import Run

runs = st.builds(Run, st.floats(0, 1e5), st.floats(1e-3, 0.2), st.floats(0, 1e-4), st.integers(1, 3000))


@settings(max_examples=200, deadline=None)
@given(run=runs, share=st.floats(0, 1))
def test_step_at_a_time_is_the_last_that_has_ended(run: Run, share: float) -> None:
    now = run.start + share * (run.end - run.start)
    steps = run.steps_by(now)
    assert run.time(steps) <= now < run.time(steps + 1)


@settings(max_examples=200, deadline=None)
@given(run=runs)
def test_run_is_cut_to_the_steps_that_start_in_its_window(run: Run) -> None:
    until = run.start // 1 + 1
    starts = [run.time(i) for i in range(run.steps)]
    run.cut_to_window()
    assert run.steps == sum(start < until for start in starts)
    assert run.end == pytest.approx(run.time(run.steps))


def batch_of(prompts: list[int]) -> tuple[DecodeBatch, list[Sequence]]:
    batch, sequences = DecodeBatch(16), []
    for i, prompt in enumerate(prompts):
        sequence = Sequence(i, prompt, 1000, 0.0, computed=prompt, generated=1)
        sequence.order, sequence.blocks = i, -(-prompt // 16)
        batch.join(sequence)
        batch.step(1)
        sequences.append(sequence)
    return batch, sequences


def blocks_after(batch: DecodeBatch, sequences: list[Sequence], steps: int) -> int:
    return sum(-(-(s.computed + batch.steps - s.joined + steps) // 16) for s in sequences)


@settings(max_examples=100, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    skip=st.integers(0, 40),
    steps=st.integers(0, 100),
    free=st.integers(0, 60),
)
def test_demand_for_blocks_is_counted_right(prompts: list[int], skip: int, steps: int, free: int) -> None:
    batch, sequences = batch_of(prompts)
    held = blocks_after(batch, sequences, skip)
    assert batch.demand() == blocks_after(batch, sequences, 1) - blocks_after(batch, sequences, 0)
    assert batch.demand_after(skip, steps) == blocks_after(batch, sequences, skip + steps) - held
    affordable = batch.affordable(skip, steps, free)
    assert batch.demand_after(skip, affordable) <= free
    assert affordable == steps or batch.demand_after(skip, affordable + 1) > free


def test_leaving_brings_a_sequence_up_to_date() -> None:
    batch, (first, second) = batch_of([30, 47])
    batch.step(10)
    batch.leave(first, in_progress=1)
    assert (first.generated, first.computed, first.blocks) == (1 + 12, 30 + 12, 3)
    assert (batch.size, batch.context) == (1, 47 + 11)
    assert batch.until_finish() == 1000 - 1 - 11
    batch.step(batch.until_finish())
    assert batch.due() == [second]
