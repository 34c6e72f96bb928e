"""An explanation as one HTML page that needs nothing but itself: no script, no font, no file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.explanation_pictures import (
    SMALL_SIDE,
    Encoded,
    Gallery,
    Pictures,
    atoms_are_samples,
    reconstruction_drawings,
)
from ledl.explanations import Explanation

__all__ = ["Pictures", "page"]

N_SCORES, N_ATOMS, N_BEHIND = 8, 10, 4
LEAST_SHARE = 0.005  # atoms whose part in the lead is less than this part of a score are told together
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
        What stands above the answer: the name of the file, for one.

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
    >>> from ledl.explanation_page import Pictures, page
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SRCClassifier().fit(X[:100], y[:100])
    >>> html = page(explain(model, X[100]), Pictures(shape=(8, 8)), title="digit 100")
    >>> html.startswith("<!doctype html>"), "<h1>4</h1>" in html
    (True, True)
    """
    gallery = Gallery(explanation, pictures)
    account = Account(explanation)
    css = files("ledl").joinpath("explanation_page.css").read_text(encoding="utf-8")
    answer = "none of these" if explanation.rejected else str(explanation.predicted)
    parts = [
        _answer(account, gallery, title),
        _waterfall(account, gallery),
        _cards(account, gallery),
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
        scale = max(np.abs(explanation.base).max(), np.abs(self.scores).max())
        largest = np.abs(self.parts[self.used]).max(axis=1)
        counting, self.idle = self.used[largest > 0], self.used[largest == 0]
        n_shown = min(N_ATOMS, np.count_nonzero(np.abs(explanation.margins) >= LEAST_SHARE * scale))
        self.shown, self.others = counting[:n_shown], counting[n_shown:]
        self.decimals = int(np.clip(3 - round(np.log10(scale)), 0, 9)) if scale > 0 else 3

    @property
    def by_residuals(self) -> bool:
        """Whether scores are negative distances, not sums of codes."""
        return bool((self.explanation.base < 0).any())

    @property
    def one_base(self) -> bool:
        """Whether all classes begin at one value."""
        return bool(np.ptp(self.explanation.base) <= 1e-9 * np.abs(self.explanation.base).max())

    @property
    def lead(self) -> float:
        return float(self.scores[0] - self.scores[1])

    def number(self, value: float, *, signed: bool = False) -> str:
        """A number for people, the exact one for programs."""
        text = f"{value:{'+' if signed else ''}.{self.decimals}f}"
        if float(text) == 0:
            text = f"{0:.{self.decimals}f}"
        return f'<data value="{float(value)!r}">{text.replace("-", "−")}</data>'


def _image(image: Encoded | None, alt: str, kind: str = "") -> str:
    if image is None:
        return ""
    classes = " ".join(filter(None, [kind, "tiny" if image.is_tiny else ""]))
    attribute = f' class="{classes}"' if classes else ""
    return f'<img{attribute} alt="{escape(alt)}" src="{image.uri}">'


def _name(label: str) -> str:
    """The name of a class where there is little room: a long one is cut by the style sheet, not here."""
    return f'<span class="name">{escape(label)}</span>'


def _answer(account: Account, gallery: Gallery, title: str | None) -> str:
    explanation = account.explanation
    image = _image(gallery.sample(), f"The sample: {title}" if title else "The sample")
    figure = f'<figure class="sample">{image}</figure>' if image else ""
    answer = "None of these" if explanation.rejected else account.names[0]
    kicker = f'<p class="kicker">{escape(title)}</p>' if title else ""
    long = ' class="long"' if len(answer) > 28 else ""
    return (
        f'<header class="answer{"" if image else " alone"}">{figure}<div class="verdict">{kicker}'
        f"<h1{long}>{escape(answer)}</h1>\n{_verdict(account)}\n{_scores(account)}</div></header>"
    )


def _verdict(account: Account) -> str:
    explanation, (first, second) = account.explanation, map(escape, account.names)
    n_used, n_atoms = int(np.count_nonzero(explanation.codes)), len(explanation.codes)
    lead = f"before <b>{second}</b>, by {account.number(account.lead)}"
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
    begin = "It is unlike every class: only " if rejected else "It is not unlike its class: "
    return f"{begin}{often} samples of the known classes would look as strange, or stranger (p = {p:.2g})."


def _place(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, in %."""
    return 100 * (value - low) / (high - low) if high > low else 0.0


def _bar(begin: float, end: float, low: float, high: float, kind: str) -> str:
    left, right = sorted([_place(begin, low, high), _place(end, low, high)])
    return f'<i class="{kind}" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'


def _track(*bars: str, zero: float | None = None) -> str:
    """A line of bars; they repeat what the number beside them says."""
    mark = "" if zero is None else f'<i class="zero" style="left:{zero:.2f}%"></i>'
    return f'<span class="track" aria-hidden="true">{mark}{"".join(bars)}</span>'


def _scores(account: Account) -> str:
    explanation = account.explanation
    ranking = explanation.ranking
    origin = float(explanation.base[0]) if account.one_base else 0.0
    low, high = min(explanation.scores.min(), origin, 0.0), max(explanation.scores.max(), origin, 0.0)

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
    best = ' class="best"' if j == account.first else ""
    return (
        f'<tr{best}><th scope="row">{_name(str(explanation.classes[j]))}</th><td><span class="cell">'
        f"{account.number(score)}{_track(_bar(origin, score, low, high, kind), zero=_place(0, low, high))}"
        "</span></td></tr>"
    )


def _waterfall(account: Account, gallery: Gallery) -> str:
    """Base, atoms one by one, score; side by side for the two best classes, in one scale."""
    if not len(account.used):
        return ""
    atoms = [account.parts[k] for k in account.shown]
    steps = np.array([account.base, *atoms, account.parts[account.others].sum(axis=0)])
    levels = np.cumsum(steps, axis=0)
    low, high = min(levels.min(), 0.0), max(levels.max(), 0.0)
    heads = [_atom_head(account, gallery, k) for k in account.shown]
    rows = [_waterfall_row(account, _start_head(account), np.zeros(2), account.base, (low, high), "base")]
    for i, head in enumerate(heads, 1):
        rows.append(_waterfall_row(account, head, levels[i - 1], levels[i], (low, high), "step"))
    if len(account.others):
        plural = "s" if len(account.others) > 1 else ""
        head = f"{len(account.others)} other atom{plural}, together"
        rows.append(_waterfall_row(account, head, levels[-2], levels[-1], (low, high), "step others"))
    rows.append(_waterfall_row(account, "Score", np.zeros(2), account.scores, (low, high), "total"))
    columns = "".join(f'<th scope="col">{_name(name)}</th>' for name in account.names)
    body = "\n".join(rows)
    return (
        '<section id="sum"><h2>How the two best scores add up</h2>\n'
        f'<p class="note">{_waterfall_note(account)}</p>\n<table class="waterfall">'
        f'<caption class="unseen">What each atom adds to the scores of the two best classes</caption><thead>'
        f'<tr><th scope="col">Atom</th>{columns}</tr></thead><tbody>\n{body}\n</tbody></table>'
        f"{_idle_note(account)}</section>"
    )


def _waterfall_note(account: Account) -> str:
    start = "Scores start at 0." if not account.by_residuals else _base_text(account)
    return (
        f"{start} Each atom then moves the score on from where the one above left it: to the right, blue, if "
        "it adds (+), to the left, orange and striped, if it takes away (−). Atoms that tell the two classes "
        "apart the most come first. The numbers of a column add up to its score, to rounding."
    )


def _base_text(account: Account) -> str:
    if account.one_base:
        return (
            f"Scores are negative squared distances. They start at {account.number(account.base[0])}, which is "
            "−|x|²: the whole sample, none of it explained. 0 would be a class whose atoms draw the sample "
            "perfectly."
        )
    return (
        "Scores are negative distances, each divided by the size of the class's codes. They start at −|x|², "
        "the whole sample, none of it explained, in the unit of each class. 0 would be perfect."
    )


def _start_head(account: Account) -> str:
    return "Start: nothing explained" if account.by_residuals else "Start"


def _atom_head(account: Account, gallery: Gallery, k: int) -> str:
    behind = account.explanation.atom_neighbors[k, 0]
    image = gallery.atom(k, SMALL_SIDE)
    if image is None and behind >= 0:
        image = gallery.training(behind, SMALL_SIDE)
    label = _name(str(account.explanation.atom_classes[k]))
    return (
        f'<a href="#atom-{k}">{_image(image, "", "small")}<span class="of">{label} '
        f'<span class="soft">atom {k}</span></span></a>'
    )


def _waterfall_row(
    account: Account, head: str, begin: Array, end: Array, limits: tuple[float, float], kind: str
) -> str:
    cells = []
    for start, stop in zip(begin, end, strict=True):
        colour = {"base": "plain", "total": "total"}.get(kind, "plus" if stop >= start else "minus")
        bar = _bar(start, stop, *limits, colour) if stop != start else ""
        number = account.number(stop - start, signed=kind.startswith("step"))
        cells.append(f'<td><span class="cell">{number}{_track(bar, zero=_place(0, *limits))}</span></td>')
    return f'<tr class="{kind}"><th scope="row">{head}</th>{"".join(cells)}</tr>'


def _idle_note(account: Account) -> str:
    n = len(account.idle)
    if n == 0:
        return ""
    what = "1 more atom is used; it counts" if n == 1 else f"{n} more atoms are used; they count"
    return f'\n<p class="note">{what} for neither of these two.</p>'


def _cards(account: Account, gallery: Gallery) -> str:
    if not len(account.shown):
        return ""
    top = np.abs(account.parts[account.shown]).max()
    cards = "\n".join(_card(account, gallery, k, top) for k in account.shown)
    n = len(account.shown)
    which = "The atom that decides" if n == 1 else f"The {n} atoms that decide most"
    return (
        f'<section id="atoms"><h2>{which}</h2>\n<p class="note">{_cards_note(account, gallery)}</p>\n'
        f'<div class="cards">\n{cards}\n</div></section>'
    )


def _cards_note(account: Account, gallery: Gallery) -> str:
    if atoms_are_samples(account.explanation):
        return "This model has learnt nothing in between: its atoms are the training samples themselves."
    if gallery.draws_atoms:
        return "Atoms as pictures: white adds brightness, black is nothing, orange takes brightness away."
    if (account.explanation.atom_neighbors[account.shown] >= 0).any():
        return "Atoms were learnt, and are no images; shown are the training samples most like each of them."
    return "The model does not keep its training samples, so there is nothing to show behind an atom."


def _card(account: Account, gallery: Gallery, k: int, top: float) -> str:
    explanation = account.explanation
    label, code = str(explanation.atom_classes[k]), f"{explanation.codes[k]:+.3f}".replace("-", "−")
    adds = "\n".join(
        f'<tr><th scope="row">{_name(name)}</th><td><span class="cell">{account.number(part, signed=True)}'
        f"{_track(_bar(0, part, -top, top, 'plus' if part >= 0 else 'minus') if part else '', zero=50)}"
        "</span></td></tr>"
        for name, part in zip(account.names, account.parts[k], strict=True)
    )
    return (
        f'<article class="card" id="atom-{k}">{_card_pictures(account, gallery, k)}\n'
        f'<h3>{_name(label)}</h3>\n<p class="code">atom {k}, code <b>{code}</b></p>\n<table class="adds">'
        f"<caption>adds to the score of</caption><tbody>\n{adds}\n</tbody></table></article>"
    )


def _card_pictures(account: Account, gallery: Gallery, k: int) -> str:
    explanation = account.explanation
    image = _image(gallery.atom(k), f"Atom {k}, of class {explanation.atom_classes[k]!s}")
    behind = [int(i) for i in explanation.atom_neighbors[k] if i >= 0][:N_BEHIND]
    if image:
        caption = ""
        if behind:
            relation = "is" if atoms_are_samples(explanation) else "most like"
            caption = f"<figcaption>{relation} {escape(gallery.name(behind[0]))}</figcaption>"
        return f'<figure class="large">{image}{caption}</figure>'
    large, small = behind[:1], behind[1:]
    figures = [
        f'<figure class="large">{_training_image(gallery, i)}<figcaption>{escape(gallery.name(i))}</figcaption>'
        "</figure>"
        for i in large
    ]
    pictures = [_training_image(gallery, i, SMALL_SIDE) for i in small]
    if any(pictures):
        figures.append(f'<div class="more">{"".join(pictures)}</div>')
    return "".join(figures)


def _training_image(gallery: Gallery, i: int, *side: int) -> str:
    return _image(gallery.training(i, *side), gallery.name(i))


def _reconstruction(account: Account, gallery: Gallery) -> str:
    shape = gallery.pictures.shape
    drawings = [] if shape is None else reconstruction_drawings(account.explanation, shape)
    images = [_image(gallery.drawing(drawing), drawing.caption) for drawing in drawings]
    if not any(images):
        return ""
    figures = "\n".join(
        f"<figure>{image}<figcaption>{escape(drawing.caption)}</figcaption></figure>"
        for image, drawing in zip(images, drawings, strict=True)
    )
    return (
        '<section id="drawn"><h2>What the atoms make of the sample</h2>\n'
        '<p class="note">All in one scale, but for what is left over, which is twice as bright.</p>\n'
        f'<div class="strip four">\n{figures}\n</div></section>'
    )


def _neighbors(account: Account, gallery: Gallery) -> str:
    explanation = account.explanation
    if not len(explanation.neighbors):
        return ""
    items = []
    for i, label, cosine in zip(
        explanation.neighbors, explanation.neighbor_classes, explanation.similarities, strict=True
    ):
        image = _image(gallery.training(int(i)), f"{gallery.name(int(i))}, of class {label!s}")
        text = f"{cosine:.3f}".replace("-", "−")
        items.append(
            f"<li><figure>{image}<figcaption><b>{_name(str(label))}</b> "
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
    bar = _track(_bar(0, float(np.clip(value, 0, 1)), 0, 1, "total"))
    return (
        f'<tr><th scope="row">{name}</th><td><span class="cell"><data value="{value!r}">{value:.2f}</data>{bar}'
        f"</span></td><td>{meaning}</td></tr>"
    )


def _how_to_read(account: Account) -> str:
    n = len(account.explanation.codes)
    kind = (
        "its training samples" if atoms_are_samples(account.explanation) else "building blocks that it learnt"
    )
    score = (
        "For each class it keeps only the atoms of that class and looks how far their mixture is from the "
        "sample; the nearest class wins. So an atom adds to the score of its own class only."
        if account.by_residuals
        else "Each atom votes for the classes, mostly for its own, with a weight that was learnt; its code "
        "times that weight is what it adds to a score. The largest sum wins."
    )
    lines = [
        f"The model has {n} atoms, {kind}, each of one class. It mixes atoms so that they come close to the "
        "sample. How much of an atom is in the mixture is its code; a negative code subtracts it.",
        score,
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
        '<p class="warning">Pictures are missing, because Pillow is not installed: pip install '
        "&#x27;ledl[images]&#x27;.</p>\n"
        if gallery.lacks_pillow
        else ""
    )
    return f"<footer>{lacking}{about}<p>Made with ledl {escape(version('ledl'))}.</p></footer>"
