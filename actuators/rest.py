"""A small HTTP client for admin interfaces: one timeout, no hidden repeats, errors in one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import aiohttp

from actuators.model import ActuatorError

MAX_BODY_BYTES = 16 * 1024 * 1024


class Refused(ActuatorError):
    """The other side answered, and the answer is not a success. `status` is the HTTP status."""

    def __init__(self, message: str, status: int, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class RestClient:
    """Requests to one admin interface. Each request has its own connection.

    A connection kept alive may be closed by the other side just as a write goes out, and a client that then
    repeats the request would carry it out twice. Here the handshake costs less than that doubt.
    """

    def __init__(self, base_url: str, timeout_s: float) -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            )
        return self._session

    async def request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> str:
        """Body of a 200 answer. Raises Refused for any other status, ActuatorError without an answer."""
        where = f"{method} {self._base_url}{path}"
        try:
            async with self._open().request(
                method, self._base_url + path, json=body, allow_redirects=False
            ) as response:
                raw = await _bounded(response, where)
                text = raw.decode("utf-8", "replace")
        except TimeoutError as error:
            raise ActuatorError(
                f"{where}: expected an answer within {self._timeout_s:g} s, found none: "
                "check that the process is not stuck"
            ) from error
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            found = os.strerror(number).lower() if number else str(error.os_error)
            raise ActuatorError(
                f"{where}: expected an answer, found {found}: check that it runs and the address is right"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ActuatorError(
                f"{where}: expected an answer, found {error}: check that it runs and the address is right"
            ) from error
        if response.status != 200:
            raise Refused(
                f"{where}: expected HTTP 200, found {response.status} {text.strip()[:200]!r}: see its log",
                response.status,
                text,
            )
        return text

    async def request_json(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The JSON object of a 200 answer; errors as `request`, ActuatorError for anything else."""
        text = await self.request(method, path, body)
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ActuatorError(
                f"{method} {self._base_url}{path}: expected a JSON object, found {text.strip()[:80]!r}: "
                "check that the address is the admin interface"
            )
        return document

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


async def _bounded(response: aiohttp.ClientResponse, where: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise ActuatorError(f"{where}: expected at most {MAX_BODY_BYTES} bytes, found more: check the address")
        parts.append(part)
    return b"".join(parts)
