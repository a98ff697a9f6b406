from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.engine import Engine, Sequence
from fleetsim.jitter import Jitter
from fleetsim.timing import Degradation, load_profile

# Small enough that hypothesis meets full batches, full caches and chunked prefills.
TIGHT = replace(load_profile(), kv_tokens=640, block_size=16, max_num_seqs=4, max_num_batched_tokens=64)

requests = st.tuples(st.integers(1, 300), st.integers(1, 60))
actions = st.lists(st.one_of(requests, st.sampled_from(["step", "step", "abort"])), max_size=120)


def blocks_held(engine: Engine) -> int:
    return sum(s.blocks for s in engine.running)


def drain(engine: Engine, now: float = 0.0, limit: int = 20_000) -> tuple[float, list[Sequence]]:
    finished: list[Sequence] = []
    for _ in range(limit):
        result = engine.step(now)
        if result is None:
            return now, finished
        now = result.end
        finished += result.finished
    raise AssertionError("the engine does not come to an end")


@settings(max_examples=120, deadline=None)
@given(actions=actions, pick=st.randoms(use_true_random=False))
def test_no_request_and_no_block_is_ever_lost(actions: list[object], pick: object) -> None:
    engine, now = Engine(TIGHT), 0.0
    submitted: list[Sequence] = []
    finished: list[Sequence] = []
    for action in actions:
        if isinstance(action, tuple):
            sequence = Sequence(len(submitted), action[0], action[1], now)
            engine.submit(sequence)
            submitted.append(sequence)
        elif action == "abort" and submitted:
            engine.abort(pick.choice(submitted))  # type: ignore[attr-defined]
        elif (result := engine.step(now)) is not None:
            assert result.end > now
            assert 0 < result.new_tokens <= TIGHT.max_num_batched_tokens
            now = result.end
            finished += result.finished
        held = {id(s) for s in [*engine.running, *engine.waiting, *finished]}
        assert held == {id(s) for s in submitted if not s.aborted}
        assert engine.free_blocks + blocks_held(engine) == TIGHT.num_blocks
        assert engine.free_blocks >= 0
        assert len(engine.running) <= TIGHT.max_num_seqs
        for s in engine.running:
            assert s.computed <= s.blocks * TIGHT.block_size
    _, rest = drain(engine, now)
    finished += rest
    assert {id(s) for s in finished} == {id(s) for s in submitted if not s.aborted}
    assert all(s.generated == s.max_tokens for s in finished)
    assert engine.free_blocks == TIGHT.num_blocks


def test_first_come_first_served() -> None:
    engine = Engine(TIGHT)
    sequences = [Sequence(i, 30, 5, 0.0) for i in range(12)]
    for s in sequences:
        engine.submit(s)
    drain(engine)
    firsts = [s.first_token_at for s in sequences]
    assert firsts == sorted(firsts, key=lambda t: t or 0)


def test_long_prompt_is_read_in_chunks_beside_the_decoding_ones() -> None:
    engine = Engine(TIGHT)
    short, long = Sequence(0, 10, 20, 0.0), Sequence(1, 200, 1, 0.0)
    engine.submit(short)
    engine.submit(long)
    steps = [engine.step(0.0) for _ in range(4)]
    sizes = [s.new_tokens for s in steps if s is not None]
    assert sizes == [64, 64, 64, 1 + (200 - 54 - 63 - 63)]
    assert short.generated == 4  # it was not held up by the long prompt
    assert long.generated == 1


def test_full_cache_preempts_the_last_one_which_recomputes() -> None:
    engine = Engine(TIGHT)
    first, second = Sequence(0, 300, 100, 0.0), Sequence(1, 300, 100, 0.0)
    engine.submit(first)
    engine.submit(second)
    drain(engine)
    assert first.preemptions == 0
    assert second.preemptions == engine.preemptions >= 1
    assert first.finished_at is not None
    assert second.finished_at is not None
    assert first.finished_at < second.finished_at


