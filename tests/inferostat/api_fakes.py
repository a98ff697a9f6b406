"""Controls that write down what they were asked, and a board full of a made-up incident."""

from __future__ import annotations

from dataclasses import dataclass, field

from inferostat.api.controls import ControlError, FaultOrder, LoadOrder
from inferostat.api.services import ApiSettings, Services
from inferostat.api.state import Pause, StatusBoard
from inferostat.present import CycleFacts
from inferostat.telemetry import Telemetry
from tests.inferostat.incident import START, Incident

TOKEN = "a-token-of-enough-characters"


@dataclass
class FakeControls:
    """Both kinds of controls; pausing shows on the board as the daemon would show it."""

    board: StatusBoard
    asked: list[object] = field(default_factory=list)
    reload_error: str | None = None

    async def pause(self, reason: str) -> None:
        self.asked.append(("pause", reason))
        self.board.pause(Pause(START, reason), START)

    async def resume(self) -> None:
        self.asked.append("resume")
        self.board.pause(None, START)

    async def reload(self) -> None:
        if self.reload_error is not None:
            raise ControlError(self.reload_error, 422)
        self.asked.append("reload")

    async def fault(self, order: FaultOrder) -> None:
        self.asked.append(order)

    async def load(self, order: LoadOrder) -> None:
        self.asked.append(order)


def services(
    board: StatusBoard, now: float, embedded: bool = True, settings: ApiSettings | None = None
) -> tuple[Services, FakeControls]:
    controls = FakeControls(board)
    telemetry = Telemetry(board.version, board.mode, lambda: now)
    if (view := board.view) is not None:
        telemetry.cycle_done("ok", CycleFacts(view.at, view.frame, view.analysis, view.readings))
    made = Services(
        board,
        telemetry.registry,
        settings or ApiSettings(TOKEN),
        controls,
        lambda: now,
        controls if embedded else None,
        lambda slug: "What to do: <b>breathe</b>." if slug == "retry-storm" else None,
    )
    return made, controls


def board_after(cycles: int, incident: Incident | None = None, embedded: bool = True) -> StatusBoard:
    incident = incident or Incident()
    board = StatusBoard("1.2.3", "act", embedded, started_at=incident.start)
    board.configured("act")
    for view in incident.cycles(cycles):
        board.publish(view)
    return board
