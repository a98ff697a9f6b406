from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fleetsim import settings
from fleetsim.traffic.arrival import Arrival
from fleetsim.virtual.attempt import RESET, Attempt
from fleetsim.virtual.clients import Clients, Throttle, feed
from fleetsim.virtual.headers import Headers
from fleetsim.virtual.record import CallRecord
from tests.fleetsim.virtual.gateway_parts import FakePort, Rig


class ClientRig(Rig):
    """The same with real clients; `priorities` of tenants."""

    def __init__(
        self, clients: dict[str, object] | None = None, engines: int = 1, early: bool = False, **gateway: object
    ):
        options = settings.Clients.model_validate(clients or {})
        serving = settings.Serving(headers_at_first_token=not early)
        super().__init__(engines, Headers.of(options, serving), **gateway)
        self.clients = Clients(self.simulation, self.gateway, options, 1, {"gold": 7})

    def call(self, prompt: int = 500, output: int = 101, tenant: str = "") -> CallRecord:
        self.clients.call(Arrival(self.simulation.now, prompt, output, (), tenant))
        self.run(0.0)
        return self.clients.records[-1]

    def held(self, port: int = 0) -> Attempt:
        """The newest attempt at a port."""
        return list(self.ports[port].open)[-1]


def fields(record: CallRecord) -> tuple[str, int, float | None]:
    return record.outcome, record.attempts, record.ended_at


def test_a_stream_that_is_answered() -> None:
    rig = ClientRig({"stream": True})
    record = rig.call(tenant="gold")
    rig.run(1.5)
    rig.ports[0].first_token(rig.held())
    rig.run(8.0)
    rig.ports[0].finish(rig.held())
    assert fields(record) == ("ok", 1, 9.5)
    assert (record.ttft_s, record.tpot_s) == (1.5, pytest.approx(8.0 / 100))
    assert (record.tenant, record.priority, record.task) == ("gold", 7, None)


def test_time_to_first_token_is_the_fleets_even_for_whole_answers() -> None:
    rig = ClientRig()
    record = rig.call()
    rig.run(1.0)
    rig.ports[0].first_token(rig.held())
    rig.run(2.0)
    rig.ports[0].finish(rig.held())
    assert (record.ttft_s, record.ended_at) == (1.0, 3.0)


def test_whole_answers_time_out_and_are_retried_as_the_sdk_does() -> None:
    rig = ClientRig({"timeout_s": 10.0, "retries": 2})
    record = rig.call()
    first = rig.held()
    rig.ports[0].first_token(first)  # of no use to who waits for the whole
    rig.run(10.0)
    assert not first.open and rig.ports[0].cancelled == 1 and record.attempts == 1
    rig.run(0.5)  # the SDK's longest first wait
    second = rig.held()
    assert (second.retry, record.attempts) == (1, 2)
    assert 10.375 <= second.sent_at <= 10.5
    rig.run(12.0)
    assert (rig.held().retry, record.attempts) == (2, 3)
    rig.run(10.0)
    assert record.outcome == "timeout" and record.attempts == 3
    assert record.ended_at == pytest.approx(10 * 3 + 0.5 + 1.0, abs=0.4)
    assert rig.gateway.active == 0


def test_time_to_first_token_counts_from_the_first_attempt_and_the_rest_from_the_answered_one() -> None:
    rig = ClientRig({"timeout_s": 10.0, "stream": True})
    record = rig.call()
    rig.run(12.0)
    rig.ports[0].first_token(rig.held())
    rig.run(5.0)
    rig.ports[0].finish(rig.held())
    assert fields(record) == ("ok", 2, 17.0)
    assert (record.ttft_s, record.tpot_s) == (12.0, pytest.approx(5.0 / 100))


def test_a_token_of_a_try_that_the_gateway_gave_up_is_none_the_client_got() -> None:
    rig = ClientRig(retry_on="5xx")
    record = rig.call()
    rig.ports[0].first_token(rig.held())
    rig.ports[0].fail(rig.held(), RESET)
    rig.run(3.0)
    rig.ports[0].first_token(rig.held())
    rig.run(1.0)
    rig.ports[0].finish(rig.held())
    assert fields(record) == ("ok", 1, 4.0) and record.ttft_s == 3.0


