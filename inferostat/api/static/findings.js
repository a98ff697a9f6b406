// Findings with their evidence; the same finding on several endpoints is one card, or a large fleet would fill the page.

import { el, follow, setText } from "./dom.js";
import { badge } from "./fleet.js";
import { clock, inUnit, number } from "./format.js";

const NAMED = 4;

export function showFindings(status) {
  const groups = grouped(status.findings);
  const pressing = groups.filter((group) => group.severity !== "info").length;
  setText(document.getElementById("findings-note"), pressing ? `${pressing} to look at` : "nothing to look at");
  const items = groups.length ? groups : [{ key: "none" }];
  follow(document.getElementById("findings"), items, (group) => group.key, (group) =>
    group.findings ? card(group) : el("p", { class: "muted empty" }, "No findings: nothing unusual is seen."));
}

function grouped(findings) {
  const groups = new Map();
  for (const finding of findings) {
    const onEndpoint = finding.scope.startsWith("endpoint/");
    const key = onEndpoint ? `${finding.slug}|${finding.severity}` : `${finding.slug}|${finding.scope}`;
    const group = groups.get(key) ?? { key, slug: finding.slug, severity: finding.severity, findings: [] };
    group.findings.push(finding);
    groups.set(key, group);
  }
  return [...groups.values()];
}

function card({ slug, severity, findings }) {
  const first = findings[0];
  const many = findings.length > 1;
  const whom = findings.slice(0, NAMED).map((finding) => (many ? finding.scope.replace("endpoint/", "") : finding.scope));
  const more = findings.length > NAMED ? ` and ${findings.length - NAMED} more` : "";
  const body = many
    ? [el("ul", { class: "each" }, ...findings.map((finding) => el("li", {}, el("p", {}, finding.summary), ...evidence(finding))))]
    : evidence(first);
  return el("details", { class: "finding", "data-severity": severity, open: severity === "critical" && !many },
    el("summary", {}, badge(severity, severity), el("strong", {}, many ? `${slug} × ${findings.length}` : slug),
      el("span", { class: "scope" }, `${whom.join(", ")}${more}`),
      many ? null : el("span", { class: "finding-text" }, first.summary),
      el("span", { class: "muted small" },
        `since ${clock(first.since)} · ${number(first.confidence * 100)} % sure · layer ${first.layer}`)),
    ...body, advice(first),
    el("p", { class: "small" }, el("a", { href: `/runbook/${encodeURIComponent(slug)}` }, `Runbook ${first.code}`)));
}

function evidence(finding) {
  if (!finding.evidence.length) return [];
  const value = (number_, unit) => inUnit(number_, unit === "ratio" ? "" : unit);
  const rows = finding.evidence.map((item) => el("tr", {},
    el("th", { scope: "row" }, item.signal),
    el("td", { class: "n" }, item.observed === null ? "unknown" : value(item.observed, item.unit)),
    el("td", { class: "n muted" }, item.expected === null ? "" : value(item.expected, item.unit)),
    el("td", {}, item.why)));
  const heads = ["signal", "observed", "expected", "why"].map((name, index) =>
    el("th", { scope: "col", class: index === 1 || index === 2 ? "n" : null }, name));
  return [el("table", { class: "evidence" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows))];
}

function advice(finding) {
  if (!finding.advice.length) return null;
  return el("ul", { class: "advice" }, ...finding.advice.map((item) =>
    el("li", {}, el("span", { class: "tag" }, item.optimisation), ` ${item.text}`)));
}
