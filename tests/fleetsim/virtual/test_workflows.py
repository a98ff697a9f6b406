from __future__ import annotations

from fleetsim import settings
from fleetsim.traffic.arrival import Arrival
from fleetsim.virtual.workflows import Workflows
from tests.fleetsim.virtual.gateway_parts import FakePort
from tests.fleetsim.virtual.test_clients import ClientRig


class WorkflowRig(ClientRig):
    def __init__(self, steps: int, fanout: int, clients: dict[str, object] | None = None, think_s: float = 0.5) -> None:
        super().__init__(clients)
        self.fanout = fanout
        workflow = settings.Workflow(steps=steps, fanout=fanout, think_s=think_s)
        self.workflows = Workflows(self.simulation, self.clients, workflow, lambda t: self.fanout)

    def arrive(self, times: int, tenant: str = "") -> None:
        for i in range(times):
            self.workflows.arrive(Arrival(self.simulation.now, 100 + i, 10, (), tenant))
        self.run(0.0)


def test_a_task_of_two_rounds_of_three_calls() -> None:
    rig = WorkflowRig(steps=2, fanout=3)
    rig.arrive(5)
    assert rig.workflows.records == []
    rig.arrive(1)
    [task] = rig.workflows.records
    for now in (2.0, 4.5):
        assert len(rig.ports[0].open) == 3 and task.succeeded is None
        rig.run(now - rig.simulation.now)
        for attempt in list(rig.ports[0].open):
            rig.ports[0].finish(attempt)
        rig.run(0.5)
    assert (task.calls, task.succeeded, task.ended_at) == (6, True, 4.5)
    assert [r.t for r in rig.clients.records] == [0.0] * 3 + [2.5] * 3
    assert [r.prompt_tokens for r in rig.clients.records] == [100, 101, 102, 103, 104, 100]
    assert {r.task for r in rig.clients.records} == {task.task}


def test_a_failed_call_abandons_the_others_and_the_task() -> None:
    rig = WorkflowRig(steps=3, fanout=3)
    rig.arrive(9)
    [task] = rig.workflows.records
    first, second, _ = list(rig.ports[0].open)
    rig.run(1.0)
    rig.ports[0].finish(first)
    rig.ports[0].fail(second, 400)
    assert (task.succeeded, task.calls, task.ended_at) == (False, 3, 1.0)
    assert [r.outcome for r in rig.clients.records] == ["ok", "rejected", "abandoned"]
    assert rig.ports[0].cancelled == 1 and rig.gateway.active == 0
    rig.run(60.0)
    assert len(rig.clients.records) == 3


def test_a_retried_call_holds_its_round_up() -> None:
    rig = WorkflowRig(steps=2, fanout=2, think_s=0.0)
    rig.arrive(4)
    first, second = list(rig.ports[0].open)
    rig.ports[0].fail(first, 503)
    rig.ports[0].finish(second)
    rig.run(0.5)
    assert rig.workflows.records[0].calls == 2
    [again] = rig.ports[0].open
    rig.ports[0].finish(again)
    rig.run(0.0)
    assert rig.workflows.records[0].calls == 4


def test_a_call_that_is_throttled_at_once_fails_its_task() -> None:
    rig = WorkflowRig(steps=1, fanout=4, clients={"throttle_k": 1.0, "retries": 0})
    rig.ports[0].reply = lambda port, attempt: FakePort.fail(port, attempt, 503)
    for _ in range(100):
        rig.arrive(4)
        rig.run(2.0)
    tasks, records = rig.workflows.records, rig.clients.records
    assert len(tasks) == 100 and {t.succeeded for t in tasks} == {False}
    assert {r.outcome for r in records} == {"rejected", "abandoned"} and any(r.attempts == 0 for r in records)
    assert sum(t.calls for t in tasks) == len(records)


def test_more_fan_out_means_more_calls_of_as_many_tasks() -> None:
    rig = WorkflowRig(steps=2, fanout=1)
    rig.ports[0].reply = FakePort.finish
    rig.fanout = 3
    rig.arrive(8)
    rig.run(5.0)
    assert [(t.calls, t.succeeded) for t in rig.workflows.records] == [(6, True)] * 4


def test_tenants_gather_apart() -> None:
    rig = WorkflowRig(steps=2, fanout=1)
    rig.arrive(1, "gold")
    rig.arrive(1, "tin")
    assert rig.workflows.records == []
    rig.arrive(1, "gold")
    assert [(r.tenant, r.priority) for r in rig.clients.records] == [("gold", 7)]
