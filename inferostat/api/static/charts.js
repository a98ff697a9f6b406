// Time charts on canvas: lines with gaps where nothing is known, bands for faults, marks for actions, one shared cursor.

import { el, setAttribute, setText } from "./dom.js";
import { clock, duration, number } from "./format.js";

const CHARTS = [
  { title: "Demand and goodput", unit: "req/s", format: number, lines: [
    { field: "capacity_mu", label: "capacity", color: "--c-muted", dash: true },
    { field: "attempts_rate", label: "attempts", color: "--c-red" },
    { field: "offered_rate", label: "offered", color: "--c-blue" },
    { field: "goodput_rate", label: "goodput", color: "--c-green", fill: true }] },
  { title: "Latency", unit: "s", format: duration, lines: [
    { field: "slo.ttft_s", label: "TTFT objective", color: "--c-muted", dash: true, constant: true },
    { field: "ttft_p95_s", label: "TTFT p95", color: "--c-violet" },
    { field: "queue_wait_s", label: "queue wait", color: "--c-amber" }] },
  { title: "Requests in the engines", unit: "", format: number, lines: [
    { field: "running", label: "running", color: "--c-blue" },
    { field: "waiting", label: "waiting", color: "--c-amber", fill: true }] },
  { title: "In flight and its limit", unit: "", format: number, lines: [
    { field: "active", label: "in flight", color: "--c-blue" },
    { field: "breaker", label: "limit in force", color: "--c-red", step: true }] },
  { title: "Let in at the door", unit: "%", format: number, max: 100, lines: [
    { field: "admission", label: "new requests", color: "--c-blue", step: true },
    { field: "retry_budget", label: "retries", color: "--c-amber", step: true }] },
  { title: "Success per dollar", unit: "", format: number, lines: [
    { field: "success_per_dollar", label: "success per dollar", color: "--c-green", fill: true }] },
];
const PAD = { left: 44, right: 10, top: 8, bottom: 18 };
const HEIGHT = 150;
const TIME_STEPS_S = [15, 30, 60, 120, 300, 600];
const MARK_COLORS = { fault: "--c-amber", recovery: "--c-muted", action: "--c-blue", finding: "--c-red" };

/** All charts of the page; they share the time range and the cursor. */
export class Charts {
  constructor(parent) {
    this.cursor = null;
    this.charts = CHARTS.map((spec) => new Chart(spec, (at) => this.point(at)));
    parent.append(...this.charts.map((chart) => chart.figure));
    new ResizeObserver(() => this.draw()).observe(parent);
  }

  show(series, slo, events, from, to) {
    this.data = { series, slo, events, from, to };
    this.draw();
  }

  point(at) {
    this.cursor = at;
    this.draw();
  }

  draw() {
    if (!this.data) return;
    for (const chart of this.charts) chart.draw(this.data, this.cursor);
  }
}

class Chart {
  constructor(spec, onPoint) {
    this.spec = spec;
    this.canvas = el("canvas", { role: "img", height: HEIGHT });
    this.values = spec.lines.map(() => el("b", {}));
    const legend = el("ul", { class: "legend" }, ...spec.lines.map((line, index) => {
      const swatch = el("span", { class: line.dash ? "swatch dash" : "swatch" });
      swatch.style.setProperty("--swatch", `var(${line.color})`);
      return el("li", {}, swatch, `${line.label} `, this.values[index]);
    }));
    this.note = el("p", { class: "chart-note", "aria-hidden": "true" });
    this.figure = el("figure", { class: "chart" }, el("figcaption", {}, el("h3", {}, spec.title), legend),
      el("div", { class: "plot" }, this.canvas, this.note));
    this.canvas.addEventListener("pointermove", (event) => onPoint(this.timeAt(event.offsetX)));
    this.canvas.addEventListener("pointerleave", () => onPoint(null));
  }

  timeAt(x) {
    const share = (x - PAD.left) / Math.max(1, this.canvas.clientWidth - PAD.left - PAD.right);
    return this.range ? this.range.from + Math.max(0, Math.min(1, share)) * (this.range.to - this.range.from) : null;
  }

