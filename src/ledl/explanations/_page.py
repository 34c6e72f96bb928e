"""An explanation as one HTML page that needs nothing but itself: no script, no font, no file.

Its pictures, given or drawn from numbers, come first: the figure shows the same. `Shown` holds what the page
shows; functions, one for each part of it from top to bottom, write the markup.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ledl.arrays import Array
from ledl.images import FORMATS, MAX_PIXELS, ImageError, Source, pillow, read_image
from ledl.images import shown as printable

if TYPE_CHECKING:
    from ledl.explanations._explain import Explanation  # which writes itself as a page

Anchors: TypeAlias = Sequence[tuple[int, int, int]]

# Below zero, zero, above zero: no colour is told from another by its hue alone.
GREY: Anchors = [(240, 130, 40), (0, 0, 0), (255, 255, 255)]
BLUE_AND_ORANGE: Anchors = [(240, 130, 40), (0, 0, 0), (70, 160, 250)]

N_SCORES = 8
N_ATOMS = 10
N_BEHIND = 4  # training images behind a learnt atom
LEAST_SHARE = 0.005  # atoms whose part in the lead is less than this part of a score are told together
SAMPLE_SIDE, LARGE_SIDE, SMALL_SIDE = 512, 224, 96  # of pictures, in pixels
SMALL_BYTES = 24_000  # JPEG and PNG files up to here go into the page as they are; larger ones are shrunk
SIGNATURES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}

BY_CLASS = (
    "For each class it keeps only the atoms of that class and looks how far their mixture is from the "
    "sample; the nearest class wins. So an atom adds to the score of its own class only."
)
# What is said of scores, by their kind; they start at {base}.
WORDS = {
    "sums": {
        "caption": "Scores of the classes",
        "start": "Start",
        "start_note": "Scores start at 0.",
        "decision": "Each atom votes for the classes, mostly for its own, with a weight that was learnt; its "
        "code times that weight is what it adds to a score. The largest sum wins.",
    },
    "distances": {
        "caption": "Scores of the classes; bars begin at {base}, 0 would be perfect",
        "start": "Start: nothing explained",
        "start_note": "Scores are negative squared distances. They start at {base}, which is −|x|²: the whole "
        "sample, none of it explained. 0 would be a class whose atoms draw the sample perfectly.",
        "decision": BY_CLASS,
    },
    "divided distances": {
        "caption": "Scores of the classes: the nearer to 0, the better",
        "start": "Start: nothing explained",
        "start_note": "Scores are negative distances, each divided by the size of the class's codes. They "
        "start at −|x|², the whole sample, none of it explained, in the unit of each class. 0 would be "
        "perfect.",
        "decision": BY_CLASS,
    },
}


class Pictures(NamedTuple):
    """What there is to look at beside the numbers of an explanation; all of it may be missing.

    Parameters
    ----------
    sample : path, PIL image, bytes of a JPEG or PNG file, or array of uint8, default=None
        The image that was classified.

    shape : tuple (height, width) or (height, width, 3), default=None
        If features are pixels: atoms and the reconstruction are then drawn as pictures.

    training : sequence of such images, default=None
        The training images, in the order of `fit`.

    names : sequence of str, default=None
        What the training images are called, in the same order.

    Examples
    --------
    >>> from ledl.explanations import Pictures
    >>> Pictures(shape=(8, 8)).training is None
    True
    """

    sample: Source | None = None
    shape: tuple[int, ...] | None = None
    training: Sequence[Source] | None = None
    names: Sequence[str] | None = None


NO_PICTURES = Pictures()


class Gallery:
    """The pictures of one explanation, each None if there is none; raises ValueError if they do not fit it.

    A shape must be that of the features, and lists must reach to the last training sample that is shown.
    """

    def __init__(self, explanation: Explanation, pictures: Pictures) -> None:
        self.explanation, self.pictures = explanation, pictures
        shape, n_features = pictures.shape, explanation.sample.size
        if shape is not None and (
            len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or np.prod(shape) != n_features
        ):
            raise ValueError(
                f"shape={tuple(shape)} is not that of a sample with {n_features} features. Give (height, "
                "width) or (height, width, 3) where features are pixels, and None where they are not."
            )
        n_seen = 1 + max(explanation.neighbors.max(initial=-1), explanation.atom_neighbors.max(initial=-1))
        for name, given in [("training", pictures.training), ("names", pictures.names)]:
            if given is not None and len(given) < n_seen:
                raise ValueError(
                    f"{name} has {len(given)} entries, but training sample {n_seen - 1} has a part in the "
                    "explanation. Give one for each row of the X that fit was given, in its order."
                )

    def sample(self) -> Picture | None:
        """Return the image that was classified; where features are pixels, drawn from them if need be."""
        source, shape = self.pictures.sample, self.pictures.shape
        if source is None and shape is not None:
            return Picture(grey_picture(self.explanation.sample, shape), "The sample", is_drawn=True)
        return None if source is None else Picture(source, "The sample")

    def atom(self, k: int) -> Picture | None:
        """Return atom k as a picture, where features are pixels."""
        shape, atoms = self.pictures.shape, self.explanation.atoms
        if shape is None or atoms is None:
            return None
        return Picture(signed_picture(atoms[k], shape), f"Atom {k}", is_drawn=True)

    def atom_or_nearest(self, k: int) -> Picture | None:
        """Return atom k as a picture, or the training image that is most like it."""
        nearest = self.explanation.atom_neighbors[k, 0]
        return self.atom(k) or (self.training(nearest) if nearest >= 0 else None)

    def training(self, i: int) -> Picture | None:
        """Return training image i; one that is an atom is drawn from it."""
        if self.pictures.training is not None:
            return Picture(self.pictures.training[i], f"Training image {i}")
        return self.atom(i) if self.explanation.atoms_are_samples else None

    def training_name(self, i: int) -> str:
        """Return what training sample i is called: the last part of a path."""
        return f"training sample {i}" if self.pictures.names is None else file_name(self.pictures.names[i])

    def drawings(self) -> list[Picture]:
        """Return the sample, what all atoms make of it, what those of the best class do, and what is left."""
        explanation, shape = self.explanation, self.pictures.shape
        if shape is None or explanation.reconstruction is None or explanation.atoms is None:
            return []
        sample = np.asarray(explanation.sample, dtype=np.float64)
        limits = sample.min(), sample.max()
        raw = explanation.codes @ explanation.atoms
        # The reconstruction is in the sample's scale, atoms have their own.
        scale = raw @ explanation.reconstruction / (raw @ raw) if raw.any() else 1.0
        own = explanation.atom_classes == explanation.predicted
        part = scale * explanation.codes[own] @ explanation.atoms[own]
        left = sample - explanation.reconstruction
        if len(shape) == 3:
            left = left.reshape(tuple(shape)).mean(axis=2)
        top = max(limits[1] - limits[0], 1e-300) / 2
        drawn = [
            ("the sample, as the model sees it", grey_picture(sample, shape, limits)),
            ("drawn by all atoms", grey_picture(explanation.reconstruction, shape, limits)),
            (f"drawn by atoms of {explanation.predicted!s} alone", grey_picture(part, shape, limits)),
            (
                "left over: blue is missing, orange too much",
                signed_picture(left, shape[:2], BLUE_AND_ORANGE, top),
            ),
        ]
        return [Picture(array, caption, is_drawn=True) for caption, array in drawn]


class Picture(NamedTuple):
    """One image, and what it is called where it is shown, or where it is told that it cannot be read."""

    source: Source
    name: str
    is_drawn: bool = False

    def opened(self, side: int | None = None) -> Any:
        """Return a PIL image in RGB, at most `side` pixels wide and high; raise ImageError if it is none."""
        PIL, source, name = pillow(), self.source, self.name
        if isinstance(source, bytes):
            try:
                source = PIL.Image.open(io.BytesIO(source), formats=FORMATS)
            except Exception as error:  # decoders raise many kinds
                raise ImageError(f"{name} is not an image that can be read: {error}. Leave it out.") from error
            width, height = source.size
            if width * height > MAX_PIXELS:
                raise ImageError(
                    f"{name} claims {width} x {height} pixels, more than {MAX_PIXELS}. Leave it out."
                )
        image = read_image(source, "RGB", name=None if isinstance(source, str | os.PathLike) else name)
        if side is not None:
            image.thumbnail((side, side), PIL.Image.Resampling.LANCZOS)
        return image


def has_pillow() -> bool:
    """Return whether images can be decoded and encoded."""
    try:
        pillow()
    except ImportError:
        return False
    return True


def file_name(path: str | os.PathLike[str]) -> str:
    """Return the last part of a path, of whatever system, in characters that can be printed."""
    return printable(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def grey_picture(values: Array, shape: Sequence[int], limits: tuple[float, float] | None = None) -> Array:
    """Return pixels as bytes, black at the lower limit and white at the upper, by default the extremes."""
    values = np.asarray(values, dtype=np.float64)
    low, high = limits or (values.min(), values.max())
    scaled = (values - low) / (high - low if high > low else 1.0)
    return np.uint8(np.round(255 * np.clip(scaled, 0, 1))).reshape(tuple(shape))


def signed_picture(values: Array, shape: Sequence[int], anchors: Anchors = GREY, top: float = 0) -> Array:
    """Return values about zero as colours, (height, width, 3); `top` is the brightest, by default the largest.

    Values in three colours are stretched from black to white: there is no fourth for what is below zero.
    """
    if len(shape) == 3:
        return grey_picture(values, shape)
    values = np.asarray(values, dtype=np.float64)
    top = top or np.abs(values).max() or 1.0
    level = np.clip(values.reshape(tuple(shape)) / top, -1, 1)
    channels = [np.interp(level, [-1, 0, 1], channel) for channel in zip(*anchors, strict=True)]
    return np.uint8(np.round(np.stack(channels, axis=-1)))


class Shown:
    """What a page shows of an explanation: the two best classes, what makes up their scores, in what words."""

    def __init__(self, explanation: Explanation, pictures: Pictures) -> None:
        self.explanation, self.gallery = explanation, Gallery(explanation, pictures)
        best = explanation.ranking[:2]
        self.names = [str(explanation.classes[j]) for j in best]
        self.scores, self.base = explanation.scores[best], explanation.base[best]
        self.decimals = explanation._decimals
        self.parts = explanation.contributions[:, best]  # (K, 2)

        # Atoms told one by one, those told together, and those that count for other classes only.
        used = explanation.decisive_atoms
        counts = self.parts[used].any(axis=1)
        scale = max(np.abs(self.base).max(), np.abs(self.scores).max())
        n_told = min(N_ATOMS, int(np.sum(np.abs(explanation.margins) >= LEAST_SHARE * scale)))
        self.atoms, self.others = np.split(used[counts], [n_told])
        self.idle, self.uses_atoms = used[~counts], len(used) > 0

        base = explanation.base
        has_one_base = np.ptp(base) <= 1e-9 * np.abs(base).max()
        self.origin = float(base[0]) if has_one_base else 0.0
        distances = "distances" if has_one_base else "divided distances"
        self.kind = distances if (base < 0).any() else "sums"
        start = _number(self.base[0], self.decimals)
        self.words = {what: text.format(base=start) for what, text in WORDS[self.kind].items()}


def page(
    explanation: Explanation,
    pictures: Pictures = NO_PICTURES,
    *,
    title: str | None = None,
    model_note: Sequence[tuple[str, str]] = (),
) -> str:
    """Return an explanation as an HTML page.

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
    shown = Shown(explanation, pictures)
    if title is None and isinstance(pictures.sample, str | os.PathLike):
        title = file_name(pictures.sample)
    css = files("ledl.explanations").joinpath("page.css").read_text(encoding="utf-8")
    answer = "none of these" if explanation.rejected else str(explanation.predicted)
    # A part is empty where it has nothing to show: no atoms that are used.
    parts = [_answer(shown, title), _sums(shown), _atom_cards(shown), _fit(shown), _foot(shown, model_note)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(f'{title}: {answer}' if title else f'{answer}: why')}</title>\n"
        f"<style>\n{css}</style>\n</head>\n<body>\n<main>\n" + "\n".join(filter(None, parts)) + "\n</main>\n"
        "</body>\n</html>\n"
    )


