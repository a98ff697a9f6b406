"""What travels through the fleet in virtual time: an attempt, and who tells whom about it.

client --send/cancel--> gateway --offer/cancel--> server --submit/abort--> engine
client <--first_token/finished/failed-- gateway <--first_token/finished/failed-- server
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fleetsim.engine import Sequence

RESET = 0  # status of an attempt whose connection broke
SHED_RETRY_AFTER_S = 5.0  # as the embedded fleet's Envoy answers what it sheds


class Attempt:
    """One try of one call, as the gateway sees it. Times are virtual seconds, lengths tokens.

    `caller` is the client's own object for the call. `retry` counts the client's earlier tries of it
    (x-stainless-retry-count). `open` is False once it was answered or given up; nobody reports it after that.
    The gateway's and the server's slots are theirs.
    """

    __slots__ = (
        "caller",
        "client",
        "endpoint",  # the gateway's: where it is now
        "first_at",
        "open",
        "output_tokens",
        "prefix",
        "priority",
        "prompt_tokens",
        "retry",
        "sent_at",
        "sequence",  # the server's: where it is in the engine
        "stage",  # of a disaggregated pool: 0 prefill, 1 decode
        "tries",  # the gateway's: how often it was sent upstream
        "version",  # rises with each upstream try, so that an answer to an earlier one is recognised
    )

    def __init__(
        self,
        client: Client,
        caller: Any,
        *,
        prompt_tokens: int,
        output_tokens: int,
        prefix: tuple[tuple[int, int], ...] = (),
        priority: int = 0,
        retry: int = 0,
    ) -> None:
        self.client = client
        self.caller = caller
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.prefix = prefix
        self.priority = priority
        self.retry = retry
        self.open = True
        self.sent_at = 0.0
        self.first_at: float | None = None
        self.endpoint: Any = None
        self.sequence: Sequence | None = None
        self.stage = self.tries = self.version = 0


class Client(Protocol):
    """Who made an attempt. Called at the moment it happens (`simulation.now`)."""

    def first_token(self, attempt: Attempt) -> None: ...

    def finished(self, attempt: Attempt) -> None: ...

    def failed(self, attempt: Attempt, status: int, headers: dict[str, str]) -> None:
        """An error answer (`status` 429, 503, 504) or a broken connection (RESET)."""


class Upstream(Protocol):
    """What the gateway offers to a server for its answers."""

    def first_token(self, attempt: Attempt) -> None: ...

    def finished(self, attempt: Attempt) -> None: ...

    def failed(self, attempt: Attempt, status: int) -> None:
        """The server answered with an error (503: too many waiting) or its process died (RESET)."""


class Port(Protocol):
    """A server as the gateway sees it: an address that takes requests, or refuses connections."""

    listening: bool
    hung: bool  # it takes requests and says nothing more to anybody

    def offer(self, attempt: Attempt) -> None:
        """Take a request; only while listening. A hung server takes it and never answers."""

    def cancel(self, attempt: Attempt) -> None:
        """The gateway closed the request's connection; whether the engine hears of it is the server's matter."""
