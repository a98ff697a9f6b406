"""From a configuration to a loop that can run: source, backends, journal. The one place that knows them all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from actuators.model import Backend, Lever
from actuators.registry import build
from collector.model import TargetRole
from collector.sources.scrape import ScrapeSettings, ScrapeSource
from collector.sources.targets import FileTargets, JoinedTargets, StaticTargets, Target, target
from inferostat import VERSION
from inferostat.config import Config, TargetConfig, pool_settings
from inferostat.journal import Journal
from inferostat.loop import Loop, LoopSettings
from inferostat.tracing import CycleTracer, span_exporter


@dataclass(frozen=True)
class Parts:
    """What a running agent owns and must close."""

    loop: Loop
    source: ScrapeSource
    journal: Journal
    backends: dict[str, Backend]
    tracer: CycleTracer

    async def close(self, keep: Parts | None = None) -> None:
        """Close everything, except what `keep` (the parts after a reload) still uses."""
        await self.source.close()
        for backend in self.backends.values():
            await backend.close()
        self.tracer.close()
        if keep is None or keep.journal is not self.journal:
            self.journal.close()


def assemble(config: Config, keep: Parts | None = None, clock: Callable[[], float] = time.time) -> Parts:
    """Build a loop. With `keep` (a reload) its journal, history and planner memory go on.

    Raises ActuatorError for a backend that cannot be built, JournalError when the journal cannot be opened.
    """
    backends = build_backends(config)
    journal = keep.journal if keep is not None and keep.journal.path == config.journal else None
    if journal is None:
        journal = Journal.start(config.journal, clock())
    tracer = CycleTracer(VERSION, span_exporter(config.traces), batch=config.traces == "otlp")
    source = build_source(config, clock)
    loop = Loop(source, backends, journal, loop_settings(config), tracer, config.retention)
    if keep is not None:
        loop.take_over(keep.loop)
    return Parts(loop, source, journal, backends, tracer)


def build_backends(config: Config) -> dict[str, Backend]:
    """The configured backends. Raises ActuatorError."""
    return {name: build(item.kind, name, item.options) for name, item in config.backends.items()}


def build_source(config: Config, clock: Callable[[], float] = time.time) -> ScrapeSource:
    """The scraping source of all pools: fixed targets and targets files."""
    fixed = [_target(pool_name, target) for pool_name, pool in config.pools.items() for target in pool.targets]
    files = [FileTargets(pool.targets_file) for pool in config.pools.values() if pool.targets_file is not None]
    settings = ScrapeSettings(
        interval_s=config.interval,
        deadline_s=config.scrape.deadline,
        freshness_s=config.freshness_s,
        max_body_bytes=config.scrape.max_bytes,
        jitter=config.scrape.jitter,
    )
    return ScrapeSource(JoinedTargets((StaticTargets(fixed), *files)), settings, clock)


def _target(pool: str, config: TargetConfig) -> Target:
    labels = {"build": config.build, "device": config.device, "cluster": config.cluster}
    found = target(
        config.url + config.path if config.path is not None else config.url,
        TargetRole(config.role),
        name=config.name,
        pool=pool,
        gpus=config.gpus,
        token_file=config.bearer_token_file,
        labels={key: value for key, value in labels.items() if value is not None},
    )
    return found if config.address is None else replace(found, address=config.address)


def loop_settings(config: Config) -> LoopSettings:
    levers: dict[tuple[str, Lever], str] = {
        (pool, lever): item.backend
        for pool, settings in config.pools.items()
        for lever, item in settings.levers.items()
    }
    return LoopSettings(
        interval_s=config.interval,
        freshness_s=config.freshness_s,
        policy=config.policy(),
        pools={name: pool_settings(pool) for name, pool in config.pools.items()},
        levers=levers,
    )
