// The strip of numbers: what the pool is asked for, gives, costs, and what holds it back.

import { el, follow } from "./dom.js";
import { duration, leverValue, LEVER_NAMES, number, whyUnknown } from "./format.js";

const CARDS = [
  { name: "offered_rate", label: "Offered", unit: "req/s", hint: "first attempts" },
  { name: "attempts_rate", label: "Attempts", unit: "req/s", hint: "with retries" },
  { name: "goodput_rate", label: "Goodput", unit: "req/s", hint: "successes in time", slugs: ["retry-storm", "retry-storm-collapsed", "success-regression"], strong: true },
  { name: "amplification", label: "Amplification", unit: "×", hint: "attempts a request; 1: no retries", slugs: ["retry-storm", "retry-storm-collapsed", "retry-storm-incipient"] },
  { name: "vulnerability", label: "Vulnerability", unit: "", hint: "above 1 a trigger can tip the pool", slugs: ["vulnerable"] },
  { name: "capacity_mu", label: "Capacity", unit: "req/s", hint: "learnt from the engines" },
  { name: "queue_wait_s", label: "Queue wait", format: duration, unit: "", hint: "for a new request", slugs: ["saturated", "queue-growing", "retry-storm", "retry-storm-collapsed"] },
  { name: "success_per_dollar", label: "Success / dollar", unit: "", hint: "idle replicas cost too", slugs: ["cost-regression"], strong: true },
];
const SPARK_POINTS = 120;

/** A card takes the tone of the finding that is about its number: the page has no thresholds of its own. */
export function showNumbers(pool, series, status) {
  const about = status.findings.filter((finding) => finding.pool === null || finding.pool === pool.name);
  const cards = CARDS.map((card) => ({
    id: card.name, card, cell: withoutAge(pool.numbers[card.name]),
    spark: sparkPath(series?.[card.name]), tone: tone(card, about),
  }));
  const limits = pool.levers.map((lever) => ({ lever: lever.lever, known: lever.known, value: lever.value,
    ready: lever.ready, reason: lever.reason, owner: lever.owner }));
  const items = [...cards, { id: "limits", limits, mode: status.mode }];
  follow(document.getElementById("numbers"), items, (item) => item.id, (item) =>
    item.limits ? limitsCard(item) : numberCard(item));
}

function tone(card, findings) {
  const found = findings.filter((finding) => card.slugs?.includes(finding.slug)).map((finding) => finding.severity);
  return found.includes("critical") ? "critical" : found.length ? "warning" : null;
}

function withoutAge({ age_s: _, ...cell }) {
  return cell;
}

function numberCard({ card, cell, spark, tone: toned }) {
  const known = cell.value !== null;
  const value = known
    ? el("p", { class: "number-value" }, (card.format ?? number)(cell.value), el("small", {}, card.unit))
    : el("p", { class: "number-value unknown", title: cell.reason }, "unknown");
  const hint = known ? card.hint : `${whyUnknown(cell.state)}: ${cell.reason}`;
  return el("article", { class: `number ${card.strong ? "strong" : ""}`, id: `number-${card.name}`, "data-tone": toned },
    el("h3", {}, card.label), value, el("p", { class: "muted small" }, hint), sparkline(spark));
}

function limitsCard({ limits, mode }) {
  const rows = limits.map((lever) => {
    const held = lever.known && lever.value !== null && lever.lever !== "scale";
    const text = !lever.known ? `unknown: ${lever.reason}` : lever.lever === "scale"
      ? `${lever.value ?? "?"}${lever.ready !== null ? ` (${lever.ready} ready)` : ""}` : leverValue(lever.lever, lever.value);
    return el("div", { class: held ? "limit held" : "limit" }, el("dt", {}, LEVER_NAMES[lever.lever] ?? lever.lever),
      el("dd", { class: lever.known ? "" : "unknown" }, text, lever.owner ? el("small", {}, ` set by ${lever.owner}`) : null));
  });
  const empty = el("p", { class: "muted small" }, `no lever is read in mode ${mode}`);
  return el("article", { class: "number limits", id: "number-limits" }, el("h3", {}, "Limits in force"),
    rows.length ? el("dl", {}, ...rows) : empty);
}

// the path is rounded to whole pixels: it changes, and the card with it, only when it looks different
function sparkPath(values) {
  if (!values) return "";
  const recent = values.slice(-SPARK_POINTS);
  const known = recent.filter((value) => value !== null);
  if (known.length < 2) return "";
  const low = Math.min(0, ...known);
  const span = Math.max(...known) - low || 1;
  let path = "";
  let pen = "M";
  recent.forEach((value, index) => {
    if (value === null) { pen = "M"; return; }
    const x = Math.round((index / (SPARK_POINTS - 1)) * 120);
    const y = Math.round(23 - ((value - low) / span) * 22);
    path += `${pen}${x} ${y}`;
    pen = "L";
  });
  return path;
}

function sparkline(path) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 120 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "spark");
  const line = document.createElementNS(space, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}