def _answer(shown: Shown, title: str | None) -> str:
    """Return the head of the page: the sample, the answer in words, and the scores."""
    explanation, (first, second) = shown.explanation, map(escape, shown.names)
    n_used, n_atoms = int(np.count_nonzero(explanation.codes)), len(explanation.codes)
    lead = float(shown.scores[0] - shown.scores[1])
    distance = f"level with <b>{second}</b>"
    if lead > 0:
        needed = int(1 - np.floor(np.log10(lead)))  # however small, it is not to look like 0
        number = _number(lead, max(shown.decimals, min(needed, 12)))
        distance = f"ahead of <b>{second}</b>, by {number}"
    nearest = f"Nearest is <b>{first}</b>, " if explanation.rejected else ""
    lines = [f'<p class="lead">{nearest}{distance}</p>']
    if n_used == 0:
        lines.append(
            '<p class="warning">No atom is used for this sample, so all classes score alike and the answer is '
            "merely the first of them. It is all zeros, or like nothing that the model knows.</p>"
        )
    elif lead == 0:
        lines.append('<p class="warning">The two score alike; the first of them is given.</p>')
    if explanation.p_value is not None:
        p = explanation.p_value
        often = f"about {round(100 * p)} in 100" if p >= 0.015 else f"about 1 in {round(1 / p)}"
        who = f"{often} samples of the known classes would look as strange, or stranger (p = {p:.2g})"
        if explanation.rejected:
            lines.append(f"<p>Only {who}, so it is taken for none of them.</p>")
        else:
            lines.append(f"<p>{who.capitalize()}.</p>")
    if n_used:
        own = np.count_nonzero(explanation.codes[explanation.atom_classes == explanation.predicted])
        share = f"all its {n_atoms}" if n_used == n_atoms else f"{n_used} of its {n_atoms}"
        lines.append(
            f'<p class="note">The model uses {share} atoms for this sample, {own} of them of this class.</p>'
        )
    verdict = "\n".join(lines)

    # The table of scores, best first; those of the last classes unfold.
    ranking, origin = explanation.ranking, shown.origin
    top = explanation.scores[ranking[:N_SCORES]]  # one class that is far off is not to squeeze them
    limits = min(top.min(), origin, 0.0), max(top.max(), origin, 0.0)
    # Distances that are divided have no value that is more or less than nothing.
    kind = "plain" if shown.kind == "divided distances" else None
    rows = []
    for j in ranking:
        score = explanation.scores[j]
        best = ' class="best"' if j == ranking[0] else ""
        cell = _cell(_number(score, shown.decimals), origin, score, limits, kind)
        rows.append(f'<tr{best}><th scope="row">{_name(explanation.classes[j])}</th>{cell}</tr>')
    head = '<thead><tr><th scope="col">Class</th><th scope="col">Score</th></tr></thead><tbody>\n'
    first, rest, n_rest = "\n".join(rows[:N_SCORES]), "\n".join(rows[N_SCORES:]), len(rows) - N_SCORES
    table = f'<table class="scores"><caption>{shown.words["caption"]}</caption>{head}{first}\n</tbody></table>'
    if rest:
        table += (
            f"\n<details><summary>{n_rest} more class{'es' if n_rest > 1 else ''}</summary>"
            f'<table class="scores"><caption class="unseen">The other scores</caption>{head}{rest}\n'
            "</tbody></table></details>"
        )

    picture = _image(shown.gallery.sample(), SAMPLE_SIDE, f"The sample: {title}" if title else "The sample")
    figure = f'<figure class="sample">{picture}</figure>' if picture else ""
    kicker = f'<p class="kicker">{escape(title)}</p>' if title else ""
    answer = "None of these" if explanation.rejected else shown.names[0]
    long = ' class="long"' if len(answer) > 28 else ""
    return (
        f'<header class="answer{"" if picture else " alone"}">{figure}<div class="verdict">{kicker}'
        f"<h1{long}>{escape(answer)}</h1>\n{verdict}\n{table}</div></header>"
    )


