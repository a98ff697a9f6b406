"""The skipping engine against the stepwise one, and what must hold of it whatever happens."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.engine import Sequence
from fleetsim.exposition import Histogram
from fleetsim.jitter import Jitter
from fleetsim.timing import Degradation, Profile, load_profile
from fleetsim.virtual.engine import Event, SkippingEngine
from fleetsim.virtual.engine_stepwise import SteppingEngine
from fleetsim.vllm_metrics import EngineMetrics

ROOMY = replace(load_profile(), max_num_seqs=8, max_num_batched_tokens=256)
# Small enough that hypothesis meets full batches, full caches, chunked prefills and evictions.
TIGHT = replace(load_profile(), kv_tokens=640, max_num_seqs=6, max_num_batched_tokens=64, mixed_kv_factor=1.4)
SLOW = Degradation(g=1.7, g_decode=1.2)


@dataclass(frozen=True)
class Act:
    """What is done `after` seconds after the act before it."""

    after: float
    what: str  # submit, abort, degrade, heal, hang, release, flush
    prompt: int = 1
    output: int = 1
    prefix: tuple[tuple[int, int], ...] = ()
    received: bool = False
    pick: int = 0


@dataclass(frozen=True)
class Setting:
    profile: Profile
    jitter: float
    reserve: bool


@st.composite
def prefixes(draw: st.DrawFn, prompt: int) -> tuple[tuple[int, int], ...]:
    """Chunks whose key names all tokens up to their end, from a few families, within the prompt."""
    family, size = draw(st.integers(0, 2)), draw(st.sampled_from([7, 16, 50]))
    count = draw(st.integers(0, prompt // size))
    return tuple((family * 10_000 + size * 100 + i, size) for i in range(count))


@st.composite
def acts(draw: st.DrawFn) -> Act:
    # Not round, so that no act falls on the end of a step, where the last bit of a sum would decide.
    after = draw(st.sampled_from([0.0, 0.0137, 0.0731, 0.371, 2.13])) * (1 + draw(st.floats(0, 1)) / 1.7)
    what = draw(st.sampled_from(["submit"] * 8 + ["abort"] * 3 + ["degrade", "heal", "hang", "release", "flush"]))
    if what != "submit":
        return Act(after, what, pick=draw(st.integers(0, 50)))
    prompt, output = draw(st.integers(1, 300)), draw(st.integers(1, 120))
    return Act(
        after, what, prompt, output, draw(prefixes(prompt)), received=draw(st.integers(0, 5)) == 0 and output > 1
    )


scripts = st.lists(acts(), min_size=1, max_size=40)
setups = st.builds(Setting, st.sampled_from([ROOMY, TIGHT, TIGHT]), st.sampled_from([0.0, 0.1]), st.booleans())


class Played:
    """A script played on one engine."""

    def __init__(self, kind: type[SkippingEngine] | type[SteppingEngine], setup: Setting) -> None:
        self.metrics = EngineMetrics(setup.profile, "m", 0.0)
        self.engine = kind(
            setup.profile,
            metrics=self.metrics,
            jitter=Jitter(setup.jitter, seed=1, name="e") if setup.jitter else None,
            reserve_full_prompt=setup.reserve,
        )
        self.events: list[Event] = []
        self.sequences: list[Sequence] = []
        self.seen: list[tuple[float, ...]] = []

    def play(self, script: list[Act], stop_at_events: bool) -> None:
        now = 0.0
        for act in script:
            now += act.after
            while stop_at_events and self.engine.next_event <= now:
                self.events += self.engine.advance(self.engine.next_event)
            self.events += self.engine.advance(now)
            self.do(act, now)
            self.look()
        self.engine.hang(False, now)
        self.events += self.engine.advance(now)
        while self.engine.next_event < math.inf:
            self.events += self.engine.advance(self.engine.next_event)

    def look(self) -> None:
        engine = self.engine
        assert 0 <= engine.kv_usage <= 1
        if isinstance(engine, SkippingEngine):
            made = [engine.generated(s) for s in self.sequences]
            queued = engine.queued_tokens
        else:
            made = [s.generated for s in self.sequences]
            queued = sum(s.prompt_tokens for s in engine.engine.waiting)
        self.seen.append(
            (engine.waiting_count, engine.running_count, engine.kv_usage, engine.preemptions, queued, *made)
        )

    def do(self, act: Act, now: float) -> None:
        engine = self.engine
        if act.what == "submit":
            sequence = Sequence(len(self.sequences), act.prompt, act.output, now, act.prefix)
            if act.received:
                sequence.received, sequence.generated = act.prompt, 1
            self.sequences.append(sequence)
            engine.submit(sequence, now)
        elif act.what == "abort" and self.sequences:
            engine.abort(self.sequences[act.pick % len(self.sequences)], now)
        elif act.what in ("degrade", "heal"):
            engine.degrade(SLOW if act.what == "degrade" else Degradation(), now)
        elif act.what in ("hang", "release"):
            engine.hang(act.what == "hang", now)
        elif act.what == "flush":
            engine.flush()

    def refreshed(self) -> EngineMetrics:
        self.metrics.render()
        return self.metrics

    def histograms(self) -> Iterator[tuple[int, list[int], float]]:
        for family in self.refreshed()._families:
            for series in family._series:
                if isinstance(series, Histogram):
                    yield series.count, series.counts, series.sum

    def values(self) -> list[float]:
        return [
            series.value
            for family in self.refreshed()._families
            for series in family._series
            if not isinstance(series, Histogram)
        ]


def assert_equal(skipping: Played, stepping: Played) -> None:
    # Who got a first token or finished, in which order, and when.
    assert [(s.request_id, done) for _, s, done in skipping.events] == [
        (s.request_id, done) for _, s, done in stepping.events
    ]
    assert [t for t, *_ in skipping.events] == pytest.approx([t for t, *_ in stepping.events], rel=1e-9, abs=1e-12)
    assert skipping.seen == stepping.seen
    for one, other in zip(skipping.sequences, stepping.sequences, strict=True):
        assert (one.preemptions, one.generated, one.cached) == (other.preemptions, other.generated, other.cached)
        for name in ("scheduled_at", "first_token_at", "last_token_at", "finished_at"):
            assert (getattr(one, name) or 0.0) == pytest.approx(getattr(other, name) or 0.0, rel=1e-9)
    for mine, theirs in zip(skipping.histograms(), stepping.histograms(), strict=True):
        assert mine[0] == theirs[0]
        assert mine[1] == pytest.approx(theirs[1], rel=1e-9)
    assert skipping.values() == stepping.values()
    totals = [
        [played.engine.activity.busy_s, played.engine.activity.tensor_s, played.engine.activity.dram_s]
        for played in (skipping, stepping)
    ]
    assert totals[0] == pytest.approx(totals[1], rel=1e-9)


@settings(max_examples=120, deadline=None)
@given(script=scripts, setup=setups, stop_at_events=st.booleans())
def test_skipping_equals_stepping(script: list[Act], setup: Setting, stop_at_events: bool) -> None:
    skipping, stepping = Played(SkippingEngine, setup), Played(SteppingEngine, setup)
    for played in (skipping, stepping):
        played.play(script, stop_at_events)
    assert_equal(skipping, stepping)


@pytest.mark.parametrize("seed", range(12))
def test_skipping_equals_stepping_under_lasting_load(seed: int) -> None:
    # Long enough for what a short script hardly ever reaches: thousands of evictions and preemptions.
    rng = random.Random(f"lasting-{seed}")
    kinds, weights = ["submit", "abort", "degrade", "heal", "hang", "release", "flush"], [60, 12, 2, 2, 1, 6, 2]
    script = []
    for _ in range(300):
        prompt, output = rng.randint(1, 300), rng.randint(1, 120)
        family, size = rng.randint(0, 2), rng.choice([7, 16, 50])
        chunks = rng.randint(0, prompt // size)
        script.append(
            Act(
                rng.expovariate(2.0),
                rng.choices(kinds, weights)[0],
                prompt,
                output,
                tuple((family * 10_000 + size * 100 + i, size) for i in range(chunks)),
                received=rng.random() < 0.1 and output > 1,
                pick=rng.randint(0, 300),
            )
        )
    setup = Setting(TIGHT if seed % 4 else ROOMY, 0.1 if seed % 3 else 0.0, seed % 2 == 0)
    skipping, stepping = Played(SkippingEngine, setup), Played(SteppingEngine, setup)
    for played in (skipping, stepping):
        played.play(script, stop_at_events=seed % 2 == 1)
    assert_equal(skipping, stepping)
    assert sum(s.cached for s in skipping.sequences) > 0
    assert skipping.engine.preemptions > 20 or setup.profile is ROOMY


@settings(max_examples=50, deadline=None)
@given(script=scripts, setup=setups)
def test_every_request_ends_once_and_every_block_comes_back(script: list[Act], setup: Setting) -> None:
    played = Played(SkippingEngine, setup)
    played.play(script, stop_at_events=True)
    ended = [s.request_id for _, s, done in played.events if done]
    assert sorted(ended) == [s.request_id for s in played.sequences if not s.aborted or s.finished_at is not None]
    firsts = {s.request_id: t for t, s, done in played.events if not done}
    assert len(firsts) == len([e for e in played.events if not e[2]])
    times = [t for t, *_ in played.events]
    assert times == sorted(times)
    for t, s, done in played.events:
        if done:
            assert s.arrival < firsts[s.request_id] <= t
            assert s.generated == s.max_tokens
    assert not played.engine.has_work and played.engine.sequences() == []
    assert played.engine.kv_usage == 0


def drained(engine: SkippingEngine) -> list[Event]:
    events: list[Event] = []
    while engine.next_event < math.inf:
        events += engine.advance(engine.next_event)
    return events


def test_nothing_happens_before_the_next_event() -> None:
    engine = SkippingEngine(ROOMY)
    engine.submit(Sequence(0, 700, 40, 0.0), 0.0)
    while engine.next_event < math.inf:
        at = engine.next_event
        assert engine.advance(math.nextafter(at, 0)) == []
        for when, *_ in engine.advance(at):
            assert when == at


def test_answer_of_one_token_yields_its_first_token_and_its_finish() -> None:
    engine = SkippingEngine(ROOMY)
    sequence = Sequence(0, 100, 1, 0.0, payload="mine")
    engine.submit(sequence, 0.0)
    end = engine.next_event
    assert engine.advance(end) == [(end, sequence, False), (end, sequence, True)]
    assert engine.next_event == math.inf


def test_hung_engine_ends_nothing_until_it_is_let_go() -> None:
    engine = SkippingEngine(ROOMY)
    sequence = Sequence(0, 100, 3, 0.0)
    engine.submit(sequence, 0.0)
    engine.advance(engine.next_event)
    engine.advance(engine.now + 0.001)
    engine.hang(True, engine.now)
    assert engine.next_event == math.inf
    assert engine.advance(50.0) == []
    late = Sequence(1, 100, 3, 50.0)
    engine.submit(late, 50.0)
    assert (engine.running_count, engine.waiting_count, engine.generated(sequence)) == (1, 1, 1)
    engine.advance(60.0)
    engine.hang(False, 60.0)
    assert engine.next_event == 60.0  # the step that was in progress
    assert engine.advance(60.0) == []
    assert engine.generated(sequence) == 2
    finished = [s for _, s, done in drained(engine) if done]
    assert finished == [sequence, late]


def test_idle_engine_that_hangs_starts_when_let_go() -> None:
    engine = SkippingEngine(ROOMY)
    engine.hang(True, 0.0)
    engine.submit(Sequence(0, 100, 3, 0.0), 0.0)
    assert (engine.next_event, engine.waiting_count) == (math.inf, 1)
    engine.advance(5.0)
    engine.hang(False, 5.0)
    assert 5.0 < engine.next_event < 5.1


def test_degradation_applies_from_the_step_after_the_one_in_progress() -> None:
    engine = SkippingEngine(ROOMY)
    engine.submit(Sequence(0, 16, 400, 0.0), 0.0)
    engine.advance(1.0)
    made = engine.generated(engine.sequences()[0])
    engine.degrade(Degradation(g=2.0), 1.0)
    engine.advance(2.0)
    slow = engine.generated(engine.sequences()[0]) - made
    assert slow == pytest.approx(made / 2, abs=2)


def test_received_request_decodes_at_once() -> None:
    engine = SkippingEngine(ROOMY)
    handed, computed = Sequence(0, 4000, 5, 0.0, received=4000), Sequence(1, 4000, 5, 0.0)
    handed.generated = 1
    engine.submit(handed, 0.0)
    first = engine.next_event
    assert [s for _, s, _ in engine.advance(first)] == [handed]
    other = SkippingEngine(ROOMY)
    other.submit(computed, 0.0)
    assert 10 * first < drained(other)[0][0]


def test_few_stops_a_request() -> None:
    engine = SkippingEngine(replace(load_profile(), max_num_seqs=64))
    rng, now, stops = random.Random("stops"), 0.0, 0
    for i in range(400):
        now += rng.expovariate(4.6)
        while engine.next_event <= now:
            engine.advance(engine.next_event)
            stops += 1
        engine.advance(now)
        engine.submit(Sequence(i, 1155, 211, now), now)
    assert engine.running_count > 5
    assert stops < 3.2 * 400  # the step in progress at its arrival, its prefill, its finish


def test_calls_out_of_time_are_refused() -> None:
    engine = SkippingEngine(ROOMY)
    engine.advance(2.0)
    with pytest.raises(ValueError, match="does not run back"):
        engine.advance(1.0)
    with pytest.raises(ValueError, match="does not run back"):
        engine.advance(math.nan)
    with pytest.raises(ValueError, match="advance first"):
        engine.submit(Sequence(0, 10, 10, 3.0), 3.0)
    with pytest.raises(ValueError, match="change the request's lengths"):
        engine.submit(Sequence(0, 10, 1_000_000, 2.0), 2.0)
    assert not engine.has_work
