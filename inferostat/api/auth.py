"""Who may read and who may act: the control token, and checks against requests made by a foreign web page."""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

TOKEN_BYTES = 32
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class TokenError(Exception):
    """The token file cannot be used: expected, found, what to do."""


def load_or_create_token(path: Path) -> str:
    """The token in `path`; a new one is written (mode 0600, never following a link) when there is no file."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise TokenError(
            f"expected to create the token file {path}, found {error}; make its folder writable"
        ) from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token


def _read_token(path: Path) -> str:
    try:
        mode = path.stat().st_mode & 0o077
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"expected a readable token file {path}, found {error}; fix or remove it") from error
    if mode:
        raise TokenError(f"expected {path} to be readable by its owner only, found mode {mode:03o}; chmod 600 it")
    if len(token) < 16:
        raise TokenError(f"expected 16 or more characters in {path}, found {len(token)}; remove it for a new one")
    return token


def bearer_matches(header: str | None, token: str) -> bool:
    """Whether `Authorization: Bearer <token>` carries the token; the comparison takes constant time."""
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())


def is_loopback(host: str) -> bool:
    """Whether listening on `host` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_allowed(host_header: str | None, loopback: bool, allowed: frozenset[str]) -> bool:
    """On loopback only its own names: a foreign one that resolves to 127.0.0.1 is DNS rebinding."""
    if not loopback:
        return True
    try:
        name = urlsplit(f"//{host_header or ''}").hostname
    except ValueError:
        return False
    return name in LOOPBACK_NAMES or name in allowed


def same_origin(headers: Mapping[str, str], host: str | None) -> bool:
    """False for a request that a page of another origin made; programs send no Origin and pass."""
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("Origin")
    if origin is None:
        return True
    # the scheme is not compared: a proxy in front may end TLS
    return urlsplit(origin).netloc.lower() == (host or "").lower() != ""