  draw({ series, slo, events, from, to }, cursor) {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    this.range = { from, to };
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(HEIGHT * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(HEIGHT * ratio);
    }
    const g = this.canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, HEIGHT);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const at = series?.at ?? [];
    const first = lowerBound(at, from);
    const lines = this.spec.lines.map((line) => valuesOf(line, series, slo, at.length));
    const known = lines.flatMap((values) => values.slice(first)).filter((value) => value !== null);
    const top = this.spec.max ?? niceTop(Math.max(0, ...known));
    const x = (time) => PAD.left + ((time - from) / (to - from)) * (width - PAD.left - PAD.right);
    const y = (value) => HEIGHT - PAD.bottom - (value / top) * (HEIGHT - PAD.top - PAD.bottom);

    bands(g, events, from, to, x, color);
    axes(g, this.spec, width, top, from, to, x, y, color);
    marks(g, events, from, to, x, color);
    this.spec.lines.forEach((line, index) => drawLine(g, line, at, lines[index], first, x, y, color(line.color)));
    if (known.length === 0) {
      g.fillStyle = color("--muted");
      g.textAlign = "center";
      const limits = this.spec.lines.every((line) => line.step);
      g.fillText(limits ? "no limit in this window" : "nothing known in this window", (PAD.left + width) / 2, HEIGHT / 2);
    }
    const index = cursor === null ? at.length - 1 : nearest(at, cursor);
    this.describe(lines, index, cursor, at, events, x, g, color);
  }

  describe(lines, index, cursor, at, events, x, g, color) {
    const texts = this.spec.lines.map((line, i) => valueText(line, lines[i][index], this.spec));
    texts.forEach((text, i) => setText(this.values[i], text));
    setAttribute(this.canvas, "aria-label",
      `${this.spec.title}: ${this.spec.lines.map((line, i) => `${line.label} ${texts[i]}`).join(", ")}`);
    if (cursor === null || index < 0) { setText(this.note, ""); return; }
    g.strokeStyle = color("--text");
    g.globalAlpha = 0.5;
    g.beginPath();
    g.moveTo(Math.round(x(at[index])) + 0.5, PAD.top);
    g.lineTo(Math.round(x(at[index])) + 0.5, HEIGHT - PAD.bottom);
    g.stroke();
    g.globalAlpha = 1;
    const near = (this.range.to - this.range.from) / 60;
    const told = events.filter((event) => event.marked && Math.abs(event.at - cursor) <= near).slice(0, 2);
    setText(this.note, [clock(at[index]), ...told.map((event) => event.title)].join(" · "));
  }
}

function valuesOf(line, series, slo, length) {
  if (line.constant) return new Array(length).fill(slo?.[line.field.split(".")[1]] ?? null);
  return series?.[line.field] ?? new Array(length).fill(null);
}

function valueText(line, value, spec) {
  // a limit without a number is off or cannot be read: the card of the limits in force says which
  if (value === null || value === undefined) return line.step ? "–" : "unknown";
  const text = spec.format(value);
  return spec.unit === "%" ? `${text} %` : text;
}

function drawLine(g, line, at, values, first, x, y, stroke) {
  const from = Math.max(0, first - 1);
  g.strokeStyle = stroke;
  g.lineWidth = line.dash ? 1.25 : 1.75;
  g.lineJoin = "round";
  g.setLineDash(line.dash ? [4, 4] : []);
  for (const run of runs(values, from)) {
    g.beginPath();
    for (let i = run.start; i < run.end; i += 1) {
      if (i === run.start) g.moveTo(x(at[i]), y(values[i]));
      else {
        if (line.step) g.lineTo(x(at[i]), y(values[i - 1]));
        g.lineTo(x(at[i]), y(values[i]));
      }
    }
    if (run.end - run.start === 1) g.lineTo(x(at[run.start]) + 1, y(values[run.start]));
    g.stroke();
    if (line.fill) {
      g.lineTo(x(at[run.end - 1]), y(0));
      g.lineTo(x(at[run.start]), y(0));
      g.closePath();
      g.globalAlpha = 0.13;
      g.fillStyle = stroke;
      g.fill();
      g.globalAlpha = 1;
    }
  }
  g.setLineDash([]);
}

