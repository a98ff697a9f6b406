from fleetsim.policies.keda import KedaWaiting
from tests.fleetsim.policies.looks import Bench, pod, ready


def test_the_sum_of_waiting_requests_over_five() -> None:
    bench = Bench(KedaWaiting())
    assert bench.uniform(0.0, waiting=5.2) == 4  # 20.8 is within 10 % of 4 x 5
    assert bench.uniform(15.0, waiting=8.0) == 7


def test_series_that_are_gone_count_as_nothing_so_an_outage_scales_to_the_minimum() -> None:
    bench = Bench(KedaWaiting(), replicas=8, bounds=(2, 16))
    looks = [bench.look(15.0 * i, [pod(k, "ready") for k in range(8)]) for i in range(21)]
    assert looks[:20] == [8] * 20  # the HPA's window
    assert looks[20] == 2


def test_a_part_of_the_series_gone_hides_the_load_of_the_others() -> None:
    bench = Bench(KedaWaiting())
    pods = [*ready(0.0, 2, waiting=10.0), pod(2, "ready"), pod(3, "ready")]
    assert bench.look(0.0, pods) == 4  # 20 over 4 pods, though each that answers has twice the target
