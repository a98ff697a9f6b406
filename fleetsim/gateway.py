"""The real Envoy in front of the simulated engines, as a child process."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import aiohttp

from fleetsim.children import ChildError, spawn, terminate, wait_for_file
from fleetsim.eds import EndpointFile
from fleetsim.envoy_bootstrap import bootstrap
from fleetsim.files import replace_json

CLUSTER = "llm"
START_DEADLINE_S = 15.0
STOP_GRACE_S = 3.0


def find_envoy() -> str:
    """The `envoy` of this Python environment, or the one on the path."""
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        raise ChildError(
            f"expected an envoy executable beside {sys.executable} or on the path, found none: "
            "install the project with its `fleet` extra"
        )
    return found


class Gateway:
    """Starts, restarts and stops Envoy. The ports it chose at its first start are kept for its life."""

    def __init__(self, workdir: Path) -> None:
        self.endpoints = EndpointFile(workdir / "eds.json", CLUSTER)
        self._workdir = workdir
        self._listen_port = 0
        self._admin_port = 0
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listen_port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self._admin_port}"

    @property
    def admin_address(self) -> str:
        return f"127.0.0.1:{self._admin_port}"

    def describe(self) -> dict[str, str]:
        return {
            "url": self.url,
            "admin_url": self.admin_url,
            "eds_path": str(self.endpoints.path),
            "cluster": CLUSTER,
        }

    async def start(self) -> None:
        """Create an empty cluster and bring Envoy up; ChildError, with the log's end, if it does not."""
        self.endpoints.create()
        await self._launch()

    async def restart(self) -> None:
        """Stop and start again on the same ports: its runtime overrides are gone, its endpoints are not."""
        await self.stop()
        await self._launch()

    async def stop(self) -> None:
        if self._child is not None:
            await terminate(self._child, STOP_GRACE_S)
            self._child = None

    async def _launch(self) -> None:
        config, address_file = self._workdir / "envoy.json", self._workdir / "envoy-admin.txt"
        log = self._workdir / "envoy.log"
        address_file.unlink(missing_ok=True)
        replace_json(config, bootstrap(CLUSTER, self.endpoints.path, self._listen_port, self._admin_port))
        command = [
            find_envoy(),
            *("-c", str(config), "--admin-address-path", str(address_file)),
            *("--concurrency", "1", "--disable-hot-restart", "-l", "warn"),
        ]
        with log.open("ab") as output:
            self._child = spawn(command, output)
        try:
            address = await wait_for_file(address_file, self._child, log, START_DEADLINE_S)
            self._admin_port = int(address.rsplit(":", 1)[1])
            await self._wait_ready(log)
        except BaseException:
            await self.stop()
            raise

    async def _wait_ready(self, log: Path) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + START_DEADLINE_S
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while loop.time() < until:
                try:
                    async with session.get(f"{self.admin_url}/ready") as answer:
                        ready = answer.status == 200
                    if ready:
                        async with session.get(f"{self.admin_url}/listeners?format=json") as answer:
                            document = json.loads(await answer.text())
                        address = document["listener_statuses"][0]["local_address"]["socket_address"]
                        self._listen_port = int(address["port_value"])
                        return
                except (aiohttp.ClientError, KeyError, IndexError):
                    pass  # not up yet; the deadline decides
                await asyncio.sleep(0.05)
        raise ChildError(f"expected Envoy ready within {START_DEADLINE_S:g} s, found it not: see {log}")
