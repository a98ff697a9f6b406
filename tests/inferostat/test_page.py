"""The page in a real headless Chromium, over a board with a made-up incident."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from analyzers.model import Finding, Layer, Scope, ScopeKind, Severity
from collector.model import Pool
from inferostat.api.controls import FaultOrder, LoadOrder
from inferostat.api.server import StatusServer
from inferostat.api.state import Pause, StatusBoard
from tests.inferostat.api_fakes import FakeControls, board_after, services
from tests.inferostat.incident import FAULT_FROM, FAULT_TO, HOSTILE, POOL, START, Incident

CHROMIUM, CHROMEDRIVER = shutil.which("chromium"), shutil.which("chromedriver")
STORM = FAULT_FROM + 35
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1500,1000",
)  # fmt: skip

pytestmark = [
    pytest.mark.component,
    pytest.mark.skipif(
        CHROMIUM is None or CHROMEDRIVER is None, reason="needs chromium and chromedriver; install both"
    ),
]


@dataclass
class Served:
    """A server in a thread of its own, because the browser's driver blocks; `do` runs in its event loop."""

    url: str
    board: StatusBoard
    controls: FakeControls
    loop: asyncio.AbstractEventLoop
    server: StatusServer

    def do(self, function: Callable[[], None]) -> None:
        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result(5)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.close(), self.loop).result(5)


