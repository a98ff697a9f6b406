// Decision, actions, timeline and sources.

import { el, follow, setText } from "./dom.js";
import { names } from "./fleet.js";
import { ago, clock, duration, leverValue, LEVER_NAMES, number } from "./format.js";

const byId = (id) => document.getElementById(id);
const RUN_GAP_S = 15;
const STATUS_MARKS = { applied: "✓", ignored: "≠", conflict: "⇄", failed: "✗", advised: "…" };
const VERDICT_MARKS = { verified: "✓", ineffective: "↩", inconclusive: "?", superseded: "→" };
const EVENT_MARKS = { fault: "⚡", recovery: "○", replica: "▣", finding: "!", cleared: "✓", action: "⚙", outcome: "✗",
  verdict: "⚖", target: "⌁", control: "‖" };

export function showDecision(status) {
  const decision = status.decision;
  setText(byId("decision-note"), decision ? `of ${clock(decision.at)}` : "");
  const known = names(status);
  const named = (item, when) => ({ ...item, when, whom: known.get(item.target) ?? item.target });
  const considered = (decision?.considered ?? []).map((item) => named(item, "now"));
  const now = new Set(considered.map((item) => `${item.lever}|${item.target}`));
  const earlier = [];
  for (const past of status.decisions) {
    for (const item of past.considered) {
      const key = `${item.lever}|${item.target}`;
      if (now.has(key) || past.at === decision?.at) continue;
      now.add(key);
      earlier.push(named(item, clock(past.at)));
    }
  }
  const items = [...considered, ...earlier.slice(0, 6)];
  if (!considered.length) items.unshift({ lever: "", target: "", none: true });
  follow(byId("decision"), items, (item) => `${item.lever}|${item.target}`, (item) => item.none
    ? el("p", { class: "muted empty" }, decision ? "No lever needs a move now." : "No decision yet.") : consideration(item));
}

function consideration(item) {
  const steps = item.steps.map((step) => el("li", { class: "step", "data-step": step.name },
    el("span", { class: "step-name" }, step.name), el("b", {}, leverValue(item.lever, step.value)),
    el("span", { class: "muted" }, step.reason)));
  return el("article", { class: "consideration", "data-when": item.when === "now" ? "now" : "earlier" },
    el("h3", {}, `${LEVER_NAMES[item.lever] ?? item.lever} `, el("span", { class: "scope" }, item.whom),
      item.when === "now" ? null : el("span", { class: "muted small" }, ` at ${item.when}`)),
    el("p", { class: "result" }, item.result), el("ol", { class: "steps" }, ...steps));
}

export function showActions(status) {
  const known = names(status);
  const runs = groupRuns(status.actions).map((run) => ({ ...run, whom: known.get(run.newest.target) ?? run.newest.target }));
  byId("actions-empty").hidden = runs.length > 0;
  follow(byId("actions"), runs, (run) => run.first, (run) => actionRow(run));
}

// a limit that follows the queue moves every cycle: moves of one lever with no pause between them are one row
function groupRuns(actions) {
  const runs = [];
  for (const action of actions) {
    const key = `${action.lever}|${action.target}`;
    const run = runs.findLast((candidate) => candidate.key === key);
    const joins = run && run.oldest.at - action.at <= RUN_GAP_S && !run.oldest.undo_of && !action.undo_of
      && run.oldest.before !== null && action.outcome?.status === run.newest.outcome?.status;
    if (joins) {
      run.oldest = action;
      run.moves += 1;
      run.verdict ??= action.verdict;
    } else runs.push({ key, newest: action, oldest: action, moves: 1, verdict: action.verdict });
  }
  return runs.map((run) => ({ ...run, first: run.oldest.id }));
}

