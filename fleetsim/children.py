"""Child processes that do not outlive their parent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO


class ChildError(RuntimeError):
    """A child process did not start or did not come up."""


def spawn(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a child that is terminated when this process goes, whatever way it goes.

    Its output goes to `log`. To be called from the main thread: the kernel watches the thread that forked.
    """
    tied = [sys.executable, "-m", "fleetsim.tied", str(os.getpid()), *command]
    return subprocess.Popen(tied, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


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
