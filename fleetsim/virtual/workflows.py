"""Agents in virtual time: tasks of several rounds, each of several calls at once that must all succeed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from fleetsim import settings
from fleetsim.traffic.arrival import Arrival
from fleetsim.virtual.clients import Call, Clients
from fleetsim.virtual.record import TaskRecord
from fleetsim.virtual.simulation import Simulation


class Task:
    """One task under way. Its calls have the lengths of `arrivals` in turn, again from the first if they run out."""

    __slots__ = ("_arrivals", "_open", "_owner", "_rounds_left", "_used", "record", "task")

    def __init__(self, owner: Workflows, task: int, arrivals: list[Arrival], rounds: int) -> None:
        self.task = task
        self.record = TaskRecord(owner.simulation.now, task)
        self._owner = owner
        self._arrivals = arrivals
        self._rounds_left = rounds
        self._used = 0
        self._open: list[Call] = []
        self._begin_round()

    def ended(self, call: Call, ok: bool) -> None:
        owner = self._owner
        if self.record.succeeded is not None:
            return  # failed while its round was being made
        if not ok:
            for sibling in self._open:
                owner.clients.abandon(sibling)
            self._end(False)
            return
        self._open.remove(call)
        if self._open:
            return
        self._rounds_left -= 1
        if self._rounds_left == 0:
            self._end(True)
        else:
            owner.simulation.after(owner.think_s, self._begin_round)

    def _begin_round(self) -> None:
        owner, arrivals = self._owner, self._arrivals
        for _ in range(owner.fanout(owner.simulation.now)):
            if self.record.succeeded is not None:
                return  # a call failed at once
            arrival = arrivals[self._used % len(arrivals)]
            self._used += 1
            self.record.calls += 1
            call = owner.clients.call(arrival, self)
            if call.record.ended_at is None:
                self._open.append(call)

    def _end(self, succeeded: bool) -> None:
        self.record.succeeded = succeeded
        self.record.ended_at = self._owner.simulation.now


class Workflows:
    """Starts a task with every `steps * fanout`-th arrival of a tenant: the arrival rate counts calls.

    The arrivals since the last start lend the task's calls their lengths; their own times are not used, so tasks come
    more evenly than Poisson arrivals would. `fanout` is asked at each round: where it is above the workflow's own, the
    same number of tasks makes more calls.
    """

    def __init__(
        self,
        simulation: Simulation,
        clients: Clients,
        workflow: settings.Workflow,
        fanout: Callable[[float], int],
    ) -> None:
        self.simulation = simulation
        self.clients = clients
        self.fanout = fanout
        self.think_s = workflow.think_s
        self.records: list[TaskRecord] = []
        self._workflow = workflow
        self._gathered: dict[str, list[Arrival]] = {}
        self._ids = count()

    def arrive(self, arrival: Arrival) -> None:
        gathered = self._gathered.setdefault(arrival.tenant, [])
        gathered.append(arrival)
        if len(gathered) == self._workflow.steps * self._workflow.fanout:
            del self._gathered[arrival.tenant]
            task = Task(self, next(self._ids), gathered, self._workflow.steps)
            self.records.append(task.record)
