"""The words of an explanation, for people who know no atoms: how sure it is, how good classes are, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ledl.arrays import Array

if TYPE_CHECKING:
    from ledl.explanations._explain import Explanation  # it has these words in its text


def percent(probability: float) -> str:
    """Return a probability in whole %; nothing is impossible, and nothing is certain."""
    if probability < 0.005:
        return "under 1 %"
    return "over 99 %" if probability > 0.995 else f"{100 * probability:.0f} %"


def to_text(value: float, decimals: int, signed: bool = False) -> str:
    """Return a number with a true minus sign; zero has no sign."""
    text = f"{value:{'+' if signed else ''}z.{decimals}f}"
    return text.lstrip("+") if float(text) == 0 else text.replace("-", "−")


def kind_of_scores(explanation: Explanation) -> str:
    """Return what scores are: "sums" from 0, "distances" below 0, or "divided distances"."""
    base = explanation.base
    if explanation.rule == "mean" or not (base < 0).any():
        return "sums"
    return "distances" if np.ptp(base) <= 1e-9 * np.abs(base).max() else "divided distances"


class Vocabulary(NamedTuple):
    """What an atom is called, its amount, and how like the nearest samples and those of `against` are."""

    piece: str
    amount: str
    likeness: str
    rival_likeness: str


def vocabulary(explanation: Explanation, thing: str) -> Vocabulary:
    """Return the words for atoms, or for labelled samples if labels spread."""
    if explanation.rule == "labels":
        return Vocabulary(f"labelled {thing}", "share", "weight", "share")
    return Vocabulary("atom", "code", "cosine", "cosine")


def neighbor_notes(explanation: Explanation) -> list[str]:
    """Return how each neighbour got its class if labels spread: by a label, or how sure the model is of it."""
    if explanation.neighbors_labelled is None or explanation.neighbor_probabilities is None:
        return []
    sure = map(percent, explanation.neighbor_probabilities.max(axis=1))
    pairs = zip(explanation.neighbors_labelled, sure, strict=True)
    return ["labelled" if is_labelled else f"no label, {p} sure" for is_labelled, p in pairs]


class Bars(NamedTuple):
    """How good each class is: a bar that is longest for the best class, a number, and what both mean."""

    lengths: Array  # (n_classes,), from 0 to 1
    values: Array
    numbers: list[str]  # the values for people
    meaning: str


def bars(explanation: Explanation, thing: str) -> Bars:
    """Return the bars of the probabilities, or of the scores where there are none."""
    if explanation.probabilities is None:
        return score_bars(explanation, thing)
    p = explanation.probabilities
    return Bars(p, p, list(map(percent, p)), "How sure the model is of each class")


def score_bars(explanation: Explanation, thing: str) -> Bars:
    """Return bars of the scores. The best class has the longest bar, even if all scores are negative."""
    scores, kind, decimals = explanation.scores, kind_of_scores(explanation), 2
    if kind == "sums":
        values, most, decimals = scores, scores.max(), explanation._decimals
        meaning = "Points of each class"
        if explanation.rule == "labels":
            meaning = f"Share of each class in the labels that reach the {thing}"
    elif kind == "distances":
        values, most = 1 - scores / explanation.base, 1.0
        whole = "the mixture of all classes" if explanation.rule == "agreement" else f"the {thing}"
        meaning = f"Share of {whole} that each class can rebuild: 1 is all of it, 0 is nothing"
    else:
        values, most = np.divide(scores.max(), scores, out=np.ones_like(scores), where=scores < 0), 1.0
        meaning = "Closeness of each class, as a share of the best: 0.5 is twice as far away"
    lengths = np.clip(values / most, 0, 1) if values.max() > 0 else np.zeros_like(scores)
    if not lengths.any() and np.ptp(scores) > 0:  # the best of bad classes is still the best
        lengths = (scores - scores.min()) / np.ptp(scores)
        meaning += ". No class is good; the longest bar is the best of them"
    return Bars(lengths, values, [to_text(value, decimals) for value in values], meaning)


def headline(explanation: Explanation) -> str:
    """Return the best class, how sure or how far ahead it is, and the class that it is compared with."""
    first, second = explanation.compared
    best, other = explanation.classes[[first, second]]
    if explanation.probabilities is None:
        return f"{best} ahead of {other}, by {explanation.scores[first] - explanation.scores[second]:.3g}"
    sure, less = map(percent, explanation.probabilities[[first, second]])
    return f"{best}, {sure} sure, ahead of {other}, {less}"


def reasons(explanation: Explanation, thing: str) -> list[str]:
    """Return one or two sentences on why the answer is the first of the compared classes, not the second."""
    first, second = explanation.compared
    best, other = explanation.classes[[first, second]]
    scores, base, kind = explanation.scores, explanation.base, kind_of_scores(explanation)
    found = []
    if explanation.similarities.any():
        n, near = len(explanation.neighbors), explanation.neighbor_classes
        n_best, n_other = int(np.sum(near == best)), int(np.sum(near == other))
        which = {0: f"None of the {n}", n: f"All {n}"}.get(n_best, f"{n_best} of the {n}")
        rest = f", {n_other or 'none'} to {other}" if n_best < n else ""
        belong = "belong" if n_best > 1 else "belongs"
        twice = " Look twice." if n_best == 0 else ""
        found.append(f"{which} training {thing}s most like this one {belong} to {best}{rest}.{twice}")
        if explanation.neighbors_labelled is not None:
            m = int(explanation.neighbors_labelled.sum())
            have = {
                0: "None of them has a label: the model guessed what they are.",
                n: "All of them have labels.",
            }
            verb = "have labels" if m > 1 else "has a label"
            some = f"{m} of them {verb}; the model guessed what the others are."
            found[-1] += f" {have.get(m, some)}"
    if not explanation.codes.any():
        return found
    if explanation.rule == "labels":
        shares = [f"{100 * scores[j]:.1f} %" for j in (first, second)]
        found.append(
            f"Labels pass on from {thing} to {thing}, along chains of {thing}s that are alike. Of all that "
            f"reaches this one, {shares[0]} comes from {thing}s that are labelled {best}, and {shares[1]} from "
            f"{thing}s that are labelled {other}."
        )
    elif explanation.rule == "mean" and explanation.probabilities is not None:
        likely, less = explanation.probabilities[[first, second]]
        ratio = likely / less if less > 0 else np.inf
        times = f"{ratio:.{1 if ratio < 10 else 0}f}" if ratio <= 1000 else "more than 1000"
        found.append(
            f"The model takes this {thing} apart into pieces that it knows, in several ways. Taken together, "
            f"the pieces speak for {best}: it is {times} times as likely as {other}."
        )
    elif kind == "sums":
        points = [f"{scores[j]:z.{explanation._decimals}f}" for j in (first, second)]
        found.append(
            f"The model takes this {thing} apart into pieces that it knows. They add up to {points[0]} points "
            f"for {best} and {points[1]} for {other}."
        )
    elif kind == "distances":
        shares = [f"{100 * max(1 - scores[j] / base[j], 0):.1f} %" for j in (first, second)]
        pieces = f"training {thing}s" if explanation.atoms_are_samples else "pieces that the model has learned"
        whole = "what all classes together make" if explanation.rule == "agreement" else "this one"
        found.append(
            f"Mixed together, the {pieces} of {best} rebuild {shares[0]} of {whole}; those of {other} rebuild "
            f"{shares[1]}."
        )
    else:
        ratio = scores[second] / scores[first] if scores[first] < 0 else np.inf
        times = f"{ratio:.1f}" if ratio <= 100 else "more than 100"
        found.append(
            f"By the model's measure of distance, {other} is {times} times as far from this {thing} as {best}."
            if ratio >= 1.05
            else f"By the model's measure of distance, {other} is hardly farther from this {thing} than {best}."
        )
    return found


def terms(explanation: Explanation, thing: str) -> list[tuple[str, str]]:
    """Return what "atom" and "code" mean, or the words for labels that spread, in a line each."""
    if explanation.rule == "labels":
        return [
            (
                f"labelled {thing}",
                f"a training {thing} that had a label; its label spreads to {thing}s like it",
            ),
            ("share", f"how much of all labels that reach the {thing} comes from one labelled {thing}"),
            ("weight", f"how much a neighbour counts for the {thing}: more if it is more alike"),
        ]
    atom = f"a training {thing}"
    if not explanation.atoms_are_samples:
        atom = f"a piece that the model has learned from training {thing}s"
    return [
        ("atom", f"{atom}; a mixture of atoms comes close to the {thing}"),
        ("code", "how much of an atom is in the mixture; a negative code takes it away"),
    ]
