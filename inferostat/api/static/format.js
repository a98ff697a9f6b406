// Numbers, ages and lever values as people read them.

const LEVER_UNITS = { scale: "replicas", breaker: "requests", admission: "%", retry_budget: "%" };

export const LEVER_NAMES = {
  scale: "replicas", weight: "weight", breaker: "concurrency limit", admission: "admission",
  retry_budget: "retries let in", drain: "drain", wake: "wake",
};

/** Three significant digits, thousands as k; never an exponent for what a person can read. */
export function number(value) {
  const size = Math.abs(value);
  if (size >= 10000) return `${(value / 1000).toFixed(size >= 100000 ? 0 : 1)}k`;
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return trim(value.toFixed(1));
  if (size >= 1 || value === 0) return trim(value.toFixed(2));
  return trim(value.toPrecision(2));
}

function trim(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Seconds as ms, s or min. */
export function duration(seconds) {
  if (seconds < 0.9995) return `${number(seconds * 1000)} ms`;
  if (seconds < 120) return `${number(seconds)} s`;
  return `${Math.round(seconds / 60)} min`;
}

export function inUnit(value, unit) {
  if (unit === "s") return duration(value);
  if (unit === "share") return `${Math.round(value * 100)} %`;
  return unit ? `${number(value)} ${unit}` : number(value);
}

export function leverValue(lever, value) {
  if (value === null) return "off";
  const unit = LEVER_UNITS[lever];
  return unit ? `${number(value)} ${unit}` : number(value);
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

export function ago(seconds) {
  if (seconds < 1.5) return "just now";
  if (seconds < 120) return `${Math.round(seconds)} s ago`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

/** `unknown(stale)` -> `stale`. */
export function whyUnknown(state) {
  return state.replace(/^unknown\((.*)\)$/, "$1").replaceAll("_", " ");
}