def test_aborted_during_a_step_gets_no_token_and_frees_its_blocks() -> None:
    engine = Engine(TIGHT)
    sequence = Sequence(0, 10, 5, 0.0)
    engine.submit(sequence)
    step = engine.plan(0.0)
    assert step is not None
    engine.abort(sequence)
    result = engine.commit(step)
    assert list(result.emitted()) == []
    assert sequence.generated == 0
    assert engine.free_blocks == TIGHT.num_blocks
    engine.abort(sequence)  # a second time changes nothing
    assert engine.plan(1.0) is None


def test_gaps_are_measured_from_the_token_before() -> None:
    engine = Engine(load_profile())
    sequence = Sequence(0, 10, 3, 0.0)
    engine.submit(sequence)
    first = engine.step(1.0)
    assert first is not None and first.first_tokens == [sequence]
    second = engine.step(first.end)
    assert second is not None
    assert second.gaps == [(sequence, second.end - first.end)]


def test_degradation_applies_from_the_next_step() -> None:
    engine = Engine(load_profile())
    engine.submit(Sequence(0, 10, 50, 0.0))
    engine.step(0.0)
    healthy = engine.step(0.0)
    engine.degradation = Degradation(g=2.0)
    slow = engine.step(0.0)
    assert healthy is not None and slow is not None
    assert slow.duration_s == pytest.approx(2 * healthy.duration_s, rel=1e-3)


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0), (600, 100)])
def test_request_that_can_never_run_is_refused(lengths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="change the request's lengths"):
        Engine(TIGHT).submit(Sequence(0, *lengths, 0.0))


def test_whole_prompt_can_be_asked_to_fit_before_a_request_is_let_in() -> None:
    # 640 tokens: the first holds 320 of them while the second, of 400, has room for its first chunk only.
    admitted = {}
    for reserve in (False, True):
        engine = Engine(TIGHT, reserve_full_prompt=reserve)
        first, second = Sequence(0, 310, 10, 0.0), Sequence(1, 400, 10, 0.0)
        engine.submit(first)
        engine.submit(second)
        for _ in range(7):
            engine.step(0.0)
        admitted[reserve] = second in engine.running
        drain(engine)
        assert first.generated == second.generated == 10
    assert admitted == {False: True, True: False}


def test_received_request_needs_blocks_but_no_prefill() -> None:
    engine = Engine(load_profile())
    sequence = Sequence(0, 4000, 5, 0.0, received=4000)
    sequence.generated = 1
    engine.submit(sequence)
    first = engine.step(0.0)
    assert first is not None
    assert (first.first_tokens, first.new_tokens) == ([sequence], 1)
    assert sequence.blocks == 251
    drain(engine)
    assert (sequence.generated, sequence.transferred, sequence.cached) == (5, 4000, 0)


def test_received_request_recomputes_what_a_preemption_took() -> None:
    engine = Engine(TIGHT)
    first, received = Sequence(0, 300, 100, 0.0), Sequence(1, 300, 100, 0.0, received=300)
    received.generated = 1
    engine.submit(first)
    engine.submit(received)
    drain(engine)
    assert received.preemptions >= 1
    assert received.generated == 100


@pytest.mark.parametrize(("received", "generated"), [(10, 0), (12, 1), (5, 20), (-1, 0)])
def test_hand_over_that_leaves_nothing_to_compute_is_refused(received: int, generated: int) -> None:
    sequence = Sequence(0, 10, 20, 0.0, received=received)
    sequence.generated = generated
    with pytest.raises(ValueError, match="hand over less"):
        Engine(TIGHT).submit(sequence)


def test_jitter_stretches_a_step_by_the_factor_of_its_second() -> None:
    jitter = Jitter(0.2, seed=3, name="e")
    for start in (0.0, 5.0, 9.0):
        even, jittery = Engine(load_profile()), Engine(load_profile(), jitter=Jitter(0.2, seed=3, name="e"))
        durations = []
        for engine in (even, jittery):
            engine.submit(Sequence(0, 10, 5, start))
            result = engine.step(start)
            assert result is not None
            durations.append(result.duration_s)
        assert durations[1] == pytest.approx(jitter.factor(start) * durations[0])
        assert durations[1] != durations[0]