function actionRow({ newest, oldest, moves, verdict, whom }) {
  const undo = newest.undo_of ? "undo: " : "";
  const moved = `${undo}${leverValue(newest.lever, oldest.before)} → ${leverValue(newest.lever, newest.after)}`;
  const outcome = newest.outcome;
  return el("tr", {},
    el("td", { class: "small nowrap", "data-label": "Time" }, clock(newest.at)),
    el("td", { "data-label": "Action" }, el("strong", {}, LEVER_NAMES[newest.lever] ?? newest.lever), " ",
      el("span", { class: "scope" }, whom), " ", el("b", { class: "nowrap" }, moved),
      moves > 1 ? el("span", { class: "muted small" }, ` in ${moves} moves`) : null,
      el("p", { class: "muted small" }, oldest.reason)),
    el("td", { "data-label": "Outcome" }, outcome
      ? el("span", { class: "outcome", "data-status": outcome.status, title: outcome.detail || undefined },
        `${STATUS_MARKS[outcome.status] ?? ""} ${outcome.status}`,
        el("span", { class: "muted small block" }, outcome.status === "applied"
          ? `read back ${leverValue(newest.lever, outcome.readback)}` : outcome.detail))
      : el("span", { class: "muted" }, newest.mode === "act" ? "sent…" : "advised only")),
    el("td", { "data-label": "Effect" }, effect(newest, oldest, verdict)));
}

function effect(newest, oldest, verdict) {
  if (verdict) {
    return el("span", { class: "verdict", "data-verdict": verdict.state },
      `${VERDICT_MARKS[verdict.state] ?? ""} ${verdict.state}`, el("span", { class: "muted small block" }, verdict.detail));
  }
  const expect = oldest.expect ?? newest.expect;
  if (!expect || newest.outcome?.status !== "applied") return el("span", { class: "muted" }, "–");
  return el("span", { class: "verdict" }, "… watching", el("span", { class: "muted small block" },
    `${expect.measure} ${expect.direction} past ${number(expect.bound)} by ${clock(expect.deadline)}`));
}

export function showTimeline(status) {
  const items = status.events.length ? status.events.slice(0, 100) : [{ kind: "none" }];
  follow(byId("timeline"), items, (e) => `${e.at}|${e.kind}|${e.title}`, (e) => e.kind === "none"
    ? el("li", { class: "muted empty" }, "Nothing has happened yet.")
    : el("li", { "data-kind": e.kind, "data-severity": e.severity },
      el("span", { class: "event-mark", "aria-hidden": "true" }, EVENT_MARKS[e.kind] ?? "·"),
      el("div", {}, el("p", {}, el("time", { class: "muted small", datetime: new Date(e.at * 1000).toISOString() },
        clock(e.at)), " ", e.title), e.detail ? el("p", { class: "muted small" }, e.detail) : null)));
}

export function showSources(status) {
  const up = status.targets.filter((target) => target.up).length;
  setText(byId("sources-note"), `${up} of ${status.targets.length} answer`);
  const items = status.targets
    .map(({ age_s: age, duration_s: took, ...rest }) => ({ ...rest, stale: rest.up ? null : age }))
    .sort((a, b) => Number(a.up) - Number(b.up));
  follow(byId("sources"), items.map((t) => ({ ...t, stale: t.stale === null ? null : Math.round(t.stale) })),
    (t) => `${t.role}|${t.name}`, (t) => el("li", { class: "source", "data-up": String(t.up) },
      el("span", { class: "source-mark", "aria-hidden": "true" }, t.up ? "●" : "✗"),
      el("div", {}, el("p", {}, el("strong", {}, t.name), " ", el("span", { class: "tag" }, t.role), " ",
        el("span", { class: "muted small" }, [t.product, t.url].filter(Boolean).join(" · "))),
      t.error ? el("p", { class: "small error" }, t.error) : null,
      t.up || t.stale === null ? null : el("p", { class: "muted small" }, `last good answer ${ago(t.stale)}`),
      ...t.warnings.map((w) => el("p", { class: "muted small" }, w)))));
}

export function cycleText(cycle) {
  return cycle ? `Cycle ${cycle.number} took ${duration(cycle.duration_s)}: ${cycle.report}` : "";
}
