"""One HTTP GET of a metrics body, bounded in time and size. Every failure is a FetchError that explains."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import aiohttp

from collector.sources.targets import Target

# The text format is asked for by name: OpenMetrics renames counters. Compression is accepted but not asked
# for: an engine would pay for it in the process that serves requests.
HEADERS = {"Accept": "text/plain;version=0.0.4,*/*;q=0.1", "Accept-Encoding": "identity"}
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 2
_ADVICE = {
    401: "give the target a valid token or token_file",
    403: "allow this token to read metrics",
    404: "correct the target's metrics path",
    429: "scrape less often",
}


class FetchError(Exception):
    """Expected, found, and what to do, in one sentence."""


@dataclass(frozen=True, slots=True)
class Body:
    data: bytes
    content_type: str | None


async def fetch(session: aiohttp.ClientSession, target: Target, deadline_s: float, max_bytes: int) -> Body:
    """The target's body, whole, within `deadline_s` seconds and `max_bytes` bytes. Raises FetchError."""
    try:
        async with asyncio.timeout(deadline_s):
            return await _get(session, target, max_bytes)
    except TimeoutError:
        raise FetchError(
            f"expected a whole metrics body within {deadline_s:g} s, found none; "
            "check that the target is not overloaded or hung, or raise its deadline"
        ) from None
    except aiohttp.ClientPayloadError as error:
        raise FetchError(
            f"expected a whole metrics body, found it cut short ({error}); check what is between"
        ) from None
    except aiohttp.ClientConnectorDNSError as error:
        raise FetchError(
            f"expected to resolve {error.host}, found {error.os_error}; correct the target's host or the DNS"
        ) from None
    except aiohttp.ClientConnectorError as error:
        raise FetchError(
            f"expected a connection to {target.address}, found {_reason(error.os_error)}; check that the target runs"
        ) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise FetchError(
            f"expected an HTTP answer, found {type(error).__name__}: {error}; check what listens on {target.address}"
        ) from None


async def _get(session: aiohttp.ClientSession, target: Target, max_bytes: int) -> Body:
    url = target.url
    headers = _authorization(target)
    for _ in range(_MAX_REDIRECTS + 1):
        async with session.get(url, allow_redirects=False, headers=headers) as response:
            if response.status not in _REDIRECTS:
                return await _read(response, max_bytes)
            url = _same_host(url, response.headers.get("Location", ""))
    raise FetchError(f"expected metrics, found more than {_MAX_REDIRECTS} redirects; give the URL they lead to")


def _reason(error: OSError) -> str:
    """What the operating system says of it, without the call that asyncio names in its place."""
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)


def _same_host(url: str, location: str) -> str:
    """Where a redirect leads, if that is the same host and port: a token must not travel further."""
    there = urljoin(url, location)
    if urlsplit(there)[:2] != urlsplit(url)[:2]:
        raise FetchError(
            f"expected metrics, found a redirect to {urlsplit(there).netloc or 'nowhere'}; "
            "give that URL as the target if it is meant"
        )
    return there


def _authorization(target: Target) -> dict[str, str]:
    token = target.token
    if target.token_file is not None:
        try:
            token = target.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise FetchError(f"expected a readable token file, found {error}; correct token_file") from None
    return {"Authorization": f"Bearer {token}"} if token else {}


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> Body:
    if response.status != 200:
        advice = _ADVICE.get(response.status, "look into the target's own log")
        raise FetchError(f"expected HTTP 200, found {response.status} {response.reason}; {advice}")
    if (response.content_length or 0) > max_bytes:
        raise _oversized(max_bytes)
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            response.close()
            raise _oversized(max_bytes)
    return Body(b"".join(chunks), response.headers.get("Content-Type"))


def _oversized(max_bytes: int) -> FetchError:
    return FetchError(
        f"expected at most {max_bytes} bytes of metrics, found more; "
        "check that the URL is a metrics endpoint, or raise the limit"
    )
