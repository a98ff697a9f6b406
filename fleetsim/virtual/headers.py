"""When a client learns that its request was taken well."""

from __future__ import annotations

from enum import Enum

from fleetsim.settings import Clients, Serving


class Headers(Enum):
    """When the head of a good answer reaches the client: from then on nobody retries behind its back."""

    AT_ONCE = "at once"  # when an engine's server takes the request
    FIRST_TOKEN = "first token"
    FINISH = "finish"  # the answer comes in one piece

    @classmethod
    def of(cls, clients: Clients, serving: Serving) -> Headers:
        if not clients.stream:
            return cls.FINISH
        return cls.FIRST_TOKEN if serving.headers_at_first_token else cls.AT_ONCE
