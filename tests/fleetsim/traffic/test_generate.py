from collections import Counter
from dataclasses import replace
from itertools import islice
from statistics import median
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.traffic.arrival import Arrival
from fleetsim.traffic.burst import Burst, Level
from fleetsim.traffic.document import SEEDS, compared, samples
from fleetsim.traffic.families import AZURE_CODE, AZURE_CONV, FAMILIES, MOONCAKE_CONVERSATION, MOONCAKE_SPREAD
from fleetsim.traffic.figures import measure
from fleetsim.traffic.generate import family, from_family, generate
from fleetsim.traffic.lengths import QuantileLengths, UniformLengths
from fleetsim.traffic.rate import Rate, constant, ramp, spike, steps
from fleetsim.workload import Workload

UNIFORM = UniformLengths(Workload())

# How far the median of some generated runs may be from the published figure (relative). The fullest minute of an hour
# is an extreme, of which the trace has one sample: there it must lie among the runs.
TOLERANCE = {
    "mean rate (1/s)": 0.1,
    "index of dispersion at 1 s": 0.15,
    "prompt mean (tokens)": 0.02,
    "prompt p50 (tokens)": 0.03,
    "prompt p99 (tokens)": 0.03,
    "output mean (tokens)": 0.05,
    "output p50 (tokens)": 0.03,
    "output p99 (tokens)": 0.05,
    "block reuse": 0.03,
}


@pytest.mark.parametrize("name", FAMILIES)
def test_generated_runs_have_the_published_figures(name: str) -> None:
    chosen = FAMILIES[name]
    for figure, published, runs in compared(chosen, samples(chosen, SEEDS[:14])):
        if figure == "peak minute (1/s)":
            assert min(runs) < published < max(runs)
            continue
        assert median(runs) == pytest.approx(published, rel=TOLERANCE[figure]), figure


@pytest.mark.parametrize("chosen", [AZURE_CODE, AZURE_CONV, MOONCAKE_CONVERSATION, MOONCAKE_SPREAD])
def test_long_runs_meet_the_closed_form_of_the_dispersion(chosen: object) -> None:
    assert isinstance(chosen, type(AZURE_CODE))
    rate = chosen.published.mean_rate
    stream = generate(constant(rate), chosen.burst, UNIFORM, None, 150_000 / rate, 1)
    assert measure(stream).dispersion_1s == pytest.approx(chosen.burst.dispersion(rate), rel=0.1)


def test_the_closed_form_is_that_of_one_level() -> None:
    """Two independent limits: much shorter than the hold the counts are Poisson given the level; much longer, the
    excess is that of a telegraph signal, 2 * rate * cv2 * hold.
    """
    burst = Burst((Level(0.5, 10.0),))
    assert burst.dispersion(4.0, 0.01) == pytest.approx(1 + 4.0 * 0.5 * 0.01, rel=1e-4)
    assert burst.dispersion(4.0, 1e7) == pytest.approx(1 + 2 * 4.0 * 0.5 * 10, rel=1e-4)
    assert Burst().dispersion(4.0) == 1.0


@pytest.mark.parametrize("rate", [2.57, 150.0])
def test_the_dispersion_can_be_held_at_another_rate(rate: float) -> None:
    held = AZURE_CODE.burst.held_to(13.2, rate)
    assert held.dispersion(rate) == pytest.approx(13.2)
    stream = from_family(AZURE_CODE, 150_000 / rate, 1, constant(rate), dispersion_1s=13.2)
    assert measure(stream).dispersion_1s == pytest.approx(13.2, rel=0.15)


def test_what_cannot_be_held_is_refused() -> None:
    with pytest.raises(ValueError, match="expected levels and a finite index of at least 7"):
        MOONCAKE_CONVERSATION.burst.held_to(2.0, 3.0)
    with pytest.raises(ValueError, match="expected levels"):
        Burst().held_to(2.0, 3.0)
    for index in (float("nan"), float("inf"), 0.5):
        with pytest.raises(ValueError, match="a finite index of at least 1"):
            AZURE_CODE.burst.held_to(index, 3.0)


@pytest.mark.parametrize(("cv2", "hold_s"), [(-1, 1), (1, 0), (float("nan"), 1), (1, float("inf"))])
def test_impossible_levels_are_refused(cv2: float, hold_s: float) -> None:
    with pytest.raises(ValueError, match="expected cv2"):
        Level(cv2, hold_s)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_is_a_stream(name: str) -> None:
    chosen = family(name)
    first = list(from_family(chosen, 600, 7))
    assert first == list(from_family(chosen, 600, 7))
    assert first != list(from_family(chosen, 600, 8))
    assert all(type(a.t) is float and type(a.prompt_tokens) is int and type(a.output_tokens) is int for a in first)


def test_who_arrives_when_does_not_depend_on_lengths_or_reuse() -> None:
    times = [a.t for a in from_family(MOONCAKE_SPREAD, 600, 3)]
    other = replace(MOONCAKE_SPREAD, lengths=UNIFORM, reuse=None)
    assert [a.t for a in from_family(other, 600, 3)] == times
    lengths = [(a.prompt_tokens, a.output_tokens) for a in from_family(MOONCAKE_SPREAD, 600, 3)]
    poisson = replace(MOONCAKE_SPREAD, burst=Burst())
    again = [(a.prompt_tokens, a.output_tokens) for a in from_family(poisson, 600, 3)]
    assert all(a == b for a, b in zip(lengths, again, strict=False))


