from fleetsim.lag import LoopLag, p99


def test_p99() -> None:
    assert p99([]) == 0.0
    assert p99([1.0]) == 1.0
    assert p99([float(i) for i in range(1, 101)]) == 99.0


async def test_warns_once_and_once_more_when_it_is_over() -> None:
    said: list[str] = []
    lag = LoopLag(said.append)
    lag._late.extend([0.2] * 20)
    lag.judge()
    lag.judge()
    assert len(said) == 1
    assert "200 ms" in said[0] and "too slow" in said[0]
    lag._late.extend([0.001] * 500)
    lag.judge()
    assert len(said) == 2
    assert "honest again" in said[1]
