// The fleet table: a row per endpoint. A cell shows a number or says why there is none.

import { el, follow, setText } from "./dom.js";
import { duration, inUnit, number, whyUnknown } from "./format.js";

const STATE_NAMES = { serving: "serving", unreachable: "unreachable", unknown: "unknown" };

export function showFleet(status, pool) {
  const rows = status.endpoints.filter((row) => row.pool === null || row.pool === pool);
  const badges = endpointFindings(status.findings);
  const body = document.getElementById("fleet");
  const most = Math.max(1, ...rows.map((row) => row.cells.running.value ?? 0));
  const items = rows.map((row) => ({ row: withoutAges(row), findings: badges.get(row.name) ?? [], most }));
  follow(body, items, (item) => item.row.address, buildRow);
  const fleet = status.fleet;
  const wanted = fleet ? ` · ${fleet.ready ?? "?"} ready of ${fleet.target ?? "?"} wanted, at most ${fleet.max_replicas ?? "?"}` : "";
  setText(document.getElementById("fleet-note"), `${rows.length} endpoints${wanted}`);
}

// ages change every second: without them a row is rebuilt only when something a person sees has changed
function withoutAges(row) {
  const cells = {};
  for (const [name, cell] of Object.entries(row.cells)) {
    const { age_s: _, ...rest } = cell;
    cells[name] = rest;
  }
  return { ...row, cells };
}

function endpointFindings(findings) {
  const found = new Map();
  for (const finding of findings) {
    const [kind, ...name] = finding.scope.split("/");
    if (kind !== "endpoint" && kind !== "target") continue;
    const key = name.join("/");
    found.set(key, [...(found.get(key) ?? []), { slug: finding.slug, severity: finding.severity }]);
  }
  return found;
}

function buildRow({ row, findings, most }) {
  const c = row.cells;
  const detail = [row.address, row.build].filter(Boolean).join(" · ");
  return el("tr", { "data-state": row.state },
    el("th", { scope: "row", "data-label": "Endpoint" }, el("span", { class: "name" }, row.name),
      el("span", { class: "muted small" }, detail)),
    el("td", { "data-label": "State" }, statePill(row)),
    el("td", { class: "n", "data-label": "Running" }, barCell(c.running, most, number)),
    el("td", { class: "n", "data-label": "Waiting" }, cell(c.waiting, number, c.waiting.value > 0 ? "warn" : "")),
    el("td", { "data-label": "KV cache" }, barCell(c.kv, 1, (v) => inUnit(v, "share"))),
    el("td", { class: "n", "data-label": "TTFT p95" }, cell(c.ttft_p95, duration)),
    el("td", { class: "n", "data-label": "ITL" }, cell(c.itl_mean, duration)),
    el("td", { class: "n", "data-label": "Tokens/s" }, cell(c.tokens, number)),
    el("td", { class: "n", "data-label": "Weight" }, cell(c.weight, number)),
    el("td", { class: "n", "data-label": "HBM/compute" }, cell(c.hbm_compute_ratio, number)),
    el("td", { "data-label": "Findings" }, ...findings.map((f) => badge(f.slug, f.severity))),
  );
}

function statePill(row) {
  const isSlow = row.slowness !== null && row.slowness > 1.001;
  const slow = isSlow ? ` · ${number(row.slowness)}× slower` : "";
  return el("span", { class: "pill", "data-state": row.state, "data-slow": isSlow, title: row.error ?? undefined },
    `${STATE_NAMES[row.state] ?? row.state}${slow}`);
}

/** address -> name: levers act on addresses, people know names. */
export function names(status) {
  return new Map(status.endpoints.map((row) => [row.address, row.name]));
}

export function badge(text, severity) {
  return el("span", { class: "badge", "data-severity": severity }, text);
}

/** A number, `idle`, `default`, or `unknown` with the reason in plain sight. */
export function cell(item, format, tone = "") {
  if (item.value !== null) {
    const sign = item.censor === "above" ? "≥ " : item.censor === "below" ? "≤ " : "";
    return el("span", { class: `value ${tone}`, "data-known": item.state, title: item.reason || undefined },
      `${sign}${format(item.value)}`);
  }
  if (item.state === "known") return el("span", { class: "muted", title: item.reason }, "default");
  if (item.state === "idle") return el("span", { class: "muted", title: item.reason }, "idle");
  return el("span", { class: "unknown", title: item.reason }, "unknown",
    el("span", { class: "why" }, whyUnknown(item.state)));
}

function barCell(item, most, format) {
  const shown = cell(item, format);
  if (item.value === null) return shown;
  const share = Math.max(0, Math.min(1, item.value / most));
  const fill = el("span", { class: share >= 0.9 && most === 1 ? "fill full" : "fill" });
  fill.style.width = `${(share * 100).toFixed(1)}%`;
  return el("span", { class: "bar-cell" }, shown, el("span", { class: "bar", "aria-hidden": "true" }, fill));
}
