"""When a throughput is taken for the capacity."""

from __future__ import annotations

import pytest

from analyzers import storm
from analyzers.build import endpoint_scope
from analyzers.model import PoolSettings
from tests.analyzers.frames import Loop, frame, total

ANSWER_TOKENS = 200
FINISHED_RPS = 5.0


def learnt(running: float, waiting: tuple[float, ...], max_num_seqs: int | None = 64) -> float | None:
    """The capacity learnt of an engine that finishes 5 requests/s, after 30 s of these gauges in turn."""
    loop = Loop(settings=PoolSettings(max_num_seqs=max_num_seqs), only=storm.analyze)
    for t in range(1, 31):
        done = FINISHED_RPS * t
        row = {
            "requests_running": running,
            "requests_waiting": waiting[t % len(waiting)],
            "generation_tokens": done * ANSWER_TOKENS,
            "request_generation_tokens": total(ANSWER_TOKENS, done),
        }
        last = loop.tick(frame(float(t), {"e": row}))
    return last.measure("capacity_mu", endpoint_scope("e"))


def test_a_queue_that_lasts_before_a_full_batch_shows_the_capacity() -> None:
    assert learnt(64.0, (12.0,)) == pytest.approx(FINISHED_RPS)


@pytest.mark.parametrize(
    ("running", "waiting"),
    [
        (40.0, (0.0,)),  # nobody waits
        (40.0, (2.0, 1.0, 1.0, 0.0)),  # now and then a prompt waits for its turn to be read
        (40.0, (2.0,)),  # always one, but there are free seats
    ],
)
def test_a_prompt_that_waits_for_its_turn_does_not(running: float, waiting: tuple[float, ...]) -> None:
    assert learnt(running, waiting) is None


def test_prompts_that_outrun_the_engine_show_it_too_once_there_is_work_for_a_full_batch() -> None:
    assert learnt(10.0, (80.0,)) == pytest.approx(FINISHED_RPS)


def test_without_a_known_batch_limit_the_queue_alone_decides() -> None:
    assert learnt(40.0, (12.0,), max_num_seqs=None) == pytest.approx(FINISHED_RPS)
    assert learnt(40.0, (2.0, 1.0, 1.0, 0.0), max_num_seqs=None) is None
