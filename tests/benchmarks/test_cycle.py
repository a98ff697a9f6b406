"""The benchmark of the cycle itself: what it serves, and that it measures every part of every cycle."""

from __future__ import annotations

from benchmarks.cycle import BODIES, moved, run, table
from collector.history import History
from collector.model import Frame, Level
from collector.reading import TargetReader


def test_bodies_move_and_stay_readable() -> None:
    body = (BODIES / "vllm-0.32-busy.prom").read_text("utf-8")
    reader = TargetReader()
    first, second = (reader.read(moved(body, step)) for step in (0, 50))
    assert (first.error, second.error) == (None, None)
    before, after = (r.rows[Level.ENDPOINT].cell("", "generation_tokens").value for r in (first, second))
    assert after - before == 50.0


def test_every_part_of_every_cycle_is_measured_and_stages_see_the_frames() -> None:
    seen: list[tuple[int, float]] = []

    def stage(frame: Frame, history: History) -> None:
        assert history.latest is frame
        seen.append((len(frame.endpoints.rows), frame.at))

    cost = run(endpoints=3, cycles=2, seed=1, stages={"analyze": stage})
    assert list(cost.parts) == ["HTTP", "parse", "frame", "history", "analyze", "whole cycle"]
    assert all(len(seconds) == 2 and min(seconds) >= 0 for seconds in cost.parts.values())
    assert [endpoints for endpoints, _ in seen] == [3, 3]
    assert "whole cycle" in table(cost)
