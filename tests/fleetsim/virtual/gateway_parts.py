"""Stand-ins around a gateway under test: engines' servers that do what they are told, a client that notes all."""

from __future__ import annotations

from collections.abc import Callable

from fleetsim import settings
from fleetsim.virtual.attempt import Attempt
from fleetsim.virtual.gateway import Gateway
from fleetsim.virtual.headers import Headers
from fleetsim.virtual.moves import MoveLog
from fleetsim.virtual.simulation import Simulation


class FakePort:
    """Holds what it is offered until the test answers, or answers by `reply` after `delay_s`."""

    def __init__(self, simulation: Simulation, gateway: Gateway) -> None:
        self.simulation, self.gateway = simulation, gateway
        self.listening, self.hung = True, False
        self.open: dict[Attempt, int] = {}
        self.cancelled = 0
        self.reply: Callable[[FakePort, Attempt], None] | None = None
        self.delay_s = 0.0

    def offer(self, attempt: Attempt) -> None:
        assert self.listening
        self.open[attempt] = attempt.version
        if self.reply is not None:
            self.simulation.after(self.delay_s, self._due, attempt, attempt.version)

    def cancel(self, attempt: Attempt) -> None:
        self.cancelled += 1
        self.open.pop(attempt, None)

    def first_token(self, attempt: Attempt) -> None:
        self.gateway.first_token(attempt)

    def finish(self, attempt: Attempt) -> None:
        del self.open[attempt]
        self.gateway.finished(attempt)

    def fail(self, attempt: Attempt, status: int) -> None:
        del self.open[attempt]
        self.gateway.failed(attempt, status)

    def _due(self, attempt: Attempt, version: int) -> None:
        if self.open.get(attempt) == version and self.reply is not None and not self.hung:
            self.reply(self, attempt)


class FakeClient:
    """What the gateway told, in order; asserts that nobody is told of an attempt that is closed."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.headers: list[dict[str, str]] = []

    def first_token(self, attempt: Attempt) -> None:
        assert attempt.open
        self.told.append("first_token")

    def finished(self, attempt: Attempt) -> None:
        assert not attempt.open
        self.told.append("finished")

    def failed(self, attempt: Attempt, status: int, headers: dict[str, str]) -> None:
        assert not attempt.open
        self.told.append(str(status))
        self.headers.append(headers)


class Rig:
    """A gateway, `engines` ports behind it and one client before it. No hop, so that times are round."""

    def __init__(self, engines: int = 1, headers: Headers = Headers.FINISH, seed: int = 1, **options: object) -> None:
        self.simulation = Simulation()
        self.log = MoveLog()
        gateway = settings.Gateway.model_validate({"hop_s": 0.0, **options})
        self.gateway = Gateway(self.simulation, gateway, seed, self.log, headers)
        self.client = FakeClient()
        self.ports = [FakePort(self.simulation, self.gateway) for _ in range(engines)]
        for i, port in enumerate(self.ports):
            self.gateway.add(f"engine-{i}", f"10.0.0.{i + 1}:8000", port)

    def send(self, **fields: object) -> Attempt:
        """Send one attempt now."""
        given = {"prompt_tokens": 500, "output_tokens": 100, **fields}
        attempt = Attempt(self.client, None, **given)  # type: ignore[arg-type]
        self.gateway.send(attempt)
        self.simulation.run_until(self.simulation.now)
        return attempt

    def run(self, seconds: float) -> None:
        self.simulation.run_until(self.simulation.now + seconds)
