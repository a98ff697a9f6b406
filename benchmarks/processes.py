"""Memory and processor time of other processes, from Linux's /proc (see proc_pid_stat(5), proc_pid_statm(5))."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# fields of /proc/PID/stat behind the command, which may itself hold spaces and brackets
_PPID, _UTIME, _STIME = 1, 11, 12


@dataclass(frozen=True, slots=True)
class Usage:
    """`rss_bytes`: resident memory now. `cpu_s`: processor time since the process began, user and system."""

    rss_bytes: int
    cpu_s: float


def usage(pid: int) -> Usage:
    """Raises FileNotFoundError or ProcessLookupError when the process is gone."""
    fields = _stat(pid)
    pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    return Usage(pages * _PAGE_BYTES, (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S)


def children(pid: int) -> list[int]:
    """Process ids whose parent is `pid`."""
    found: list[int] = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if int(_stat(int(entry.name))[_PPID]) == pid:
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended while we looked
    return found


def _stat(pid: int) -> list[str]:
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
