from hypothesis import given
from hypothesis import strategies as st

from fleetsim.virtual.placement import Placement


def test_nodes_are_filled_in_order_and_the_last_has_the_rest() -> None:
    placement = Placement(5, 2)
    assert [placement.take() for _ in range(6)] == [0, 0, 1, 1, 2, None]


def test_place_given_back_is_the_next_one_taken() -> None:
    placement = Placement(4, 2)
    for _ in range(4):
        placement.take()
    placement.give_back(0)
    assert (placement.take(), placement.take()) == (0, None)


def test_node_that_is_down_gives_no_place() -> None:
    placement = Placement(4, 2)
    placement.fail(0)
    assert placement.is_down(0) and not placement.is_down(1) and not placement.is_down(None)
    assert [placement.take() for _ in range(3)] == [1, 1, None]
    placement.mend(0)
    assert placement.take() == 0


def test_slow_node_is_slow_until_it_is_well() -> None:
    placement = Placement(4, 2)
    placement.slow(1, 1.8)
    assert (placement.slowdown(0), placement.slowdown(1), placement.slowdown(None)) == (1.0, 1.8, 1.0)
    placement.mend(1)
    assert placement.slowdown(1) == 1.0


def test_less_capacity_takes_nothing_away_but_gives_nothing_new() -> None:
    placement = Placement(4, 1)
    for _ in range(3):
        placement.take()
    placement.schedulable = 2
    assert placement.taken == 3 and placement.take() is None
    placement.give_back(0)
    assert placement.take() is None
    placement.give_back(2)
    assert placement.take() == 0


@given(st.integers(0, 9), st.integers(1, 4), st.lists(st.sampled_from(["take", "give", "fail", "mend"]), max_size=40))
def test_never_more_taken_than_there_are(schedulable: int, per_node: int, actions: list[str]) -> None:
    placement = Placement(schedulable, per_node)
    held: list[int] = []
    for k, action in enumerate(actions):
        if action == "take":
            node = placement.take()
            if node is not None:
                assert not placement.is_down(node)
                held.append(node)
        elif action == "give" and held:
            placement.give_back(held.pop(k % len(held)))
        elif action in ("fail", "mend"):
            (placement.fail if action == "fail" else placement.mend)(k % 3)
        assert placement.taken == len(held) <= schedulable
        assert all(held.count(node) <= per_node for node in held)
