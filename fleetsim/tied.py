"""Runs a program that ends with its parent: `python -m fleetsim.tied PARENT_PID PROGRAM ARGUMENT...`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(expected_parent: int) -> None:
    """Ask the kernel (Linux) for SIGTERM when the parent dies; end at once if it is dead already.

    The wish survives exec. It is not inherited by children.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != expected_parent:
            sys.exit(0)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
