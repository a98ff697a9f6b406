import random

import pytest

from fleetsim.sdk import delay_s, patience_s, retry_after_s, should_retry


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (429, {}, True),
        (408, {}, True),
        (409, {}, True),
        (503, {}, True),
        (500, {}, True),
        (400, {}, False),
        (404, {}, False),
        (503, {"x-should-retry": "false"}, False),
        (400, {"x-should-retry": "true"}, True),
        (503, {"x-should-retry": "perhaps"}, True),
        (503, {"retry-after": "121"}, False),
        (503, {"retry-after": "120"}, True),
    ],
)
def test_what_is_retried(status: int, headers: dict[str, str], expected: bool) -> None:
    assert should_retry(status, headers) is expected


def test_backoff_doubles_to_eight_seconds_less_up_to_a_quarter() -> None:
    for taken, full in enumerate([0.5, 1.0, 2.0, 4.0, 8.0, 8.0]):
        delays = [delay_s(taken, {}, random.Random(i)) for i in range(200)]
        assert 0.75 * full <= min(delays) < 0.8 * full
        assert 0.95 * full < max(delays) <= full


def test_servers_delay_is_obeyed() -> None:
    assert delay_s(0, {"retry-after": "5"}, random.Random(1)) == 5
    assert delay_s(0, {"retry-after-ms": "40", "retry-after": "5"}, random.Random(1)) == 0.04
    assert retry_after_s({"retry-after": "soon"}) is None
    assert retry_after_s({"retry-after": "inf"}) is None


def test_patience_covers_all_attempts_and_their_backoffs() -> None:
    assert patience_s(10.0, 2) == 31.5
    assert patience_s(5.0, 0) == 5.0