def _sums(shown: Shown) -> str:
    """Return base, atoms one by one, and score as waterfalls of the two best classes, in one scale."""
    if not shown.uses_atoms:
        return ""
    # Kind and head of each row, and where its two bars begin and end.
    zero, n_others, n_idle = np.zeros(2), len(shown.others), len(shown.idle)
    told_together = shown.parts[shown.others].sum(axis=0)
    levels = np.cumsum([shown.base, *shown.parts[shown.atoms], told_together], axis=0)
    steps = [("base", shown.words["start"], zero, shown.base)]
    for i, k in enumerate(shown.atoms):
        picture = _image(shown.gallery.atom_or_nearest(k), SMALL_SIDE, "")
        head = (
            f'<a href="#atom-{k}">{picture}<span class="of">{_name(shown.explanation.atom_classes[k])} '
            f'<span class="soft">atom {k}</span></span></a>'
        )
        steps.append(("step", head, levels[i], levels[i + 1]))
    if n_others:
        head = "1 other atom" if n_others == 1 else f"{n_others} other atoms, together"
        steps.append(("step others", head, levels[-2], levels[-1]))
    steps.append(("total", "Score", zero, shown.scores))

    limits = min(levels.min(), 0.0), max(levels.max(), 0.0)
    rows = []
    for kind, head, begins, ends in steps:
        cells = ""
        for begin, end in zip(begins, ends, strict=True):
            number = _number(end - begin, shown.decimals, signed=kind.startswith("step"))
            cells += _cell(number, begin, end, limits, {"base": "plain", "total": "total"}.get(kind))
        rows.append(f'<tr class="{kind}"><th scope="row">{head}</th>{cells}</tr>')
    body, columns = "\n".join(rows), "".join(f'<th scope="col">{_name(name)}</th>' for name in shown.names)
    idle = "1 more atom is used; it counts" if n_idle == 1 else f"{n_idle} more atoms are used; they count"
    idle_note = f'\n<p class="note">{idle} for neither of these two.</p>' if n_idle else ""
    return (
        '<section id="sum"><h2>How the two best scores add up</h2>\n'
        f'<p class="note">{shown.words["start_note"]} Each atom then moves the score on from where the one '
        "above left it: to the right, blue, if it adds (+), to the left, orange and striped, if it takes away "
        "(−). Atoms that tell the two classes apart the most come first. The numbers of a column add up to its "
        'score, to rounding.</p>\n<table class="waterfall">'
        '<caption class="unseen">What each atom adds to the scores of the two best classes</caption><thead>'
        f'<tr><th scope="col">Atom</th>{columns}</tr></thead><tbody>\n{body}\n</tbody></table>'
        f"{idle_note}</section>"
    )