@contextmanager
def serving(board: StatusBoard, now: float, embedded: bool = True) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made, controls = services(board, now, embedded)
    server = StatusServer(made)
    try:
        url = asyncio.run_coroutine_threadsafe(server.start(), loop).result(5)
        yield Served(url, board, controls, loop, server)
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(5)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(CHROMEDRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The shared browser on an empty page; whatever it logged belongs to one test."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    chromium.set_window_size(1500, 1000)
    yield chromium
    chromium.get("about:blank")


def eventually(condition: Callable[[], object], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the page did not get there in time"
        time.sleep(0.05)


def text(browser: webdriver.Chrome, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def rows(browser: webdriver.Chrome) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, "#fleet tr")


def opened(browser: webdriver.Chrome, served: Served) -> None:
    browser.get(served.url)
    eventually(lambda: rows(browser))


def errors(browser: webdriver.Chrome) -> list[object]:
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_the_state_of_an_incident_is_on_the_page(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with serving(board_after(STORM), START + STORM) as served:
        opened(browser, served)
        assert text(browser, "#hero-title").startswith("Retry storm: ")
        assert browser.find_element(By.ID, "hero").get_attribute("data-level") == "critical"
        assert text(browser, "#mode") == "embedded fleet · mode act"
        assert "admission" in text(browser, "#number-limits") and "80 %" in text(browser, "#number-limits")
        assert "48 requests" in text(browser, "#number-limits")
        assert "retry-storm" in text(browser, "#findings")
        assert browser.find_element(By.CSS_SELECTOR, '#findings a[href="/runbook/retry-storm"]')
        assert "at most a quarter down a cycle" in text(browser, "#decision")
        assert "concurrency limit default off → 48 requests in 2 moves" in text(browser, "#actions")
        assert "queue_wait_s down past 3" in text(browser, "#actions")
        assert "fault: slow 1.7x" in text(browser, "#timeline")
        assert "⚡ slow 1.7x" in text(browser, "#faults")
        labels = [c.get_attribute("aria-label") or "" for c in browser.find_elements(By.TAG_NAME, "canvas")]
        assert len(labels) == 6 and "limit in force 48" in labels[3]
        drawn = "return [...document.querySelectorAll('canvas')].map(c => c.getContext('2d')" \
            ".getImageData(0, 0, c.width, c.height).data.some(v => v > 0))"  # fmt: skip
        assert browser.execute_script(drawn) == [True] * 6
        browser.save_screenshot(str(tmp_path / "page.png"))
        assert errors(browser) == []


def test_unknown_is_shown_with_its_reason_and_never_as_zero(browser: webdriver.Chrome) -> None:
    with serving(board_after(STORM), START + STORM) as served:
        opened(browser, served)
        lost, warming = rows(browser)[3], rows(browser)[4]
        for row, reason in ((lost, "stale"), (warming, "never seen")):
            cells = [cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
            assert cells[1] == f"unknown\n{reason}"
            assert all(cell.startswith("unknown") for cell in cells[1:9])
        assert lost.find_elements(By.CSS_SELECTOR, '.badge[data-severity="critical"]')
        assert "never as zero" in text(browser, "footer")


def test_capacity_that_is_not_learnt_yet_is_unknown(browser: webdriver.Chrome) -> None:
    with serving(board_after(5), START + 5) as served:
        opened(browser, served)
        assert text(browser, "#number-capacity_mu .number-value") == "unknown"
        assert text(browser, "#hero-title") == "Healthy: nothing needs attention"
        assert text(browser, "#number-limits .limit:nth-child(2) dd") == "off"


def test_hostile_names_stay_text(browser: webdriver.Chrome) -> None:
    incident = Incident(names=("engine-0", HOSTILE, "engine-2", "engine-3" + HOSTILE))
    board = board_after(STORM, incident)
    with serving(board, START + STORM) as served:
        served.do(lambda: board.pause(Pause(START, HOSTILE), START))
        opened(browser, served)
        assert rows(browser)[1].find_element(By.CSS_SELECTOR, ".name").text == HOSTILE
        assert HOSTILE in text(browser, "#findings") and HOSTILE in text(browser, "#sources")
        assert HOSTILE in text(browser, "#timeline") and HOSTILE in text(browser, "#paused")
        assert browser.execute_script("return window.hacked") is None
        foreign = "return document.querySelectorAll('main img, script:not([src])').length"
        assert browser.execute_script(foreign) == 0
        assert errors(browser) == []


def test_a_visitor_breaks_things_and_sees_it(browser: webdriver.Chrome) -> None:
    incident = Incident()
    board = board_after(FAULT_FROM - 2, incident)
    with serving(board, START + FAULT_FROM) as served:
        opened(browser, served)
        for label in (
            "Slow all GPUs 1.7×",
            "Slow one GPU 3×",
            "Crash one engine",
            "Double the load",
            "Recover everything",
        ):
            before = len(served.controls.asked)
            browser.find_element(By.CSS_SELECTOR, f'[data-fault="{label}"]').click()
            eventually(lambda before=before: len(served.controls.asked) > before)
        assert served.controls.asked == [
            FaultOrder("slow", (), 1.7, 45.0),
            FaultOrder("slow", ("engine-3",), 3.0, 45.0),
            FaultOrder("crash", ("engine-3",)),
            LoadOrder(2.0, 45.0),
            FaultOrder("recover"),
        ]
        eventually(lambda: text(browser, "#break-answer").startswith("Done: Recover everything"))
        assert text(browser, "#faults") == ""
        for number in range(FAULT_FROM - 2, FAULT_FROM + 20):
            view = incident.cycle(number)
            served.do(lambda view=view: board.publish(view))
        eventually(lambda: text(browser, "#hero-title").startswith("Retry storm"))
        assert "slow 1.7x" in text(browser, "#faults")
        assert errors(browser) == []


def test_pause_button_pauses_and_shows_everywhere(browser: webdriver.Chrome) -> None:
    with serving(board_after(5), START + 5) as served:
        opened(browser, served)
        browser.find_element(By.ID, "pause").click()
        eventually(lambda: text(browser, "#pause") == "Resume acting")
        assert "Acting is paused (from the page)" in text(browser, "#paused")
        assert text(browser, "#mode").endswith("paused")
        browser.find_element(By.ID, "pause").click()
        eventually(lambda: text(browser, "#pause") == "Pause acting")
        assert served.controls.asked == [("pause", "from the page"), "resume"]


def test_updates_keep_scroll_focus_and_opened_details(browser: webdriver.Chrome) -> None:
    incident = Incident()
    board = board_after(STORM, incident)
    with serving(board, START + STORM) as served:
        opened(browser, served)
        browser.find_element(By.CSS_SELECTOR, "#findings details:last-child summary").click()
        browser.execute_script("document.getElementById('timeline').scrollTop = 60; window.scrollTo(0, 500)")
        browser.execute_script("document.getElementById('theme').focus({preventScroll: true})")
        place = "return [scrollY, document.getElementById('timeline').scrollTop, document.activeElement.id]"
        before = browser.execute_script(place)
        view = incident.cycle(STORM)
        served.do(lambda: board.publish(view))
        eventually(lambda: f"Cycle {STORM} " in text(browser, "#report"))
        assert browser.execute_script(place) == before
        assert browser.find_element(By.CSS_SELECTOR, "#findings details:last-child").get_attribute("open")


def test_old_data_and_a_lost_agent_are_said(browser: webdriver.Chrome) -> None:
    board = board_after(FAULT_TO)
    with serving(board, START + FAULT_TO + 60) as served:  # the last cycle is a minute old
        opened(browser, served)
        eventually(lambda: "its last cycle is from" in text(browser, "#lost"))
        served.stop()
        eventually(lambda: "Connection to the agent lost" in text(browser, "#lost"), 15)
        assert "what you see is from" in text(browser, "#lost")
        assert text(browser, "#heartbeat").startswith("data ")


def test_a_real_fleet_has_no_buttons(browser: webdriver.Chrome) -> None:
    with serving(board_after(5, embedded=False), START + 5, embedded=False) as served:
        opened(browser, served)
        assert not browser.find_elements(By.ID, "break-buttons")
        assert not browser.find_element(By.ID, "pause").is_displayed()
        assert text(browser, "#mode") == "mode act"


@pytest.mark.parametrize(("width", "theme"), [(420, "dark"), (900, "light"), (1500, "dark")])
def test_nothing_is_cut_off_at_any_width(browser: webdriver.Chrome, width: int, theme: str) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    with serving(board_after(STORM), START + STORM) as served:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            opened(browser, served)
            browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
            sizes = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
            assert sizes[0] <= sizes[1]
        finally:
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_can_be_used_without_seeing_it(browser: webdriver.Chrome) -> None:
    with serving(board_after(STORM), START + STORM) as served:
        opened(browser, served)
        nameless = """return [...document.querySelectorAll('button, a, canvas, section, [role=group]')]
            .filter(e => e.getClientRects().length).filter(e => !(e.getAttribute('aria-label')
            || e.getAttribute('aria-labelledby') || e.textContent.trim())).map(e => e.outerHTML)"""
        assert browser.execute_script(nameless) == []
        dangling = """return [...document.querySelectorAll('[aria-labelledby]')]
            .filter(e => !document.getElementById(e.getAttribute('aria-labelledby'))).length"""
        assert browser.execute_script(dangling) == 0
        assert browser.find_element(By.ID, "announce").get_attribute("textContent") == "critical: Retry storm"
        assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1


def test_one_finding_on_many_endpoints_is_one_card(browser: webdriver.Chrome) -> None:
    board, view = StatusBoard("1", "act", embedded=True), Incident().cycle(0)
    board.configured("act")
    found = tuple(
        Finding("saturated", "IS0101", Severity.WARNING, Scope(ScopeKind.ENDPOINT, f"engine-{i}"), START, 0.9,
                f"engine-{i} is at its batch limit", Layer.QUEUE)
        for i in range(4)
    )  # fmt: skip
    board.publish(replace(view, analysis=replace(view.analysis, findings=found)))
    with serving(board, START) as served:
        opened(browser, served)
        cards = browser.find_elements(By.CSS_SELECTOR, "#findings details")
        assert [card.find_element(By.TAG_NAME, "strong").text for card in cards] == ["saturated × 4"]
        assert "engine-0, engine-1, engine-2, engine-3" in cards[0].text
        assert text(browser, "#findings-note") == "1 to look at"


def test_pools_can_be_chosen(browser: webdriver.Chrome) -> None:
    board, view = StatusBoard("1", "act", embedded=True), Incident().cycle(0)
    board.configured("act")
    topology = view.frame.topology
    first = topology.endpoints["engine-0"]
    both = replace(
        topology,
        pools={POOL: Pool(POOL, ("engine-1", "engine-2", "engine-3")), "batch": Pool("batch", ("engine-0",))},
        endpoints={**topology.endpoints, "engine-0": replace(first, pool="batch")},
    )
    board.publish(replace(view, frame=replace(view.frame, topology=both)))
    with serving(board, START) as served:
        opened(browser, served)
        assert len(rows(browser)) == 3
        buttons = browser.find_elements(By.CSS_SELECTOR, "#pools button")
        assert [button.text for button in buttons] == [POOL, "batch"]
        buttons[1].click()
        eventually(lambda: [row.find_element(By.CSS_SELECTOR, ".name").text for row in rows(browser)] == ["engine-0"])
        assert buttons[1].get_attribute("aria-pressed") == "true"
        assert text(browser, "#number-vulnerability .number-value") == "unknown"
