"""The committed figures are those of the published files."""

import random
from itertools import pairwise

import numpy as np
import pytest

from fleetsim.traffic.families import AZURE_CODE, AZURE_CONV, MOONCAKE_CONVERSATION, MOONCAKE_SPREAD, Family
from fleetsim.traffic.figures import Figures, measure
from fleetsim.traffic.lengths import SHARES, QuantileLengths
from fleetsim.traffic.reader import open_profile, open_trace
from fleetsim.traffic.shape import spread
from tests.fleetsim.traffic.shared_traces import TRACES, needs_traces

pytestmark = needs_traces

FILES = [
    ("azure2023/AzureLLMInferenceTrace_code.csv", AZURE_CODE),
    ("azure2023/AzureLLMInferenceTrace_conv.csv", AZURE_CONV),
    ("mooncake/conversation_trace.jsonl", MOONCAKE_CONVERSATION),
]


def rounded(figures: Figures) -> list[float | None]:
    """To the digits in which the families state them."""
    lengths = [round(x) for s in (figures.prompt, figures.output) for x in (s.mean, s.p50, s.p99)]
    reuse = None if figures.block_reuse is None else round(figures.block_reuse, 3)
    return [figures.requests, round(figures.duration_s), *lengths, reuse]


@pytest.mark.parametrize(("file", "family"), FILES)
def test_a_files_figures_are_the_familys(file: str, family: Family) -> None:
    figures = measure(open_trace(TRACES / file))
    published = family.published
    stated = [published.requests, published.duration_s, *published.prompt, *published.output, published.block_reuse]
    assert rounded(figures) == stated
    assert figures.mean_rate == pytest.approx(published.mean_rate, abs=0.005)
    assert figures.peak_minute == pytest.approx(published.peak_minute, abs=0.05)
    assert figures.dispersion_1s == pytest.approx(published.dispersion_1s, abs=0.05)


@pytest.mark.parametrize(("file", "family"), FILES)
def test_the_quantile_tables_are_the_files(file: str, family: Family) -> None:
    assert isinstance(family.lengths, QuantileLengths)
    rows = list(open_trace(TRACES / file))
    shares = [100 * share for share in SHARES]
    prompts = np.percentile([a.prompt_tokens for a in rows], shares)
    outputs = np.percentile([a.output_tokens for a in rows], shares)
    assert tuple(np.rint(prompts).astype(int)) == family.lengths.prompt
    assert tuple(np.rint(outputs).astype(int)) == family.lengths.output


def test_mooncakes_dispersion_is_that_of_its_ticks() -> None:
    rows = list(open_trace(TRACES / "mooncake/conversation_trace.jsonl"))
    gaps = [b.t - a.t for a, b in pairwise(rows)]
    assert sum(gap == 0 for gap in gaps) == 10_851
    assert {round(gap, 1) for gap in gaps if gap} == {3.0}
    found = measure(spread(iter(rows), 3.0, random.Random(1))).dispersion_1s
    assert found == pytest.approx(MOONCAKE_SPREAD.published.dispersion_1s, abs=0.05)


def test_mooncakes_synthetic_trace_is_poisson_with_much_reuse() -> None:
    figures = measure(open_trace(TRACES / "mooncake/synthetic_trace.jsonl"))
    assert (figures.requests, round(figures.duration_s)) == (3993, 1022)
    assert figures.block_reuse == pytest.approx(0.64, abs=0.005)
    assert figures.dispersion_1s == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("model", "windows", "mean", "max_rate", "zeros"),
    [
        ("language_m-large", 2016, 196, 583, 0),
        ("language_m-small", 2016, 1174, 3880, 37),
        ("reason_deepseek-r1", 144, 16, 43, 0),
    ],
)
def test_servegens_rates(model: str, windows: int, mean: float, max_rate: float, zeros: int) -> None:
    profile = open_profile(TRACES / "servegen" / model / "aggregate_rate.csv")
    summary = profile.summary()
    assert (summary["windows"], summary["window_s"], summary["zero_windows"]) == (windows, 600, zeros)
    assert (round(summary["mean_rate"]), round(summary["max_rate"])) == (mean, max_rate)
    assert profile.gaps == []
    rate = profile.rate(mean=10.0)
    assert rate.at(np.arange(0, windows * 600.0, 600)).mean() == pytest.approx(10.0)
