import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.settings import Serving
from fleetsim.timing import Degradation, Profile, load_profile
from fleetsim.virtual.attempt import Attempt
from fleetsim.virtual.engine import SkippingEngine
from fleetsim.virtual.exporters import ReadableMetrics
from fleetsim.virtual.server import Role, Server, kv_bytes_per_token, transfer_s_per_token
from fleetsim.virtual.simulation import Simulation
from tests.fleetsim.virtual.fake_gateway import FakeGateway, attempt

PROFILE = load_profile()


class Bench:
    """A server with its gateway and clock."""

    def __init__(self, role: Role = "serve", profile: Profile = PROFILE, **serving: Any) -> None:
        self.simulation = Simulation()
        self.gateway = FakeGateway(self.simulation)
        self.profile = profile
        self.server = Server(self.simulation, self.gateway, Serving(**serving), profile, role)
        self.boot()

    def boot(self) -> None:
        metrics = ReadableMetrics(self.profile, "m", 0.0)
        self.server.boot(SkippingEngine(self.profile, metrics=metrics), metrics)

    def offer(self, **fields: Any) -> Attempt:
        made = attempt(**fields)
        self.server.offer(made)
        return made

    def alone(self, **fields: Any) -> tuple[float, float]:
        """When a request that has a fresh engine to itself gets its first and its last token."""
        made = self.offer(**fields)
        self.simulation.run_until(1000)
        (first, _), (last, _) = self.gateway.of(made)
        return first, last


def test_answers_when_the_engine_does() -> None:
    bench = Bench()
    asked = bench.offer(prompt_tokens=500, output_tokens=50)
    bench.simulation.run_until(60)
    times = [t for t, _ in bench.gateway.of(asked)]
    assert [what for _, what in bench.gateway.of(asked)] == ["first", "finished"]
    # A prefill of 500 tokens, then 49 decode steps of about the weight read each.
    assert PROFILE.weights_s < times[0] < 0.1
    assert 49 * PROFILE.weights_s < times[1] - times[0] < 49 * 2 * PROFILE.weights_s
    assert bench.server.in_flight == 0


def test_one_token_is_first_and_last() -> None:
    bench = Bench()
    asked = bench.offer(output_tokens=1)
    bench.simulation.run_until(60)
    (first, a), (last, b) = bench.gateway.of(asked)
    assert (a, b) == ("first", "finished") and first == last


def test_ingress_delays_the_queue_and_tokens_delay_the_end() -> None:
    first, last = Bench().alone(output_tokens=100)
    later_first, later_last = Bench(ingress_s=0.015, token_s=0.0005).alone(output_tokens=100)
    assert later_first == pytest.approx(first + 0.015)
    assert later_last == pytest.approx(last + 0.015 + 100 * 0.0005)


def test_what_ended_is_told_whoever_looks_at_the_engine_first() -> None:
    first, last = Bench().alone(output_tokens=50)
    bench = Bench()
    for at in (first, last):  # these come before the server's own appointments, which are made later
        bench.simulation.at(at, bench.server.advance)
    assert bench.alone(output_tokens=50) == (first, last)


def test_full_queue_answers_503_and_later_than_asked() -> None:
    bench = Bench(max_waiting=2)
    first = bench.offer()  # starts at once: it does not wait
    queued = [bench.offer() for _ in range(2)]
    refused = bench.offer()
    assert bench.gateway.told == []  # never from within `offer`
    bench.simulation.run_until(0.0)
    assert bench.gateway.of(refused) == [(0.0, "503")]
    bench.simulation.run_until(60)
    assert all([what for _, what in bench.gateway.of(a)] == ["first", "finished"] for a in [first, *queued])
    assert bench.server.metrics is not None
    body = bench.server.metrics.render()
    assert 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 3.0' in body
    assert 'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 1.0' in body


def test_what_never_fits_is_answered_400() -> None:
    bench = Bench()
    asked = bench.offer(prompt_tokens=PROFILE.kv_tokens, output_tokens=100)
    bench.simulation.run_until(1)
    assert bench.gateway.of(asked) == [(0.0, "400")]
    assert bench.server.in_flight == 0