def _atom_cards(shown: Shown) -> str:
    """Return a card for each atom that decides: what it is, and what it adds to the two best scores."""
    if not len(shown.atoms):
        return ""
    explanation, gallery = shown.explanation, shown.gallery
    if explanation.atoms_are_samples:
        note = "This model has learnt nothing in between: its atoms are the training samples themselves."
    elif gallery.atom(shown.atoms[0]) is not None:
        note = "Atoms as pictures: white adds brightness, black is nothing, orange takes brightness away."
    elif (explanation.atom_neighbors[shown.atoms] >= 0).any():
        note = "Atoms were learnt, and are no images; shown are the training samples most like each of them."
    else:
        note = "The model does not keep its training samples, so there is nothing to show behind an atom."

    top = np.abs(shown.parts[shown.atoms]).max()
    cards = []
    for k in shown.atoms:
        adds = "\n".join(
            f'<tr><th scope="row">{_name(name)}</th>'
            f"{_cell(_number(part, shown.decimals, signed=True), 0.0, part, (-top, top))}</tr>"
            for name, part in zip(shown.names, shown.parts[k], strict=True)
        )
        # The picture of the atom, or else the training images that are most like it.
        behind = [(i, gallery.training_name(i)) for i in explanation.atom_neighbors[k] if i >= 0][:N_BEHIND]
        picture = _image(gallery.atom(k), LARGE_SIDE, f"Atom {k}, of class {explanation.atom_classes[k]!s}")
        caption = small = ""
        if picture and behind:
            caption = f"{'is' if explanation.atoms_are_samples else 'most like'} {escape(behind[0][1])}"
        elif behind:
            (first, name), *others = behind
            picture, caption = _image(gallery.training(first), LARGE_SIDE, name), escape(name)
            small = "".join(_image(gallery.training(i), SMALL_SIDE, name) for i, name in others)
        picture += f"<figcaption>{caption}</figcaption>" if caption else ""
        figures = f'<figure class="large">{picture}</figure>' if picture else ""
        figures += f'<div class="more">{small}</div>' if small else ""
        code = f"{explanation.codes[k]:+.3f}".replace("-", "−")
        cards.append(
            f'<article class="card" id="atom-{k}">{figures}\n'
            f'<h3>{_name(explanation.atom_classes[k])}</h3>\n<p class="code">atom {k}, code <b>{code}</b></p>\n'
            f'<table class="adds"><caption>adds to the score of</caption><tbody>\n{adds}\n</tbody></table>'
            "</article>"
        )
    n, listed = len(cards), "\n".join(cards)
    which = "The atom that decides" if n == 1 else f"The {n} atoms that decide most"
    return (
        f'<section id="atoms"><h2>{which}</h2>\n<p class="note">{note}</p>\n'
        f'<div class="cards">\n{listed}\n</div></section>'
    )