def test_one_token_has_no_time_between_tokens() -> None:
    rig = ClientRig()
    record = rig.call(output=1)
    rig.ports[0].finish(rig.held())
    assert record.outcome == "ok" and record.tpot_s is None


def test_a_stream_may_last_longer_than_the_timeout_but_not_be_silent_so_long() -> None:
    rig = ClientRig({"timeout_s": 10.0, "stream": True})
    record = rig.call()
    rig.ports[0].first_token(rig.held())
    rig.run(95.0)
    assert rig.gateway.active == 1
    rig.ports[0].hung = True
    rig.run(10.0)  # looked at once: it may have become silent just now
    assert record.ended_at is None
    rig.ports[0].hung = False
    rig.run(10.0)
    rig.ports[0].hung = True
    rig.run(20.0)
    assert fields(record) == ("timeout", 1, 130.0)  # and no retry: the stream had begun
    rig.run(50.0)
    assert rig.gateway.active == 0 and record.attempts == 1


def test_a_stream_whose_head_came_at_once_is_not_retried() -> None:
    rig = ClientRig({"timeout_s": 10.0, "stream": True}, early=True)
    record = rig.call()
    rig.run(60.0)
    assert fields(record) == ("timeout", 1, 10.0)


def test_a_stream_that_breaks_is_an_error_and_before_it_a_503_that_is_retried() -> None:
    rig = ClientRig({"stream": True})
    record = rig.call()
    rig.ports[0].fail(rig.held(), RESET)
    rig.run(1.0)
    rig.ports[0].first_token(rig.held())
    rig.ports[0].fail(rig.held(), RESET)
    rig.run(60.0)
    assert record.outcome == "error" and record.attempts == 2


def test_shed_retries_are_not_repeated_and_shed_requests_wait_as_told() -> None:
    rig = ClientRig({"retries": 2})
    rig.gateway.set_limit("admission", 0.0)
    record = rig.call()
    rig.gateway.set_limit("admission", None)
    rig.gateway.set_limit("retry_budget", 0.0)
    rig.run(4.9)
    assert record.attempts == 1
    rig.run(0.2)
    assert fields(record) == ("rejected", 2, 5.0)


def test_bad_requests_are_not_repeated() -> None:
    rig = ClientRig()
    record = rig.call()
    rig.ports[0].fail(rig.held(), 400)
    rig.run(60.0)
    assert fields(record) == ("rejected", 1, 0.0)


def test_the_application_tries_anew_with_all_retries_and_looks_like_a_first_attempt() -> None:
    rig = ClientRig({"retries": 1, "app_retries": 2})
    rig.ports[0].reply = lambda port, attempt: port.fail(attempt, 503)
    record = rig.call()
    rig.run(60.0)
    assert record.outcome == "rejected" and record.attempts == 3 * 2
    assert (rig.gateway.stats.first.arrived, rig.gateway.stats.retry.arrived) == (3, 3)


def test_an_abandoned_call_is_cancelled_wherever_it_is() -> None:
    rig = ClientRig()
    waiting, backing_off = rig.clients.call(Arrival(0.0, 1, 2)), rig.clients.call(Arrival(0.0, 1, 2))
    rig.run(0.0)
    rig.ports[0].fail(rig.held(), 503)
    for call in (waiting, backing_off):
        rig.clients.abandon(call)
        rig.clients.abandon(call)
    rig.run(60.0)
    assert [fields(r) for r in rig.clients.records] == [("abandoned", 1, 0.0)] * 2
    assert rig.gateway.active == 0 and rig.ports[0].cancelled == 1


def test_throttling_follows_the_formula_of_the_book() -> None:
    rejected = []
    for seed in range(1000):
        throttle = Throttle(2.0, random.Random(seed))
        assert not throttle.rejects(0.0)
        assert not any(throttle.rejects(100.0) for _ in range(100))  # not two minutes yet
        for _ in range(20):
            throttle.accepted(100.0)
        rejected.append(throttle.rejects(130.0))
        assert not throttle.rejects(251.0)  # all forgotten
    assert sum(rejected) / 1000 == pytest.approx((100 - 2 * 20) / 101, abs=0.05)