@given(
    seed=st.integers(0, 10**9),
    short=st.floats(0.5, 300),
    longer=st.floats(1, 4),
    rate=st.sampled_from([constant(2), constant(40), steps([(50, 9), (60, 0), (70, 30)]), ramp((0, 0), (200, 20))]),
    name=st.sampled_from(sorted(FAMILIES)),
)
@settings(deadline=None, max_examples=15)
def test_a_longer_run_only_adds_at_the_end(seed: int, short: float, longer: float, rate: Rate, name: str) -> None:
    chosen = FAMILIES[name]
    run = list(from_family(chosen, short, seed, rate))
    whole = list(from_family(chosen, short * longer, seed, rate))
    assert whole[: len(run)] == run
    times = [a.t for a in whole]
    assert times == sorted(times)
    assert all(0 <= t < short * longer for t in times)
    assert all(a.prompt_tokens >= 1 and a.output_tokens >= 1 for a in whole)
    if chosen.reuse is not None:
        assert all(sum(n for _, n in a.prefix) == a.prompt_tokens and min(n for _, n in a.prefix) > 0 for a in whole)


def test_rates_are_followed() -> None:
    offered = spike(steps([(0, 20), (100, 0), (200, 40)]), 250, 300)
    counts = Counter(int(a.t // 50) for a in generate(offered, Burst(), UNIFORM, None, 350, 1))
    expected = {0: 1000, 1: 1000, 4: 2000, 5: 6000, 6: 2000}
    assert set(counts) == set(expected)
    for part, count in expected.items():
        assert counts[part] == pytest.approx(count, abs=4 * count**0.5)


def test_zero_rate_is_no_traffic() -> None:
    assert list(generate(constant(0), AZURE_CODE.burst, UNIFORM, None, 3600, 1)) == []
    assert list(generate(steps([(0, 0), (10, 0)]), Burst(), UNIFORM, None, 3600, 1)) == []


@pytest.mark.parametrize("duration", [0.0, -1.0, float("inf"), float("nan")])
def test_a_run_has_an_end(duration: float) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        from_family(AZURE_CODE, duration, 1)


def test_unknown_families_are_named() -> None:
    with pytest.raises(ValueError, match="found 'burstgpt': use one of azure-code, azure-conv"):
        family("burstgpt")


def test_tenants_are_independent_and_share_no_prefix() -> None:
    a = list(from_family(MOONCAKE_SPREAD, 600, 1, tenant="a"))
    b = list(from_family(MOONCAKE_SPREAD, 600, 1, tenant="b"))
    assert {arrival.tenant for arrival in a} == {"a"}
    assert [x.t for x in a] != [x.t for x in b]

    def keys(stream: list[Arrival]) -> set[int]:
        return {key for arrival in stream for key, _ in arrival.prefix}

    assert not keys(a) & keys(b)


def test_a_continued_conversation_repeats_all_of_an_earlier_prompt() -> None:
    """The chunks before the new one are the whole of some earlier prompt, or the system prompt alone."""
    earlier: dict[tuple[tuple[int, int], ...], float] = {}
    continued = 0
    stream = list(from_family(MOONCAKE_SPREAD, 1800, 1))
    for arrival in stream:
        shared = arrival.prefix[:-1]
        if len(shared) > 1:
            continued += 1
            assert earlier[shared] <= arrival.t
        earlier[arrival.prefix] = arrival.t
    # Of the trace's requests 38.7 % find more than the system prompt.
    assert continued / len(stream) == pytest.approx(0.387, abs=0.03)


def test_several_system_prompts_are_all_used() -> None:
    assert MOONCAKE_SPREAD.reuse is not None
    chosen = replace(MOONCAKE_SPREAD, reuse=replace(MOONCAKE_SPREAD.reuse, system_prompts=4, continues=0.0))
    roots = Counter(a.prefix[0] for a in from_family(chosen, 600, 1))
    assert len(roots) == 4
    assert {tokens for _, tokens in roots} == {512}


def test_prompts_shorter_than_the_system_prompt_share_nothing() -> None:
    short = replace(MOONCAKE_SPREAD, lengths=UniformLengths(Workload((1, 512), (1, 1))))
    assert all(len(a.prefix) == 1 for a in from_family(short, 600, 1))
    assert measure(from_family(short, 600, 1)).block_reuse == 0.0


def test_lengths_stay_between_what_was_seen() -> None:
    assert isinstance(AZURE_CONV.lengths, QuantileLengths)
    drawn = list(from_family(AZURE_CONV, 4000, 5))
    assert min(a.prompt_tokens for a in drawn) >= AZURE_CONV.lengths.prompt[0]
    assert max(a.output_tokens for a in drawn) <= AZURE_CONV.lengths.output[-1]
    uniform = list(generate(constant(20), Burst(), UniformLengths(Workload((3, 5), (1, 2))), None, 100, 1))
    assert {a.prompt_tokens for a in uniform} == {3, 4, 5}
    assert {a.output_tokens for a in uniform} == {1, 2}


def test_streams_are_lazy_and_quick() -> None:
    """A day of a fleet's traffic begins at once, and an arrival with its prefix costs microseconds (bound: ten times
    what was measured, for busy machines).
    """
    before = process_time()
    assert len(list(islice(from_family(MOONCAKE_SPREAD, 86_400, 1, constant(150)), 20_000))) == 20_000
    assert (process_time() - before) / 20_000 < 50e-6