def _fit(shown: Shown) -> str:
    """Return how the sample compares: with what atoms draw, with training samples, with its nearest class."""
    explanation, gallery, sections = shown.explanation, shown.gallery, []
    drawings = gallery.drawings()
    if drawings and shown.uses_atoms and has_pillow():
        figures = "\n".join(
            f"<figure>{_image(drawing, LARGE_SIDE, drawing.name)}"
            f"<figcaption>{escape(drawing.name)}</figcaption></figure>"
            for drawing in drawings
        )
        sections.append(
            '<section id="drawn"><h2>What the atoms make of the sample</h2>\n'
            '<p class="note">All in one scale, but for what is left over, which is twice as bright.</p>\n'
            f'<div class="strip four">\n{figures}\n</div></section>'
        )
    if explanation.similarities.any():  # or they are not kept, or nothing is like a sample of zeros
        items = ""
        for i, label, cosine in zip(
            explanation.neighbors, explanation.neighbor_classes, explanation.similarities, strict=True
        ):
            name = gallery.training_name(i)
            picture = _image(gallery.training(i), LARGE_SIDE, f"{name}, of class {label!s}")
            items += (
                f"<li><figure>{picture}<figcaption><b>{_name(label)}</b> "
                f'<span class="soft">{escape(name)}</span> <span>cosine {_number(cosine, 3)}</span>'
                "</figcaption></figure></li>\n"
            )
        sections.append(
            '<section id="near"><h2>The nearest training samples</h2>\n<p class="note">By the cosine between '
            "features: 1 is the same but for its size, 0 has nothing in common. They do not decide, but are a "
            "check: an answer that they contradict deserves a second look.</p>\n"
            f'<ol class="strip">\n{items}</ol></section>'
        )
    measures = [
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
    body = "\n".join(
        f'<tr><th scope="row">{name}</th>'
        f"{_cell(_number(value, 2), 0.0, value, (0.0, 1.0), 'total', has_zero=False)}<td>{meaning}</td></tr>"
        for name, value, meaning in measures
    )
    sections.append(
        '<section id="fit"><h2>How well the sample fits</h2>\n<table class="measures"><caption class="unseen">'
        f"Concentration and residual</caption><tbody>\n{body}\n</tbody></table></section>"
    )
    return "\n".join(sections)


def _foot(shown: Shown, model_note: Sequence[tuple[Any, Any]]) -> str:
    """Return how to read the page, what the model is, and who made it."""
    lines = [
        "Scores are not probabilities. Compare them within this page.",
        "The numbers are the model's own arithmetic, not a guess at it. They tell why it gave this answer, not "
        "that the answer is right.",
    ]
    if shown.uses_atoms:
        kind = "training samples" if shown.explanation.atoms_are_samples else "building blocks that it learnt"
        mixing = (
            f"The model has {len(shown.explanation.codes)} atoms: {kind}, each of one class. It mixes atoms "
            "so that they come close to the sample. How much of an atom is in the mixture is its code; a "
            "negative code subtracts it."
        )
        lines = [mixing, shown.words["decision"], *lines]
    items = "\n".join(f"<li>{escape(line)}</li>" for line in lines)
    notes = "\n".join(f"<dt>{escape(str(term))}</dt><dd>{escape(str(text))}</dd>" for term, text in model_note)
    about = f"<dl>\n{notes}\n</dl>\n" if notes else ""
    needs_pillow = any(given is not None for given in shown.gallery.pictures[:3])  # names are no pictures
    lacking = (
        '<p class="warning">Some pictures are missing, because Pillow is not installed: pip install '
        "&#x27;ledl[images]&#x27;.</p>\n"
        if needs_pillow and not has_pillow()
        else ""
    )
    return (
        f'<section id="read"><h2>How to read this page</h2>\n<ul>\n{items}\n</ul></section>\n'
        f"<footer>{lacking}{about}<p>Made with ledl {escape(version('ledl'))}.</p></footer>"
    )


def _image(picture: Picture | None, side: int, alt: str) -> str:
    """Return a picture, at most `side` pixels wide and high; nothing if there is none, or no Pillow for it."""
    if picture is None:
        return ""
    data, kind, tiny = picture.source, None, ""
    if isinstance(data, bytes) and len(data) <= SMALL_BYTES and side > SMALL_SIDE:
        kind = next((kind for kind, signature in SIGNATURES.items() if data.startswith(signature)), None)
    if kind is None:
        if not has_pillow():
            return ""
        image, file = picture.opened(side), io.BytesIO()
        if max(image.size) <= 64:
            tiny = ' class="tiny"'  # so few pixels that they are best shown as squares
        few = isinstance(data, np.ndarray) and image.width * image.height <= 4096
        kind = "png" if few or tiny else "jpeg"
        image.save(file, kind, quality=85, optimize=True)
        data = file.getvalue()
    return f'<img{tiny} alt="{escape(alt)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'


def _name(label: Any) -> str:
    """Return the name of a class where there is little room: a long one is cut by the style sheet, not here."""
    return f'<span class="name">{escape(str(label))}</span>'


def _number(value: float, decimals: int, *, signed: bool = False) -> str:
    """Return a number for people, with the exact one for programs."""
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    if float(text) == 0:
        text = f"{0:.{decimals}f}"
    return f'<data value="{float(value)!r}">{text.replace("-", "−")}</data>'


def _cell(
    number: str,
    begin: float,
    end: float,
    limits: tuple[float, float],
    kind: str | None = None,
    *,
    has_zero: bool = True,
) -> str:
    """Return a cell of a table: a number, and a bar that repeats it, on a line between limits with a mark at 0.

    Without a kind, the bar adds or takes away. Without the mark, it is there even if it has no length.
    """
    low, high = limits
    span = high - low if high > low else np.inf
    left, right, zero = np.clip(100 * (np.array([*sorted([begin, end]), 0.0]) - low) / span, 0, 100)
    kind = kind or ("plus" if end >= begin else "minus")
    bar = f'<i class="{kind}" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
    if has_zero:
        bar = f'<i class="zero" style="left:{zero:.2f}%"></i>{bar if begin != end else ""}'
    return f'<td><span class="cell">{number}<span class="track" aria-hidden="true">{bar}</span></span></td>'
