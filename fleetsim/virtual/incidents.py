"""What befalls a pool of replicas: engines' faults, nodes, reclaimed capacity, emptied caches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fleetsim.events import CacheEvent, CapacityEvent, EngineEvent, NodeEvent, ReclaimEvent
from fleetsim.replica import ReplicaState
from fleetsim.timing import HEALTHY

if TYPE_CHECKING:
    from fleetsim.virtual.pool import Pool
    from fleetsim.virtual.replica import Replica

SERVING = (ReplicaState.READY, ReplicaState.DRAINING)
Inflicted = EngineEvent | NodeEvent | ReclaimEvent | CapacityEvent | CacheEvent


def inflict(pool: Pool, event: Inflicted) -> list[str]:
    """Let an event happen now; the names of the replicas it hit. Targets that are gone are not hit."""
    if isinstance(event, CapacityEvent):
        pool.placement.schedulable = event.schedulable_replicas
        pool.place_pending()
        return []
    if isinstance(event, NodeEvent):
        return _node(pool, event)
    hit = [r for r in pool.live if event.targets == "all" or r.name in event.targets]
    if isinstance(event, CacheEvent):
        hit = [r for r in hit if r.server.listening]
        for replica in hit:
            replica.server.flush()
    elif isinstance(event, ReclaimEvent):
        hit = [r for r in hit if r.allocated]
        for replica in hit:
            pool.send_away(replica, event.notice_s)
        pool.reconcile()
    else:
        for replica in hit:
            _fault(pool, replica, event)
    return [r.name for r in hit]


def _fault(pool: Pool, replica: Replica, fault: EngineEvent) -> None:
    match fault.kind:
        case "slow":
            replica.degradation = fault.degradation
            pool.degrade(replica)
        case "hang":
            if replica.server.listening:
                replica.server.hang(True)
        case "crash":
            replica.xid = fault.xid or replica.xid
            if replica.state in SERVING:
                _crash(pool, replica)
        case "deploy":
            if not replica.leaving:
                _deploy(pool, replica, fault)
        case "recover":
            replica.degradation = HEALTHY
            pool.degrade(replica)
            if replica.server.hung:
                replica.server.hang(False)
            _restart(pool, replica, replica.plan)


def _node(pool: Pool, event: NodeEvent) -> list[str]:
    on_it = [r for r in pool.allocated if r.node == event.node]
    match event.state:
        case "down":
            pool.placement.fail(event.node)
            for replica in on_it:
                _crash(pool, replica)
        case "slow":
            pool.placement.slow(event.node, event.g)
            for replica in on_it:
                pool.degrade(replica)
        case "well":
            pool.placement.mend(event.node)
            for replica in on_it:
                pool.degrade(replica)
                _restart(pool, replica, replica.plan)
            pool.place_pending()
    return [r.name for r in on_it]


def _crash(pool: Pool, replica: Replica) -> None:
    """The process dies. One that was leaving is gone then; one that was to be replaced is replaced now."""
    if replica.leaving:
        pool.stop(replica)
        return
    then, replica.then = replica.then, None
    replica.plan += 1
    replica.move(ReplicaState.CRASHED, pool.simulation.now)
    pool.end_process(replica)
    if then is not None and not pool.placement.is_down(replica.node):
        then(replica)
    elif (restart_s := pool.scenario.cluster.restart_s) is not None:
        pool.simulation.after(restart_s, _restart, pool, replica, replica.plan)


def _restart(pool: Pool, replica: Replica, plan: int) -> None:
    """Load a crashed replica anew, unless its node is down: then it waits for the node."""
    if replica.plan == plan and replica.state is ReplicaState.CRASHED and not pool.placement.is_down(replica.node):
        replica.xid = 0
        pool.warm(replica)


def _deploy(pool: Pool, replica: Replica, fault: EngineEvent) -> None:
    """Roll out a build: drain, then start anew with it and its speed. Who serves nothing starts anew at once."""
    roll = partial(_roll, pool, fault=fault)
    if replica.state in SERVING:
        pool.drain(replica, pool.scenario.cluster.drain_deadline_s, roll)
    else:
        roll(replica)


def _roll(pool: Pool, replica: Replica, fault: EngineEvent) -> None:
    pool.end_process(replica)
    replica.build = fault.build or replica.build
    replica.degradation = fault.degradation
    if replica.state is not ReplicaState.PENDING and not pool.placement.is_down(replica.node):
        pool.warm(replica)