def test_a_throttled_attempt_is_rejected_and_never_sent() -> None:
    rig = ClientRig({"throttle_k": 1.0, "retries": 0})
    rig.ports[0].reply = lambda port, attempt: port.fail(attempt, 503)
    for _ in range(400):
        rig.call()
        rig.run(0.5)
    records = rig.clients.records
    unsent = [r for r in records if r.attempts == 0]
    assert len(unsent) > 150 and all(r.t >= 120 for r in unsent) and all(r.outcome == "rejected" for r in records)
    assert rig.gateway.stats.first.arrived == len(records) - len(unsent)


@pytest.mark.parametrize("stream", [True, False])
def test_a_throttle_lets_a_healthy_fleet_alone(stream: bool) -> None:
    rig = ClientRig({"throttle_k": 2.0, "stream": stream})

    def answer(port: FakePort, attempt: Attempt) -> None:
        port.first_token(attempt)
        port.finish(attempt)

    rig.ports[0].reply, rig.ports[0].delay_s = answer, 8.0
    for _ in range(1500):
        rig.call()
        rig.run(0.1)
    rig.run(10.0)
    assert {r.outcome for r in rig.clients.records} == {"ok"}


def test_arrivals_come_at_their_time_and_in_their_order() -> None:
    rig = ClientRig()
    times = [0.0, 1.0, 1.0, 1.0, 4.0]
    stream = (Arrival(t, i + 1, 2) for i, t in enumerate(times))
    feed(rig.simulation, stream, rig.clients.call)
    rig.run(1.0)
    assert len(rig.clients.records) == 4
    rig.run(10.0)
    assert [(r.t, r.prompt_tokens) for r in rig.clients.records] == [(t, i + 1) for i, t in enumerate(times)]


def test_who_waits_how_long_does_not_depend_on_how_many_calls_there_are() -> None:
    # One wake-up for all time-outs: the first of thousands must still be on time.
    rig = ClientRig({"timeout_s": 600.0, "retries": 0})
    rig.ports[0].reply, rig.ports[0].delay_s = FakePort.finish, 3.0
    for _ in range(50):
        rig.call()
        rig.run(1.0)
    rig.ports[0].reply = None
    late = rig.call()
    rig.run(599.9)
    assert late.ended_at is None
    rig.run(0.2)
    assert fields(late) == ("timeout", 1, pytest.approx(650.0))


@hypothesis_settings(deadline=None, max_examples=60)
@given(
    st.booleans(),
    st.booleans(),
    st.lists(
        st.tuples(st.floats(0, 3), st.sampled_from(["ok", "503", "400", "reset", "hang", "die", "slow"])), max_size=30
    ),
    st.sampled_from([{}, {"app_retries": 1, "retries": 1}, {"throttle_k": 1.5}]),
)
def test_every_call_ends_once_and_nothing_is_left(
    stream: bool, early: bool, fates: list[tuple[float, str]], options: dict[str, object]
) -> None:
    rig = ClientRig({"timeout_s": 4.0, "stream": stream, **options}, 2, early, retry_on="5xx", timeout_s=30.0)
    fate = random.Random(len(fates))

    def reply(port: FakePort, attempt: Attempt) -> None:
        what = fate.choice(fates)[1]
        if what in ("ok", "reset", "slow") and fate.random() < 0.5:
            port.first_token(attempt)
        if what == "ok":
            port.finish(attempt)
        elif what in ("503", "400", "reset"):
            port.fail(attempt, {"503": 503, "400": 400, "reset": RESET}[what])
        elif what == "slow":
            rig.simulation.after(6.0, lambda: attempt in port.open and attempt.open and port.finish(attempt))

    for port in rig.ports:
        port.reply, port.delay_s = reply, 0.5
    for wait, what in fates:
        rig.call()
        rig.run(wait)
        if what in ("hang", "die"):
            port = rig.ports[int(wait * 10) % 2]
            setattr(port, "hung" if what == "hang" else "listening", what == "hang")
            for attempt in list(port.open) if what == "die" else []:
                port.fail(attempt, RESET)
    rig.run(1000.0)
    assert all(r.ended_at is not None and r.outcome != "unfinished" for r in rig.clients.records)
    assert all((r.outcome == "ok") == (r.ttft_s is not None) for r in rig.clients.records)
    assert (rig.gateway.active, rig.gateway.retries.active) == (0, 0)
    arrived = rig.gateway.stats.first.arrived + rig.gateway.stats.retry.arrived
    assert arrived == sum(r.attempts for r in rig.clients.records)
