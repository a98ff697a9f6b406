// One request a second, everything on the page from its answer.

import { Charts } from "./charts.js";
import { prepareControls, showControls } from "./controls.js";
import { el, setAttribute, setText } from "./dom.js";
import { showFindings } from "./findings.js";
import { showFleet } from "./fleet.js";
import { ago } from "./format.js";
import { showNumbers } from "./numbers.js";
import { cycleText, showActions, showDecision, showSources, showTimeline } from "./panels.js";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 5000;
const KEPT_POINTS = 900;
const STALE_CYCLES = 3;
const LAG_LIMIT_S = 0.05;
const SHORTEST_RANGE_S = 60;
const RANGES = [[120, "2 min"], [300, "5 min"], [900, "15 min"]];
const MARKS = { ok: "✓", info: "i", warning: "!", critical: "‼", unknown: "?" };

const byId = (id) => document.getElementById(id);
const state = { status: null, series: {}, startedAt: null, receivedAt: 0, failedSince: null, range: 300, pool: null };
const charts = new Charts(byId("charts"));

function merge(fresh) {
  for (const name of Object.keys(state.series)) if (!(name in fresh)) delete state.series[name];
  for (const [pool, columns] of Object.entries(fresh)) {
    const kept = (state.series[pool] ??= {});
    for (const [field, values] of Object.entries(columns)) {
      kept[field] = (kept[field] ?? []).concat(values).slice(-KEPT_POINTS);
    }
  }
}

function lastPoint() {
  const times = Object.values(state.series).map((columns) => columns.at.at(-1) ?? 0);
  return times.length ? Math.min(...times) : 0;
}

async function poll() {
  const since = lastPoint();
  const query = since > 0 ? `?since=${since}` : "";
  const response = await fetch(`/api/v1/status${query}`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  const status = await response.json();
  if (state.startedAt !== null && status.started_at !== state.startedAt) {
    state.series = {};
    state.startedAt = status.started_at;
    return poll();
  }
  state.startedAt = status.started_at;
  state.receivedAt = performance.now();
  state.failedSince = null;
  merge(status.series);
  state.status = status;
  return show();
}

function show() {
  const { status } = state;
  showTop(status);
  showControls(status);
  showFindings(status);
  showDecision(status);
  showActions(status);
  showTimeline(status);
  showSources(status);
  const pool = status.pools.find((candidate) => candidate.name === state.pool) ?? status.pools[0];
  showPools(status.pools, pool);
  if (pool === undefined) return;
  showNumbers(pool, state.series[pool.name], status);
  showFleet(status, pool.name);
  // a young agent's charts begin with its first point, so that they are not mostly empty
  const first = state.series[pool.name]?.at[0] ?? status.now;
  const from = Math.max(status.now - state.range, Math.min(first, status.now - SHORTEST_RANGE_S));
  charts.show(state.series[pool.name], pool.slo, status.events, from, status.now);
}

function showTop(status) {
  setText(byId("mode"), `${status.embedded ? "embedded fleet · " : ""}mode ${status.mode}${status.paused ? " · paused" : ""}`);
  setAttribute(byId("mode"), "data-mode", status.paused ? "paused" : status.mode);
  setAttribute(byId("hero"), "data-level", status.headline.level);
  setText(byId("hero-mark"), MARKS[status.headline.level] ?? "?");
  setText(byId("hero-title"), status.headline.title);
  setText(byId("announce"), `${status.headline.level}: ${status.headline.name}`);
  setText(byId("hero-detail"), status.headline.detail);
  setText(byId("report"), cycleText(status.cycle));
  setText(document.querySelector("title"), `${MARKS[status.headline.level] ?? "?"} ${status.headline.title} · inferostat`);
  notice("paused", status.paused ? `Acting is paused${status.paused.reason ? ` (${status.paused.reason})` : ""}: nothing is changed until it is resumed.` : "");
  const lag = status.fleet?.loop_lag_p99_s ?? null;
  notice("slow-machine", lag !== null && lag > LAG_LIMIT_S
    ? `This machine is too slow for honest times: the fleet's event loop lags ${Math.round(lag * 1000)} ms (p99).` : "");
}

function notice(id, text) {
  const node = byId(id);
  setText(node, text);
  if (node.hidden !== (text === "")) node.hidden = text === "";
}

function showPools(pools, current) {
  const place = byId("pools");
  place.hidden = pools.length < 2;
  const wanted = pools.map((pool) => pool.name);
  if (place.dataset.names !== JSON.stringify(wanted)) {
    place.dataset.names = JSON.stringify(wanted);
    place.replaceChildren(...wanted.map((name) => el("button", { type: "button", onclick: () => { state.pool = name; show(); } }, name)));
  }
  for (const button of place.children) button.setAttribute("aria-pressed", String(button.textContent === current?.name));
}

/** Age of what is shown, and whether the agent still answers: runs on its own, also when nothing arrives. */
function showAge() {
  const { status } = state;
  const waited = (performance.now() - state.receivedAt) / 1000;
  const age = status?.cycle ? status.now - status.cycle.at + waited : null;
  const lost = state.failedSince !== null;
  const limit = status?.cycle ? STALE_CYCLES * Math.max(1, status.cycle.interval_s) : Infinity;
  const stale = age !== null && age > limit;
  setText(byId("age"), age === null ? (lost ? "no connection" : "waiting for the first cycle") : `data ${ago(age)}`);
  setAttribute(byId("beat"), "data-beat", lost ? "lost" : stale ? "stale" : "live");
  document.body.classList.toggle("stale", lost || stale);
  notice("lost", lost ? `Connection to the agent lost${age === null ? "" : `; what you see is from ${ago(age)}`}. Trying again every second.`
    : stale ? `The agent answers but its last cycle is from ${ago(age)}: the loop may hang.` : "");
}

function showRanges() {
  byId("ranges").replaceChildren(...RANGES.map(([seconds, label]) => el("button", {
    type: "button", "aria-pressed": String(seconds === state.range),
    onclick: () => { state.range = seconds; showRanges(); if (state.status) show(); },
  }, label)));
}

function prepareTheme() {
  const root = document.documentElement;
  const stored = localStorage.getItem("theme");
  if (stored) root.dataset.theme = stored;
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    charts.draw();
  });
}

async function run() {
  const started = performance.now();
  try {
    await poll();
  } catch {
    state.failedSince ??= performance.now();
  }
  showAge();
  setTimeout(run, Math.max(100, PERIOD_MS - (performance.now() - started)));
}

prepareTheme();
showRanges();
prepareControls((text) => notice("lost", text));
setInterval(showAge, PERIOD_MS);
run();
