"""How the two best scores add up: a waterfall of atoms, and a card for each."""

from __future__ import annotations

from html import escape

import numpy as np

from ledl.arrays import Array
from ledl.explanations._account import Account, bar, class_name, image, place, track
from ledl.explanations._pictures import SMALL_SIDE, Gallery

N_BEHIND = 4  # training images behind a learnt atom


def waterfall(account: Account, gallery: Gallery) -> str:
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
        n = len(account.others)
        head = "1 other atom" if n == 1 else f"{n} other atoms, together"
        rows.append(_waterfall_row(account, head, levels[-2], levels[-1], (low, high), "step others"))
    rows.append(_waterfall_row(account, "Score", np.zeros(2), account.scores, (low, high), "total"))
    columns = "".join(f'<th scope="col">{class_name(name)}</th>' for name in account.names)
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
    if account.explanation.rule == "joint":
        return (
            "Scores are negative costs of drawing the sample and the name of the class together. They start at "
            "the squared size of both, negative: nothing of either explained. 0 would be both drawn perfectly, "
            "by codes that cost nothing."
        )
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
    picture = gallery.atom(k, SMALL_SIDE)
    if picture is None and behind >= 0:
        picture = gallery.training(behind, SMALL_SIDE)
    label = class_name(str(account.explanation.atom_classes[k]))
    return (
        f'<a href="#atom-{k}">{image(picture, "")}<span class="of">{label} '
        f'<span class="soft">atom {k}</span></span></a>'
    )


def _waterfall_row(
    account: Account, head: str, begin: Array, end: Array, limits: tuple[float, float], kind: str
) -> str:
    cells = []
    for start, stop in zip(begin, end, strict=True):
        colour = {"base": "plain", "total": "total"}.get(kind, "plus" if stop >= start else "minus")
        line = bar(start, stop, *limits, colour) if stop != start else ""
        number = account.number(stop - start, signed=kind.startswith("step"))
        cells.append(f'<td><span class="cell">{number}{track(line, zero=place(0, *limits))}</span></td>')
    return f'<tr class="{kind}"><th scope="row">{head}</th>{"".join(cells)}</tr>'


def _idle_note(account: Account) -> str:
    n = len(account.idle)
    if n == 0:
        return ""
    what = "1 more atom is used; it counts" if n == 1 else f"{n} more atoms are used; they count"
    return f'\n<p class="note">{what} for neither of these two.</p>'


def cards(account: Account, gallery: Gallery) -> str:
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
    if account.explanation.atoms_are_samples:
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
        f'<tr><th scope="row">{class_name(name)}</th><td><span class="cell">{account.number(part, signed=True)}'
        f"{track(bar(0, part, -top, top, 'plus' if part >= 0 else 'minus') if part else '', zero=50)}"
        "</span></td></tr>"
        for name, part in zip(account.names, account.parts[k], strict=True)
    )
    return (
        f'<article class="card" id="atom-{k}">{_card_pictures(account, gallery, k)}\n'
        f'<h3>{class_name(label)}</h3>\n<p class="code">atom {k}, code <b>{code}</b></p>\n<table class="adds">'
        f"<caption>adds to the score of</caption><tbody>\n{adds}\n</tbody></table></article>"
    )


def _card_pictures(account: Account, gallery: Gallery, k: int) -> str:
    explanation = account.explanation
    picture = image(gallery.atom(k), f"Atom {k}, of class {explanation.atom_classes[k]!s}")
    behind = [int(i) for i in explanation.atom_neighbors[k] if i >= 0][:N_BEHIND]
    if picture:
        caption = ""
        if behind:
            relation = "is" if explanation.atoms_are_samples else "most like"
            caption = f"<figcaption>{relation} {escape(gallery.name(behind[0]))}</figcaption>"
        return f'<figure class="large">{picture}{caption}</figure>'
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
    return image(gallery.training(i, *side), gallery.name(i))