/** Stretches without a gap: an unknown point breaks the line, it does not pull it to zero. */
function* runs(values, from) {
  let start = -1;
  for (let i = from; i <= values.length; i += 1) {
    const isKnown = i < values.length && values[i] !== null;
    if (isKnown && start < 0) start = i;
    if (!isKnown && start >= 0) { yield { start, end: i }; start = -1; }
  }
}

function axes(g, spec, width, top, from, to, x, y, color) {
  g.font = "11px system-ui, sans-serif";
  g.fillStyle = color("--muted");
  g.strokeStyle = color("--line");
  g.lineWidth = 1;
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    const level = Math.round(y(top * share)) + 0.5;
    g.beginPath();
    g.moveTo(PAD.left, level);
    g.lineTo(width - PAD.right, level);
    g.stroke();
    g.fillText(share === 0 ? "0" : spec.format(top * share).replace(" ", ""), PAD.left - 6, level);
  }
  g.textBaseline = "alphabetic";
  const most = Math.max(2, Math.floor((width - PAD.left) / 64));
  const step = TIME_STEPS_S.find((candidate) => (to - from) / candidate <= most) ?? to - from;
  for (let back = 0; back <= to - from; back += step) {
    const text = back === 0 ? "now" : step >= 60 ? `−${back / 60} min` : `−${back} s`;
    g.textAlign = back === 0 ? "right" : x(to - back) < PAD.left + 20 ? "left" : "center";
    g.fillText(text, x(to - back), HEIGHT - 4);
  }
}

/** Shaded from each fault to its end; where faults overlap the shade is the same. */
function bands(g, events, from, to, x, color) {
  g.fillStyle = color("--c-amber");
  g.globalAlpha = 0.11;
  for (const [start, end] of faultTimes(events, to)) {
    if (end < from) continue;
    const left = x(Math.max(from, start));
    g.fillRect(left, PAD.top, x(Math.min(to, end)) - left, HEIGHT - PAD.top - PAD.bottom);
  }
  g.globalAlpha = 1;
}

/** Times with any fault in force, in order and apart, from titles such as `fault over: slow 1.7x: engine-0, engine-1`. */
export function faultTimes(events, now) {
  const open = new Set();
  const times = [];
  let start = null;
  for (const event of [...events].reverse()) {
    const [what, name, targets] = event.title.split(": ");
    if (targets === undefined || (what !== "fault" && what !== "fault over")) continue;
    for (const target of targets.split(", ")) {
      if (what === "fault") open.add(`${name}: ${target}`);
      else open.delete(`${name}: ${target}`);
    }
    if (start === null && open.size > 0) start = event.at;
    if (start !== null && open.size === 0) {
      times.push([start, event.at]);
      start = null;
    }
  }
  if (start !== null) times.push([start, now]);
  return times;
}

function marks(g, events, from, to, x, color) {
  for (const event of events) {
    if (!event.marked || event.at < from || event.at > to) continue;
    const at = Math.round(x(event.at)) + 0.5;
    g.strokeStyle = g.fillStyle = color(MARK_COLORS[event.kind] ?? "--c-muted");
    g.globalAlpha = 0.75;
    g.setLineDash(event.kind === "action" ? [2, 3] : []);
    g.beginPath();
    g.moveTo(at, PAD.top);
    g.lineTo(at, HEIGHT - PAD.bottom);
    g.stroke();
    g.setLineDash([]);
    g.globalAlpha = 1;
    g.beginPath();
    g.moveTo(at - 4, PAD.top - 6);
    g.lineTo(at + 4, PAD.top - 6);
    g.lineTo(at, PAD.top + 1);
    g.fill();
  }
}

function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value * 1.05));
  return [1, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 1.05) * power;
}

function lowerBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function nearest(sorted, value) {
  const after = lowerBound(sorted, value);
  if (after === 0) return sorted.length ? 0 : -1;
  if (after === sorted.length) return after - 1;
  return value - sorted[after - 1] < sorted[after] - value ? after - 1 : after;
}