@pytest.mark.parametrize("aborts", [True, False])
def test_client_that_leaves_frees_the_engine_only_if_the_server_aborts(aborts: bool) -> None:
    bench = Bench(abort_on_disconnect=aborts)
    asked = bench.offer(output_tokens=200)
    bench.simulation.run_until(1.0)
    bench.server.cancel(asked)
    engine = bench.server.advance()
    assert engine.running_count == (0 if aborts else 1)
    assert bench.server.in_flight == engine.running_count
    bench.simulation.run_until(60)
    assert [what for _, what in bench.gateway.of(asked)] == ["first"]
    assert engine.activity.busy_s > (1.0 if aborts else 200 * PROFILE.weights_s) - 0.1
    assert (engine.activity.busy_s < 1.1) is aborts


def test_client_that_leaves_before_the_queue_never_reaches_it() -> None:
    bench = Bench(ingress_s=0.5)
    asked = bench.offer()
    bench.simulation.run_until(0.2)
    bench.server.cancel(asked)
    bench.simulation.run_until(10)
    assert bench.gateway.told == [] and bench.server.advance().activity.busy_s == 0


def test_same_attempt_offered_again_within_ingress_is_answered_once() -> None:
    bench = Bench(ingress_s=0.5)
    asked = bench.offer()
    bench.simulation.run_until(0.2)
    bench.server.cancel(asked)
    bench.server.offer(asked)
    bench.simulation.run_until(60)
    assert [what for _, what in bench.gateway.of(asked)] == ["first", "finished"]
    assert bench.gateway.of(asked)[0][0] > 0.7


def test_hung_engine_takes_requests_and_answers_after_it_is_let_go() -> None:
    bench = Bench()
    before = bench.offer(output_tokens=50)
    bench.simulation.run_until(0.1)
    bench.server.hang(True)
    after = bench.offer(output_tokens=50)
    told = len(bench.gateway.told)
    bench.simulation.run_until(30)
    assert len(bench.gateway.told) == told and bench.server.in_flight == 2
    bench.server.hang(False)
    bench.simulation.run_until(60)
    assert {what for t, what in bench.gateway.of(before)} == {"first", "finished"}
    assert bench.gateway.of(after)[0][0] >= 30


def test_crash_resets_everything_and_a_new_process_starts_clean() -> None:
    bench = Bench(ingress_s=0.01, token_s=0.01)
    running = bench.offer(output_tokens=500)
    ending = bench.offer(output_tokens=2)
    bench.simulation.run_until(0.115)
    entering = bench.offer()
    bench.simulation.run_until(0.12)  # `ending` has all its tokens but they are not all sent
    bench.server.end()
    assert not bench.server.listening and bench.server.in_flight == 0
    for asked in (running, ending, entering):
        assert bench.gateway.of(asked)[-1] == (0.12, "0")
    answered = len(bench.gateway.told)
    bench.boot()
    bench.simulation.run_until(60)
    assert len(bench.gateway.told) == answered
    asked = bench.offer(output_tokens=10)
    bench.simulation.run_until(120)
    assert [what for _, what in bench.gateway.of(asked)] == ["first", "finished"]


def test_degraded_engine_is_slower_from_the_next_step_on() -> None:
    bench = Bench()
    first, last = Bench().alone(output_tokens=100)
    bench.server.degrade(Degradation(2.0))
    slow_first, slow_last = bench.alone(output_tokens=100)
    assert slow_first == pytest.approx(2 * first) and slow_last == pytest.approx(2 * last)


def test_flush_forgets_prefixes_that_nobody_uses() -> None:
    def hits(flushed: bool) -> float:
        bench = Bench()
        for _ in range(2):
            bench.offer(prompt_tokens=500, output_tokens=5, prefix=((7, 400),))
            bench.simulation.run_until(bench.simulation.now + 10)
            if flushed:
                bench.server.flush()
        assert bench.server.metrics is not None
        assert bench.server.advance().kv_usage == 0
        return bench.server.metrics.seen(1, 0.0).cached_prompt_tokens or 0.0

    assert hits(flushed=False) == 400 and hits(flushed=True) == 0


