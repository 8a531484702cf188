"""
Find the valley between the pauses within a visit and those between visits.

What is judged is the share of sessions that twice the gap would take away: pauses per octave, by
the sessions under a gap. In theory that share only rises with the gap, for pauses of one kind:
exponential, Weibull with any shape, or log-normal. So a valley in it means two kinds.
"""

from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit.addons.gap.tallies import BINS, FIRST_BIN, GRID, LAST_BIN

Floats: TypeAlias = npt.NDArray[np.float64]

CENTERS: Final[Floats] = (np.arange(FIRST_BIN, LAST_BIN) + 0.5) / BINS
"""The middle of each bin: octaves, from a second on."""
WIDTH: Final = 0.35
"""The standard deviation by which counts are smoothed, in octaves."""
KERNEL: Final[Floats] = np.exp(-((np.arange(-11, 12) / BINS / WIDTH) ** 2) / 2)
DEEPEST: Final = 0.7
"""A valley is at most this share of the lower peak beside it."""
SIGMAS: Final = 4.0
SIGMAS_OF_A_FOLD: Final = 2.0
FLAT: Final = 0.2
"""The valley goes up to this part of the way from its bottom to the lower peak."""
MOST_MORE: Final = 0.03
"""At its ends, a longer gap takes away at most this share of sessions more than at its bottom."""
NARROWEST: Final = 1 / BINS
STEPS: Final = 2_000
CUTS: Final = (0.3, 0.5, 0.7, 0.85, 0.95)
"""Where pauses are cut in two, for the fits of a mixture to start from."""
MULTIPLES: Final = 16


def pauses_by_bin(values: Any, counts: Any, unit_us: int) -> Floats:
    """
    Return the number of pauses in each bin, from the counts of pauses longer than each value.

    Times of whole seconds have pauses of one or two seconds, and none between. They are spread over
    half a second to both sides, so that no valley is there.
    """
    bins = np.searchsorted(GRID, values, side="right") - 1
    is_known = (bins >= 0) & (bins < LAST_BIN - FIRST_BIN)
    pauses = np.bincount(
        bins[is_known], np.asarray(counts)[is_known], minlength=LAST_BIN - FIRST_BIN
    )
    spread, edges = pauses.copy(), GRID / unit_us
    for multiple in range(1, MULTIPLES + 1):
        place = int(np.searchsorted(GRID, multiple * unit_us, side="left")) - 1
        if place < 0 or not pauses[place]:
            continue
        spread[place] -= pauses[place]
        spread += pauses[place] * np.diff(np.clip(edges - multiple + 0.5, 0, 1))
        pauses[place] = 0
    return np.asarray(spread, np.float64)


@attrs.frozen
class Valley:
    """
    Where the number of sessions changes least.

    Attributes:
        low: Where it begins, in octaves from a second, as are `bottom` and `high`.
        bottom: Where the number changes least.
        high: Where it ends.
        change: The share of sessions that twice the gap takes away, at the bottom.
        most: The same at the ends of the valley.
        peak: The same at the lower of the two peaks.
        sigmas: By how many standard deviations these differ.
    """

    low: float
    bottom: float
    high: float
    change: float
    most: float
    peak: float
    sigmas: float


def valley_of(pauses: Floats, keys: int, sigmas: float = SIGMAS) -> Valley | None:
    """Return the clearest valley, or None where there is none."""
    smooth = np.convolve(pauses, KERNEL / KERNEL.sum(), "same")
    sessions = np.maximum(keys + np.cumsum(smooth[::-1])[::-1] - smooth / 2, 1)
    change = smooth * BINS / sessions
    # So many pauses count as one look at a bin.
    looks = 2 * np.sqrt(np.pi) * WIDTH
    variance = np.maximum(smooth * BINS, 1) / looks / sessions**2
    best: Valley | None = None
    for bottom in range(1, len(change) - 1):
        left, here, right = change[bottom - 1 : bottom + 2]
        if here > left or here > right or left == here == right:
            continue
        higher = (change - here) / np.sqrt(variance + variance[bottom])
        before = int(np.argmax(higher[:bottom]))
        after = bottom + 1 + int(np.argmax(higher[bottom + 1 :]))
        score = float(min(higher[before], higher[after]))
        peak = float(min(change[before], change[after]))
        if score < sigmas or here > DEEPEST * peak or (best and score <= best.sigmas):
            continue
        most = float(here + min(FLAT * (peak - here), MOST_MORE))
        is_high = change > most
        low = before + int(np.flatnonzero(is_high[before:bottom])[-1]) + 1
        high = bottom + int(np.flatnonzero(is_high[bottom : after + 1])[0])
        here, at = float(here), float(CENTERS[bottom])
        best = Valley(_edge(low), at, _edge(high), here, most, peak, score)
    return best


def _edge(place: int) -> float:
    return (FIRST_BIN + place) / BINS


@attrs.frozen
class Mixture:
    """
    Two log-normal distributions of pauses: within a visit, and between visits.

    Attributes:
        shares: The share of pauses in each.
        medians: The median of each, in octaves from a second.
        widths: The standard deviation of each, in octaves.
    """

    shares: tuple[float, float]
    medians: tuple[float, float]
    widths: tuple[float, float]

    def density(self, octaves: Any) -> Floats:
        """Return the density of each part at some places, by the share of the part."""
        share, median, width = map(np.array, attrs.astuple(self))
        distance = (np.asarray(octaves, np.float64)[..., None] - median) / width
        density = share / width * np.exp(-(distance**2) / 2) / np.sqrt(2 * np.pi)
        return np.asarray(density, np.float64)

    def crossing(self) -> float | None:
        """Return where a pause is as likely from either part, between their medians, if at all."""
        (left, right), (a, b) = self.medians, self.widths
        share = np.log(self.shares[0] * b / (self.shares[1] * a))
        equal = [a**-2 - b**-2, 2 * (right / b**2 - left / a**2)]
        roots = np.roots([*equal, left**2 / a**2 - right**2 / b**2 - 2 * share])
        between = [float(root.real) for root in roots if left < root.real < right]
        return between[0] if between and np.isreal(roots).all() else None


def mixture_of(pauses: Floats) -> Mixture | None:
    """Return the likeliest mixture, by expectation maximization from several starts."""
    if np.count_nonzero(pauses) < 2:  # noqa: PLR2004 - two parts need two bins
        return None
    weights = pauses / pauses.sum()
    return max((_fitted(weights, cut) for cut in CUTS), key=lambda fitted: fitted[0])[1]


def _fitted(weights: Floats, cut: float) -> tuple[float, Mixture]:
    ranks = np.cumsum(weights) - weights / 2
    belongs = np.stack([ranks <= cut, ranks > cut], axis=1) * 0.98 + 0.01
    likelihood = -np.inf
    for _ in range(STEPS):
        parts = belongs * weights[:, None]
        shares = parts.sum(axis=0)
        medians = CENTERS @ parts / shares
        spread = np.einsum("bp,bp->p", parts, (CENTERS[:, None] - medians) ** 2) / shares
        widths = np.maximum(np.sqrt(spread), NARROWEST)
        order = np.argsort(medians)
        mixture = Mixture(*(tuple(each[order].tolist()) for each in (shares, medians, widths)))
        density = mixture.density(CENTERS) + np.finfo(float).tiny
        both = density.sum(axis=1)
        belongs, before = density / both[:, None], likelihood
        likelihood = float(weights @ np.log(both))
        if likelihood - before < 1e-10:  # noqa: PLR2004 - no change that shows
            break
    return likelihood, mixture
