// What a visitor may do: pause and resume, and in the embedded fleet break things and watch.

import { el, follow, setText } from "./dom.js";
import { number } from "./format.js";

const FAULT_S = 45;
const token = document.querySelector('meta[name="control-token"]')?.content ?? null;

const FAULTS = [
  { label: "Slow all GPUs 1.7×", note: "45 s: the retry storm", path: "faults", body: () => ({ kind: "slow", targets: "all", g: 1.7, duration_s: FAULT_S }) },
  { label: "Slow one GPU 3×", note: "45 s", path: "faults", body: (one) => ({ kind: "slow", targets: [one], g: 3, duration_s: FAULT_S }) },
  { label: "Hang one engine", note: "until recovered", path: "faults", body: (one) => ({ kind: "hang", targets: [one] }) },
  { label: "Crash one engine", note: "until recovered", path: "faults", body: (one) => ({ kind: "crash", targets: [one] }) },
  { label: "Double the load", note: "45 s", path: "load", body: () => ({ factor: 2, duration_s: FAULT_S }) },
  { label: "Recover everything", note: "", path: "faults", body: () => ({ recover: true }), good: true },
];

let latest = null;

async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  if (response.ok) return null;
  const answer = await response.json().catch(() => ({}));
  return answer.error ?? `HTTP ${response.status}`;
}

/** A serving endpoint to break, the last one: the first is what a reader's eye is on. */
function victim() {
  const faulty = new Set((latest?.fleet?.replicas ?? []).filter((r) => r.g !== null && r.g !== 1).map((r) => r.name));
  const serving = (latest?.endpoints ?? []).filter((row) => row.state === "serving" && !faulty.has(row.name));
  return serving.at(-1)?.name ?? null;
}

export function prepareControls(say) {
  const pause = document.getElementById("pause");
  pause.hidden = token === null;
  pause.addEventListener("click", async () => {
    const path = latest?.paused ? "/api/v1/resume" : "/api/v1/pause";
    const error = await post(path, latest?.paused ? {} : { reason: "from the page" }).catch(String);
    if (error) say(error);
  });
  const place = document.getElementById("break-buttons");
  if (place === null) return;
  place.append(...FAULTS.map((fault) => el("button", {
    type: "button", class: fault.good ? "good" : "fault", "data-fault": fault.label, onclick: () => breakIt(fault),
  }, el("span", {}, fault.label), el("small", {}, fault.note))));
}

async function breakIt(fault) {
  const answer = document.getElementById("break-answer");
  const body = fault.body(victim());
  if (Array.isArray(body.targets) && body.targets[0] === null) {
    setText(answer, "No serving endpoint is left to break.");
    return;
  }
  setText(answer, `Sending: ${fault.label}…`);
  const error = await post(`/api/v1/fleet/${fault.path}`, body).catch(String);
  const whom = Array.isArray(body.targets) ? ` (${body.targets[0]})` : "";
  setText(answer, error ? `Not done: ${error}` : `Done: ${fault.label}${whom}. Watch the charts.`);
}

/** What the load generator measured, beside what the agent believes: the two should agree. */
function clientsText(clients) {
  const told = [["offered_rps", "offered"], ["attempts_rps", "attempts"], ["goodput_rps", "goodput"]]
    .filter(([name]) => typeof clients[name] === "number")
    .map(([name, label]) => `${label} ${number(clients[name])}/s`);
  return told.length ? `The clients themselves measured in the last 10 s: ${told.join(", ")}.` : "";
}

export function showControls(status) {
  latest = status;
  const pause = document.getElementById("pause");
  setText(pause, status.paused ? "Resume acting" : "Pause acting");
  pause.setAttribute("aria-pressed", String(status.paused !== null));
  const place = document.getElementById("faults");
  if (place === null || status.fleet === null) return;
  const fleet = status.fleet;
  setText(document.getElementById("clients"), clientsText(fleet.clients));
  const chips = fleet.faults.map((f) => ({ text: f.text, left: f.until ? Math.max(0, Math.round(f.until - status.now)) : null }));
  if (fleet.load_factor !== null && fleet.load_factor !== 1) chips.push({ text: `load ×${fleet.load_factor}`, left: null });
  follow(place, chips, (chip) => chip.text, (chip) =>
    el("span", { class: "chip" }, `⚡ ${chip.text}${chip.left !== null ? ` · ${chip.left} s left` : ""}`));
}