def test_kv_of_a_token_is_the_known_figure() -> None:
    # 80 layers, 8 heads of 128 for keys and for values, 2 bytes
    assert kv_bytes_per_token(PROFILE) == pytest.approx(2 * 80 * 8 * 128 * 2, rel=0.01)
    assert 1000 * transfer_s_per_token(PROFILE) == pytest.approx(1000 * 327_680 / 200e9, rel=0.01)


def test_prefill_server_finishes_after_one_token_and_tells_no_first_one() -> None:
    bench = Bench("prefill")
    first, _ = Bench().alone(prompt_tokens=2000, output_tokens=100)
    asked = bench.offer(prompt_tokens=2000, output_tokens=100)
    bench.simulation.run_until(60)
    ((at, what),) = bench.gateway.of(asked)
    assert what == "finished" and at == pytest.approx(first)


def test_decode_server_computes_no_prompt_but_waits_for_its_cache() -> None:
    _, last = Bench().alone(prompt_tokens=2000, output_tokens=100)
    bench = Bench("decode")
    first_decoded, last_decoded = bench.alone(prompt_tokens=2000, output_tokens=100)
    transfer = 2000 * transfer_s_per_token(PROFILE)
    assert first_decoded == pytest.approx(transfer + PROFILE.t0_s + PROFILE.weights_s, rel=0.05)
    assert last_decoded == pytest.approx(last - 0.16, abs=0.05)  # without the prefill
    assert bench.server.advance().activity.tensor_s < 0.1


def test_decode_server_of_a_one_token_answer_passes_it_on() -> None:
    bench = Bench("decode")
    asked = bench.offer(prompt_tokens=1000, output_tokens=1)
    bench.simulation.run_until(60)
    at = 1000 * transfer_s_per_token(PROFILE)
    assert bench.gateway.of(asked) == [(at, "first"), (at, "finished")]
    assert bench.server.in_flight == 0


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    role=st.sampled_from(["serve", "prefill", "decode"]),
    aborts=st.booleans(),
    max_waiting=st.sampled_from([None, 3]),
    token_s=st.sampled_from([0.0, 0.001]),
    ingress_s=st.sampled_from([0.0, 0.02]),
)
def test_every_attempt_is_answered_at_most_once_whatever_happens(
    seed: int, role: Role, aborts: bool, max_waiting: int | None, token_s: float, ingress_s: float
) -> None:
    bench = Bench(role, abort_on_disconnect=aborts, max_waiting=max_waiting, token_s=token_s, ingress_s=ingress_s)
    rng = random.Random(seed)
    offered: list[Attempt] = []
    left: dict[Attempt, int] = {}  # how much each had been told when its client left
    at = 0.0
    for _ in range(60):
        at += rng.expovariate(8)
        bench.simulation.run_until(at)
        action = rng.choices(["offer", "cancel", "hang", "release", "crash", "slow", "boot"], [12, 3, 1, 2, 1, 1, 2])[0]
        if not bench.server.listening:
            if action == "boot":
                bench.boot()
        elif action == "offer":
            offered.append(bench.offer(prompt_tokens=rng.randint(1, 3000), output_tokens=rng.randint(1, 300)))
        elif action == "cancel" and offered:
            gone = rng.choice(offered)
            bench.server.cancel(gone)
            left.setdefault(gone, len(bench.gateway.of(gone)))
        elif action in ("hang", "release"):
            bench.server.hang(action == "hang")
        elif action == "crash":
            bench.server.end()
        elif action == "slow":
            bench.server.degrade(Degradation(rng.choice([1.0, 3.0])))
    if not bench.server.listening:
        bench.boot()
    bench.server.hang(False)
    bench.simulation.run_until(at + 1000)
    assert bench.server.in_flight == 0 and bench.server.advance().next_event == math.inf
    for asked in offered:
        told = [what for _, what in bench.gateway.of(asked)]
        firsts, ends = told.count("first"), len(told) - told.count("first")
        assert firsts <= 1 and ends <= 1, told
        assert told == [] or told[0] == "first" or ends == len(told)
        assert len(told) == left[asked] if asked in left else ends == 1
    assert [t for t, _, _ in bench.gateway.told] == sorted(t for t, _, _ in bench.gateway.told)
