"""Child processes that do not outlive their parent."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1


class ChildError(RuntimeError):
    """A child process did not start or did not come up."""


def die_with_parent(expected_parent: int, with_signal: int = signal.SIGTERM) -> None:
    """Ask the kernel (Linux) to signal this process when its parent dies; exits if it is dead already.

    Runs between fork and exec, or at the start of a process that knows its parent's id.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, with_signal)
    if os.getppid() != expected_parent:
        os._exit(0)


def spawn(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a child that is terminated when this process goes, whatever way it goes; its output goes to `log`."""
    parent = os.getpid()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: die_with_parent(parent),
    )


async def terminate(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM, then SIGKILL after `grace_s`; returns when the child is reaped."""
    if child.poll() is None:
        child.terminate()
        try:
            await asyncio.to_thread(child.wait, grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
            await asyncio.to_thread(child.wait)


async def wait_for_file(path: Path, child: subprocess.Popen[bytes], log: Path, deadline_s: float) -> str:
    """Poll until a child has written `path`; ChildError if it exits or takes longer than `deadline_s`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    while not (path.exists() and path.stat().st_size):
        if child.poll() is not None:
            tail = log.read_text(errors="replace")[-800:] if log.exists() else ""
            raise ChildError(f"expected {path.name}, found process exit {child.returncode}: see {log} ({tail})")
        if loop.time() > until:
            raise ChildError(f"expected {path.name} within {deadline_s:g} s, found nothing: see {log}")
        await asyncio.sleep(0.02)
    return path.read_text()
