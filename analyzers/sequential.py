"""Change detection on a short series: adjust, scale robustly, whiten, CUSUM, confirm, persist.

Page's CUSUM on robust z-scores of the residual (Page 1954; the run length at h = 10.5 and k = 0.5 is about
230,000 samples); the de-confounding guards against mix shifts as FBDetect's cost-shift filter does (SOSP'24).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats
from statsmodels.robust.robust_linear_model import RLM

from collector.model import FloatArray

DECISION = 10.5
ALLOWANCE = 0.5
CLIP = 4.0
MIN_BASELINE = 10
MIN_AFTER = 4
# Log scale: no series is held to be steadier than 3 percent, nor a change under 5 percent to matter.
SCALE_FLOOR = 0.03
EFFECT_FLOOR = float(np.log(1.05))
P_VALUE = 0.001


@dataclass(frozen=True, slots=True)
class Shift:
    """A confirmed rise: `onset` index into the series, `effect` in log units (0.26 is 30 percent)."""

    onset: int
    effect: float

    @property
    def ratio(self) -> float:
        return float(np.exp(self.effect))


def explained(y: FloatArray, x: FloatArray, baseline: int, bounds: FloatArray, outside: FloatArray) -> FloatArray:
    """(N,) part of `y` that the confounders account for, relative to their baseline medians.

    x: (N, K) confounders. bounds: (K, 2) allowed coefficients. Coefficients are fitted robustly on the first
    `baseline` buckets. Beyond the range seen there a fit says nothing: `outside` (K,) is credited instead
    where it is larger, so that work never seen before is called a mix shift rather than a regression.
    """
    seen = x[:baseline]
    usable = np.isfinite(seen).all(axis=1) & np.isfinite(y[:baseline])
    middle = np.nanmedian(np.where(usable[:, None], seen, np.nan), axis=0) if usable.any() else np.zeros(x.shape[1])
    coefficients = _fit(y[:baseline][usable], seen[usable] - middle, bounds)
    if not usable.any():
        return np.zeros(y.size)
    low, high = seen[usable].min(axis=0), seen[usable].max(axis=0)
    inside = np.clip(x, low, high)
    beyond = x - inside
    steeper = np.where(np.abs(coefficients) >= np.abs(outside), coefficients, outside)
    part = (inside - middle) @ coefficients + beyond @ steeper
    return np.where(np.isfinite(part), part, 0.0)


def _fit(y: FloatArray, x: FloatArray, bounds: FloatArray) -> FloatArray:
    """Huber regression on the columns that vary; zero for the others, and for all with few buckets."""
    coefficients = np.zeros(x.shape[1])
    varies = np.ptp(x, axis=0) > 0.02 if y.size else np.zeros(x.shape[1], dtype=np.bool_)
    if y.size < 3 * (int(varies.sum()) + 1) or not varies.any() or np.ptp(y) < 1e-6:
        return coefficients
    design = np.column_stack([np.ones(y.size), x[:, varies]])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return coefficients
    least = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    if 1.4826 * np.median(np.abs(least)) < 1e-6:
        return coefficients  # a perfect fit has no scale to weigh residuals by
    coefficients[varies] = RLM(y, design).fit().params[1:]
    return np.clip(coefficients, bounds[:, 0], bounds[:, 1])


def find_rise(residual: FloatArray, baseline: int) -> Shift | None:
    """The newest confirmed and lasting rise after the first `baseline` points; NaN points are skipped."""
    known = np.flatnonzero(np.isfinite(residual))
    values = residual[known]
    before = int((known < baseline).sum())
    if before < MIN_BASELINE or values.size - before < MIN_AFTER:
        return None
    center = float(np.median(values[:before]))
    spread = max(1.4826 * float(np.median(np.abs(values[:before] - center))), SCALE_FLOOR)
    z = (values - center) / spread
    phi = _autocorrelation(z[:before])
    white = np.clip((z[1:] - phi * z[:-1]) / np.sqrt(1 - phi * phi), -CLIP, CLIP)[before - 1 :]
    onset = _cusum(white)
    if onset is None or values.size - before - onset < MIN_AFTER:
        return None
    after = values[before + onset :]
    effect = float(np.median(after)) - center
    if effect < max(EFFECT_FLOOR, float(np.std(values[:before]))):
        return None
    noisy = np.std(after) > 0 or np.std(values[:before]) > 0
    if noisy and stats.ttest_ind(after, values[:before], equal_var=False, alternative="greater").pvalue > P_VALUE:
        return None
    last_third = after[-max(1, after.size // 3) :]
    if float(np.median(last_third)) - center < 0.5 * effect:
        return None
    return Shift(int(known[before + onset]), effect)


def _autocorrelation(z: FloatArray) -> float:
    power = float((z * z).sum())
    return float(np.clip((z[1:] * z[:-1]).sum() / power, 0.0, 0.8)) if power > 0 else 0.0


def _cusum(values: FloatArray) -> int | None:
    """Index where the sum that ends in an alarm began; None when the last point is not in alarm."""
    total, start, alarmed = 0.0, 0, False
    for index, value in enumerate(values):
        total = max(0.0, total + value - ALLOWANCE)
        if total == 0.0:
            start, alarmed = index + 1, False
        alarmed = alarmed or total > DECISION
    return start if alarmed else None
