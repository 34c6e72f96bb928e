"""An explanation as one HTML page that needs nothing but itself: no script, no font, no file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.explanations._account import Account, bar, class_name, image, place, track
from ledl.explanations._explain import Explanation
from ledl.explanations._pictures import (
    Gallery,
    Pictures,
    file_name,
    is_path,
    reconstruction_drawings,
)
from ledl.explanations._sums import cards, waterfall

N_SCORES = 8
NO_PICTURES = Pictures()


def page(
    explanation: Explanation,
    pictures: Pictures = NO_PICTURES,
    *,
    title: str | None = None,
    model_note: Sequence[tuple[str, str]] = (),
) -> str:
    """An explanation as an HTML page.

    Parameters
    ----------
    explanation : Explanation
        What `ledl.explain` gives.

    pictures : Pictures
        The images behind the numbers, as far as there are any.

    title : str, default=None
        What stands above the answer; by default the name of the sample's file, if it has one.

    model_note : sequence of (term, text)
        About the model, for the foot of the page.

    Returns
    -------
    html : str
        The page.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SRCClassifier, explain
    >>> from ledl.explanations import Pictures, page
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SRCClassifier().fit(X[:100], y[:100])
    >>> html = page(explain(model, X[100]), Pictures(shape=(8, 8)), title="digit 100")
    >>> html.startswith("<!doctype html>"), "<h1>4</h1>" in html
    (True, True)
    """
    gallery = Gallery(explanation, pictures)
    if title is None and pictures.sample is not None and is_path(pictures.sample):
        title = file_name(pictures.sample)
    account = Account(explanation)
    css = files("ledl.explanations").joinpath("page.css").read_text(encoding="utf-8")
    answer = "none of these" if explanation.rejected else str(explanation.predicted)
    parts = [
        _answer(account, gallery, title),
        waterfall(account, gallery),
        cards(account, gallery),
        _reconstruction(account, gallery),
        _neighbors(account, gallery),
        _measures(account),
        _how_to_read(account),
        _foot(model_note, gallery),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(f'{title}: {answer}' if title else f'{answer}: why')}</title>\n"
        f"<style>\n{css}</style>\n</head>\n<body>\n<main>\n" + "\n".join(filter(None, parts)) + "\n</main>\n"
        "</body>\n</html>\n"
    )


def _answer(account: Account, gallery: Gallery, title: str | None) -> str:
    explanation = account.explanation
    picture = image(gallery.sample(), f"The sample: {title}" if title else "The sample")
    figure = f'<figure class="sample">{picture}</figure>' if picture else ""
    answer = "None of these" if explanation.rejected else account.names[0]
    kicker = f'<p class="kicker">{escape(title)}</p>' if title else ""
    long = ' class="long"' if len(answer) > 28 else ""
    return (
        f'<header class="answer{"" if picture else " alone"}">{figure}<div class="verdict">{kicker}'
        f"<h1{long}>{escape(answer)}</h1>\n{_verdict(account)}\n{_scores(account)}</div></header>"
    )


def _verdict(account: Account) -> str:
    explanation, (first, second) = account.explanation, map(escape, account.names)
    n_used, n_atoms = int(np.count_nonzero(explanation.codes)), len(explanation.codes)
    lead = f"ahead of <b>{second}</b>, by {account.lead_number}"
    if account.lead == 0:
        lead = f"level with <b>{second}</b>"
    lines = [
        f'<p class="lead">Nearest is <b>{first}</b>, {lead}</p>'
        if explanation.rejected
        else f'<p class="lead">{lead}</p>'
    ]
    if n_used == 0:
        lines.append(
            '<p class="warning">No atom is used for this sample, so all classes score alike and the answer is '
            "merely the first of them. It is all zeros, or like nothing that the model knows.</p>"
        )
    elif account.lead == 0:
        lines.append('<p class="warning">The two score alike; the first of them is given.</p>')
    if explanation.p_value is not None:
        lines.append(f"<p>{_p_value(explanation.p_value, explanation.rejected)}</p>")
    own = np.count_nonzero(explanation.codes[explanation.atom_classes == explanation.predicted])
    if n_used:
        lines.append(f'<p class="note">{_used(n_used, n_atoms)}, {own} of them of this class.</p>')
    return "\n".join(lines)


def _used(n_used: int, n_atoms: int) -> str:
    if n_used == n_atoms:
        return f"The model uses all its {n_atoms} atoms for this sample"
    return f"The model uses {n_used} of its {n_atoms} atoms for this sample"


def _p_value(p: float, rejected: bool) -> str:
    """A p-value in plain words."""
    often = f"about {round(100 * p)} in 100" if p >= 0.015 else f"about 1 in {round(1 / p)}"
    who = f"{often} samples of the known classes would look as strange, or stranger (p = {p:.2g})"
    return f"Only {who}, so it is taken for none of them." if rejected else f"{who.capitalize()}."


def _scores(account: Account) -> str:
    explanation = account.explanation
    ranking = explanation.ranking
    origin = float(explanation.base[0]) if account.one_base else 0.0
    top = explanation.scores[ranking[:N_SCORES]]  # one class that is far off is not to squeeze them
    low, high = min(top.min(), origin, 0.0), max(top.max(), origin, 0.0)

    def rows(indices: Array) -> str:
        return "\n".join(_score_row(account, j, origin, low, high) for j in indices)

    head = '<thead><tr><th scope="col">Class</th><th scope="col">Score</th></tr></thead>'
    table = f'<table class="scores"><caption>{_scores_caption(account)}</caption>{head}<tbody>\n'
    text = f"{table}{rows(ranking[:N_SCORES])}\n</tbody></table>"
    rest = ranking[N_SCORES:]
    if len(rest):
        plural = "es" if len(rest) > 1 else ""
        text += (
            f"\n<details><summary>{len(rest)} more class{plural}</summary>"
            f'<table class="scores"><caption class="unseen">The other scores</caption>{head}<tbody>\n'
            f"{rows(rest)}\n</tbody></table></details>"
        )
    return text


def _scores_caption(account: Account) -> str:
    if not account.by_residuals:
        return "Scores of the classes"
    if account.one_base:
        return f"Scores of the classes; bars begin at {account.number(account.base[0])}, 0 would be perfect"
    return "Scores of the classes: the nearer to 0, the better"


def _score_row(account: Account, j: int, origin: float, low: float, high: float) -> str:
    explanation = account.explanation
    score = explanation.scores[j]
    kind = "plus" if score >= origin else "minus"
    if account.by_residuals and not account.one_base:
        kind = "plain"  # a distance; there is no more or less than nothing
    line = bar(origin, score, low, high, kind) if score != origin else ""
    best = ' class="best"' if j == account.first else ""
    return (
        f'<tr{best}><th scope="row">{class_name(str(explanation.classes[j]))}</th><td><span class="cell">'
        f"{account.number(score)}{track(line, zero=place(0, low, high))}"
        "</span></td></tr>"
    )


def _reconstruction(account: Account, gallery: Gallery) -> str:
    shape = gallery.pictures.shape
    if shape is None or not len(account.used):
        return ""
    drawings = reconstruction_drawings(account.explanation, shape)
    images = [image(gallery.drawing(drawing), drawing.caption) for drawing in drawings]
    if not any(images):
        return ""
    figures = "\n".join(
        f"<figure>{picture}<figcaption>{escape(drawing.caption)}</figcaption></figure>"
        for picture, drawing in zip(images, drawings, strict=True)
    )
    return (
        '<section id="drawn"><h2>What the atoms make of the sample</h2>\n'
        '<p class="note">All in one scale, but for what is left over, which is twice as bright.</p>\n'
        f'<div class="strip four">\n{figures}\n</div></section>'
    )


def _neighbors(account: Account, gallery: Gallery) -> str:
    explanation = account.explanation
    if not explanation.similarities.any():  # not kept, or nothing is like a sample of zeros
        return ""
    items = []
    for i, label, cosine in zip(
        explanation.neighbors, explanation.neighbor_classes, explanation.similarities, strict=True
    ):
        picture = image(gallery.training(int(i)), f"{gallery.name(int(i))}, of class {label!s}")
        text = f"{cosine:.3f}".replace("-", "−")
        items.append(
            f"<li><figure>{picture}<figcaption><b>{class_name(str(label))}</b> "
            f'<span class="soft">{escape(gallery.name(int(i)))}</span> <span>cosine '
            f'<data value="{float(cosine)!r}">{text}</data></span></figcaption></figure></li>'
        )
    listed = "\n".join(items)
    return (
        '<section id="near"><h2>The nearest training samples</h2>\n<p class="note">By the cosine between '
        "features: 1 is the same but for its size, 0 has nothing in common. They do not decide, but are a "
        "check: an answer that they contradict deserves a second look.</p>\n"
        f'<ol class="strip">\n{listed}\n</ol></section>'
    )


def _measures(account: Account) -> str:
    explanation = account.explanation
    rows = [
        (
            "Concentration",
            explanation.concentration,
            "1 if atoms of one class alone make up the sample, 0 if all classes take an equal part.",
        ),
        (
            "Residual",
            explanation.residual,
            "The part of the sample, squared, that its nearest class leaves unexplained: 0 is a perfect fit, 1 "
            "or more is none.",
        ),
    ]
    body = "\n".join(_measure(*row) for row in rows)
    return (
        '<section id="fit"><h2>How well the sample fits</h2>\n<table class="measures"><caption class="unseen">'
        f"Concentration and residual</caption><tbody>\n{body}\n</tbody></table></section>"
    )


def _measure(name: str, value: float, meaning: str) -> str:
    line = track(bar(0, float(np.clip(value, 0, 1)), 0, 1, "total"))
    return (
        f'<tr><th scope="row">{name}</th><td><span class="cell"><data value="{value!r}">{value:.2f}</data>'
        f"{line}</span></td><td>{meaning}</td></tr>"
    )


def _how_to_read(account: Account) -> str:
    given = account.explanation.atoms_are_samples
    kind = "training samples" if given else "building blocks that it learnt"
    mixing = (
        f"The model has {len(account.explanation.codes)} atoms: {kind}, each of one class. It mixes atoms "
        "so that they come close to the sample. How much of an atom is in the mixture is its code; a negative "
        "code subtracts it."
    )
    by_residuals = (
        "For each class it keeps only the atoms of that class and looks how far their mixture is from the "
        "sample; the nearest class wins. So an atom adds to the score of its own class only."
    )
    by_codes = (
        "Each atom votes for the classes, mostly for its own, with a weight that was learnt; its code times "
        "that weight is what it adds to a score. The largest sum wins."
    )
    by_both = (
        "For each class it mixes once more, so that the atoms come close to the sample and, by weights that "
        "were learnt, to the name of the class; the class with which that costs least wins. So an atom may add "
        "to the score of any class, even where its code for the sample alone, shown here, is 0."
    )
    how = by_residuals if account.by_residuals else by_codes
    how = by_both if account.explanation.rule == "joint" else how
    n_starts = account.explanation.n_starts
    averaging = (
        f"The model is the mean of {n_starts}, each with its own part of the atoms: each mixes by itself, and "
        f"what an atom adds is divided by {n_starts}."
    )
    lines = [mixing, how, *([averaging] if n_starts > 1 else [])] if len(account.used) else []
    lines += [
        "Scores are not probabilities. Compare them within this page.",
        "The numbers are the model's own arithmetic, not a guess at it. They tell why it gave this answer, not "
        "that the answer is right.",
    ]
    items = "\n".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<section id="read"><h2>How to read this page</h2>\n<ul>\n{items}\n</ul></section>'


def _foot(model_note: Sequence[tuple[Any, Any]], gallery: Gallery) -> str:
    notes = "\n".join(f"<dt>{escape(str(term))}</dt><dd>{escape(str(text))}</dd>" for term, text in model_note)
    about = f"<dl>\n{notes}\n</dl>\n" if notes else ""
    lacking = (
        '<p class="warning">Some pictures are missing, because Pillow is not installed: pip install '
        "&#x27;ledl[images]&#x27;.</p>\n"
        if gallery.lacks_pillow
        else ""
    )
    return f"<footer>{lacking}{about}<p>Made with ledl {escape(version('ledl'))}.</p></footer>"
