"""The two best classes of an explanation, and the small pieces of markup that all its parts are made of."""

from __future__ import annotations

from html import escape

import numpy as np

from ledl.explanations._explain import Explanation
from ledl.explanations._pictures import Encoded, shown_decimals

N_ATOMS = 10
LEAST_SHARE = 0.005  # atoms whose part in the lead is less than this part of a score are told together


class Account:
    """The two best classes of an explanation, what makes up their scores, and how numbers are written."""

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation
        self.first, self.second = explanation.ranking[:2]
        self.names = [str(explanation.classes[j]) for j in (self.first, self.second)]
        self.scores = explanation.scores[[self.first, self.second]]
        self.base = explanation.base[[self.first, self.second]]
        self.parts = explanation.contributions[:, [self.first, self.second]]  # (K, 2)
        self.used = explanation.decisive_atoms
        scale = max(np.abs(self.base).max(), np.abs(self.scores).max())
        largest = np.abs(self.parts[self.used]).max(axis=1)
        counting, self.idle = self.used[largest > 0], self.used[largest == 0]
        n_shown = min(N_ATOMS, np.count_nonzero(np.abs(explanation.margins) >= LEAST_SHARE * scale))
        self.shown, self.others = counting[:n_shown], counting[n_shown:]
        self.decimals = shown_decimals(explanation)

    @property
    def by_residuals(self) -> bool:
        """Whether scores are negative distances or costs, which begin below zero, not sums of codes."""
        return bool((self.explanation.base < 0).any())

    @property
    def one_base(self) -> bool:
        """Whether all classes begin at one value."""
        return bool(np.ptp(self.explanation.base) <= 1e-9 * np.abs(self.explanation.base).max())

    @property
    def lead(self) -> float:
        """How far the first class is before the second."""
        return float(self.scores[0] - self.scores[1])

    @property
    def lead_number(self) -> str:
        """The lead as a number; however small, one that does not look like 0."""
        needed = int(1 - np.floor(np.log10(self.lead))) if self.lead > 0 else 0
        return self.number(self.lead, decimals=max(self.decimals, min(needed, 12)))

    def number(self, value: float, *, signed: bool = False, decimals: int | None = None) -> str:
        """A number for people, the exact one for programs."""
        decimals = self.decimals if decimals is None else decimals
        text = f"{value:{'+' if signed else ''}.{decimals}f}"
        if float(text) == 0:
            text = f"{0:.{decimals}f}"
        return f'<data value="{float(value)!r}">{text.replace("-", "−")}</data>'


def image(picture: Encoded | None, alt: str) -> str:
    """A picture, if there is one."""
    if picture is None:
        return ""
    kind = ' class="tiny"' if picture.is_tiny else ""
    return f'<img{kind} alt="{escape(alt)}" src="{picture.uri}">'


def class_name(label: str) -> str:
    """The name of a class where there is little room: a long one is cut by the style sheet, not here."""
    return f'<span class="name">{escape(label)}</span>'


def place(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, in %; one outside lies at the end."""
    return float(np.clip(100 * (value - low) / (high - low), 0, 100)) if high > low else 0.0


def bar(begin: float, end: float, low: float, high: float, kind: str) -> str:
    """A bar from one value to another, on a line from `low` to `high`."""
    left, right = sorted([place(begin, low, high), place(end, low, high)])
    return f'<i class="{kind}" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'


def track(*bars: str, zero: float | None = None) -> str:
    """A line of bars; they repeat what the number beside them says."""
    mark = "" if zero is None else f'<i class="zero" style="left:{zero:.2f}%"></i>'
    return f'<span class="track" aria-hidden="true">{mark}{"".join(bars)}</span>'
