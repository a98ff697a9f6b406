from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.engine import Engine, Sequence
from fleetsim.prefix_cache import BlockPool, Prefix
from fleetsim.timing import load_profile

SMALL = replace(load_profile(), kv_tokens=1600, max_num_seqs=8, max_num_batched_tokens=512)  # 100 blocks


def serve(engine: Engine, *sequences: Sequence, now: float = 0.0) -> float:
    for sequence in sequences:
        engine.submit(sequence)
    while (result := engine.step(now)) is not None:
        now = result.end
    return now


def asking(prompt: int, prefix: Prefix, output: int = 2) -> Sequence:
    return Sequence(0, prompt, output, 0.0, prefix)


def test_second_request_reuses_the_leading_chunks_it_shares() -> None:
    engine = Engine(SMALL)
    serve(engine, asking(400, ((1, 100), (2, 100), (3, 200))))
    again = asking(400, ((1, 100), (2, 100), (4, 200)))
    serve(engine, again)
    assert again.cached == 192  # 200 shared tokens, of which twelve full blocks
    other = asking(400, ((9, 100), (2, 100)))
    serve(engine, other)
    assert other.cached == 0  # the same second chunk behind another first one is another text


def test_reuse_saves_the_time_of_computing() -> None:
    engine = Engine(SMALL)
    first, second = asking(1000, ((1, 960),)), asking(1000, ((1, 960),))
    serve(engine, first)
    end = serve(engine, second, now=100.0)
    assert second.cached == 960
    assert end - 100.0 < 0.7 * (first.finished_at or 0.0)


def test_at_least_one_token_is_computed() -> None:
    engine = Engine(SMALL)
    serve(engine, asking(320, ((1, 320),)))
    again = asking(320, ((1, 320),))
    serve(engine, again)
    assert again.cached == 304
    assert again.generated == 2


def test_chunks_are_cached_when_computed_not_when_planned() -> None:
    engine = Engine(SMALL)
    first, second = asking(400, ((1, 400),), 50), asking(400, ((1, 400),), 50)
    engine.submit(first)
    step = engine.plan(0.0)
    assert step is not None
    engine.submit(second)
    engine.commit(step)
    assert engine.plan(step.end) is not None
    assert second.cached == 399 // 16 * 16
    # In one step both compute the same; neither waits for the other, and blocks are counted twice.
    fresh = Engine(SMALL)
    one, two = asking(200, ((5, 200),), 50), asking(200, ((5, 200),), 50)
    for sequence in (one, two):
        fresh.submit(sequence)
    fresh.step(0.0)
    assert (one.cached, two.cached, fresh.free_blocks) == (0, 0, 100 - 13 - 13)


def test_used_chunks_stay_and_idle_ones_go_least_recently_used_first() -> None:
    engine = Engine(SMALL)
    for key in (1, 2, 3):
        serve(engine, asking(400, ((key, 400),)))
    assert engine.free_blocks == 100  # idle chunks count as free
    serve(engine, asking(400, ((1, 400),)))  # now 2 is the oldest
    held = asking(416, ((3, 400),), 200)
    engine.submit(held)
    engine.step(0.0)
    assert held.cached == 400
    big = asking(700, (), 200)
    engine.submit(big)
    engine.step(0.0)  # 44 blocks beside 26 in use and 50 idle: one chunk must go
    assert engine.pool.idle == 25
    for sequence in (held, big):
        engine.abort(sequence)
    kept, gone = asking(400, ((1, 400),)), asking(400, ((2, 400),))
    serve(engine, kept)
    serve(engine, gone)
    assert (kept.cached, gone.cached) == (384, 0)


def test_a_prefix_is_evicted_from_its_end() -> None:
    engine = Engine(SMALL)
    serve(engine, asking(800, ((1, 400), (2, 400))))
    serve(engine, asking(1000, ()))  # 63 blocks, and 50 of 100 are cached: one chunk of 25 goes
    again = asking(800, ((1, 400), (2, 400)))
    serve(engine, again)
    assert again.cached == 400


def test_preempted_request_finds_its_own_prefix_again() -> None:
    tight = replace(SMALL, kv_tokens=640)
    engine = Engine(tight)
    first, second = Sequence(0, 250, 150, 0.0), Sequence(1, 250, 150, 0.0, ((1, 160), (2, 80)))
    serve(engine, first, second)
    assert second.preemptions >= 1 and second.generated == 150
    assert engine.free_blocks == 40


def test_flush_forgets_all_but_what_is_in_use() -> None:
    engine = Engine(SMALL)
    serve(engine, asking(400, ((1, 400),)))
    held = asking(400, ((2, 400),), 50)
    engine.submit(held)
    engine.step(0.0)
    engine.flush()
    assert (engine.pool.idle, engine.free_blocks) == (0, 75)
    same, gone = asking(400, ((2, 400),)), asking(400, ((1, 400),))
    serve(engine, same, gone)
    assert (same.cached, gone.cached) == (384, 0)


def test_requests_without_prefix_leave_nothing_behind() -> None:
    engine = Engine(SMALL)
    serve(engine, Sequence(0, 400, 5, 0.0))
    assert (engine.pool.idle, engine.pool.free) == (0, 100)


def test_short_chunks_are_shared_by_full_blocks_only() -> None:
    engine = Engine(SMALL)
    prefix = tuple((i, 10) for i in range(8))
    serve(engine, asking(100, prefix))
    again = asking(100, prefix)
    serve(engine, again)
    assert again.cached == 80


prefixes = st.builds(
    lambda family, size, count: tuple((family * 1000 + size * 50 + i, size) for i in range(count)),
    st.integers(0, 3),
    st.sampled_from([5, 16, 40]),
    st.integers(0, 8),
)


@settings(max_examples=100, deadline=None)
@given(asked=st.lists(st.tuples(prefixes, st.integers(1, 100), st.integers(1, 30), st.booleans()), max_size=25))
def test_no_block_is_ever_lost_or_counted_twice(asked: list[tuple[Prefix, int, int, bool]]) -> None:
    engine = Engine(replace(SMALL, kv_tokens=800))
    pool, now = engine.pool, 0.0
    sequences = []
    for prefix, more, output, aborts in asked:
        sequence = Sequence(0, sum(n for _, n in prefix) + more, output, now, prefix)
        engine.submit(sequence)
        sequences.append(sequence)
        for _ in range(3):
            if (result := engine.step(now)) is not None:
                now = result.end
            own = sum(s.blocks for s in engine.running)
            in_use = {chunk.key: chunk.blocks for s in engine.running for chunk in s.held}
            assert pool.free == pool.size - own - sum(in_use.values())
            assert 0 <= pool.idle <= pool.free
            for s in engine.running:
                assert s.blocks >= 0 and (s.blocks + s.shared) * 16 >= s.computed
        if aborts:
            engine.abort(sequence)
    while (result := engine.step(now)) is not None:
        now = result.end
    assert pool.free == pool.size
    assert all(s.generated == s.max_tokens for s in sequences if not s.aborted)


def test_pool_takes_no_more_than_there_is() -> None:
    pool = BlockPool(10, 16)
    assert pool.take(7) and not pool.take(4) and pool.take(3)
    assert (pool.free, pool.usage) == (0, 1.0)


@pytest.mark.parametrize("prefix", [((1, 60), (2, 60)), ((1, 0),), ((1, 50), (2, -10))])
def test_prefix_beyond_the_prompt_or_without_tokens_is_refused(prefix: Prefix) -> None:
    with pytest.raises(ValueError, match="change the prefix"):
        Engine(SMALL).submit(asking(100, prefix))
