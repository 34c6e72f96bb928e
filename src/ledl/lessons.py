r"""Learn the labels of a fixed set of samples from more and more answers of a person.

A lesson starts from all labels and from the guesses of the last one, and takes a second or so. Three experts
guess the labels of all samples:

- *learnt*: labels spread over the graph of near samples in a space that is learnt from all guesses;
- *plain*: labels spread over the graph of near samples as they are;
- *alone*: Gaussians of the labelled samples alone.

Their logarithms of probabilities are added, with weights that were best for earlier answers: what each expert
said of a sample before the person answered is kept. See `ledl.solvers.graph` for the mathematics.

A person answers more questions about hard classes than about easy ones. So a label of a class with m labels
has the mass :math:`m^{-1/2}`: neither do classes with many labels win everywhere, nor are all classes taken to
be of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax, softmax

from ledl.arrays import Array, as_array, float32_products, namespace, to_host
from ledl.model_selection import default_folds
from ledl.parallel import map_in_threads, n_threads, one_blas_thread
from ledl.questions import first_questions, most_useful, usefulness
from ledl.semi_supervised import distinct_rows, space_of
from ledl.solvers.graph import (
    TINY,
    Gaussians,
    Graph,
    log_shares,
    masses,
    one_hot,
    reach,
    sharpen,
    sharpness,
    spread,
)

NEIGHBOURS, SHARE_OF_NEIGHBOURS, SHRINKAGE = 10, 0.99, 0.1
# A label of a class with m labels spreads times m^-1/2: some classes are asked for more often than others.
BALANCE = 0.5
# Samples are compared in a tenth as many directions as there are samples, within these limits. With more, their
# covariance would be a guess; with fewer, classes that differ little are not told apart.
DIRECTIONS, SAMPLES_PER_DIRECTION = (128, 1024), 10
# Questions of a lesson.
QUESTIONS = 300
EXPERTS = ("learnt", "plain", "alone")
# Before any answer can tell.
FIRST_WEIGHTS = (0.5, 0.5, 0.0)
# Weights are chosen with the last answers, and not from fewer than some.
LAST_ANSWERS, FEWEST_ANSWERS = 150, 10
# So many of them may be anything: one answer that nobody expected must not decide.
SURPRISES = 0.02
FACTORS = (0.1, 0.2, 0.4, 0.8, 1.6)
# A label is doubtful if the model gives it less than the first, and another class more than the second.
UNLIKELY, LIKELY = 0.05, 0.75
# Every third question is a random check until there are so many checks, then every tenth.
MANY_CHECKS, EVERY_FIRST, EVERY_LATER = 40, 3, 10
# What share of suggestions is right before any check, and how many checks that counts for.
USUAL, USUAL_CHECKS = 0.9, 10
# Random checks are left out of Gaussians in so many parts.
PARTS = 4


class Lesson(NamedTuple):
    """What was learnt from the labels at one time. Arrays are NumPy's."""

    classes: Array  # (c,): the numbers in y that are classes, in order
    probabilities: Array  # (n, c), or (n, 0) if fewer than two classes have labels
    questions: Array  # rows without labels, the most useful first
    doubtful: Array  # rows with labels that the model contradicts, the most doubtful first
    doubtful_suggestions: Array  # what it says instead: columns of `probabilities`
    method: str  # the experts with their shares, in words
    copy_of: Array  # (n,): the sample of the graph that each row is, or is a copy of
    graphs: tuple[tuple[float, Graph], ...]  # those that labels were spread over, with their weights
    labelled: Array  # (l,): samples of the graphs with labels
    rows: Array  # (l,): their rows
    masses: Array  # (l,)

    def influence(self, row: int) -> tuple[Array, Array]:
        """Return the rows with labels, and what share each has in what reaches one row; the largest first.

        F = (1 - a) (I - a S)^-1 H is linear in the labels H, and S is symmetric. So the labelled sample i adds
        the entry i of (1 - a) (I - a S)^-1 e, with 1 in e at this row only, times its mass. The shares in each
        graph count by its weight.
        """
        shares = np.zeros(len(self.rows))
        for weight, graph in self.graphs:
            here = np.zeros((len(graph.sums), 1))
            here[self.copy_of[row], 0] = 1
            amounts = (
                spread(graph.matrix(), here, SHARE_OF_NEIGHBOURS, tol=1e-6)[self.labelled, 0] * self.masses
            )
            shares += weight * amounts / max(amounts.sum(), TINY)
        order = np.argsort(-shares, kind="stable")
        return self.rows[order], shares[order]


class Estimate(NamedTuple):
    """The share of right suggestions among samples without labels, with its 90 % interval."""

    accuracy: float
    low: float
    high: float
    n_checks: int


class Guesses(NamedTuple):
    """What the experts say of all samples, and what they are together."""

    experts: tuple[Array, ...]  # (n, c) each: logarithms of probabilities
    total: Array  # (n, c): their weighted sum
    R: Array  # (n, c): probabilities from Gaussians of all samples, for the next space
    gaussians: Array  # (n, c): their logarithms, where labelled samples have no say about themselves
    graph: Graph  # in the learnt space
    learnt: Array  # (n, c): labels that were spread over it
    plain: Array  # (n, c): labels that were spread over the graph of the samples as they are
    weights: Array  # of the experts


class Said(NamedTuple):
    """What the experts said of a sample before its label was known."""

    classes: Array  # (c,)
    experts: Array  # (3, c)


class Learner:
    """Learn the labels of a fixed set of samples from more and more answers.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The features of all samples.

    device : str, default=None
        Device of PyTorch, such as ``"cuda"``. None means the processor, with NumPy.

    n_jobs : int, default=None
        Number of threads. -1 means all processors.
    """

    def __init__(self, X: Array, *, device: str | None = None, n_jobs: int | None = None) -> None:
        X = np.asarray(X, dtype=np.float32)
        self.device, self.threads = device, n_threads(n_jobs)
        self.rows, self.copy_of = distinct_rows(X)
        self.space = None
        if len(self.rows) > 2:
            r = int(np.clip(len(self.rows) // SAMPLES_PER_DIRECTION, *DIRECTIONS))
            self.space = space_of(
                X[self.rows], n_components=r, k=NEIGHBOURS, device=device, threads=self.threads
            )
            self.plain = self.space.graph.matrix()
        self.said: dict[int, Said] = {}  # by sample, the last one at the end
        self.last: tuple[Array, Guesses, Array] | None = None  # classes, guesses, labels of the samples
        self.confidence = USUAL

    def learn(self, y: Array) -> Lesson:
        """Return what the labels teach.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Numbers of classes, and -1 where there is no label. A class keeps its number from lesson to lesson.

        Returns
        -------
        lesson : Lesson
        """
        y = np.asarray(y)
        mine = self._of_samples(y)
        labelled = np.flatnonzero(mine >= 0)
        classes, numbers = np.unique(mine[labelled], return_inverse=True)
        if self.space is None or len(classes) < 2:
            return self._nothing(y, mine, classes)
        with one_blas_thread(), float32_products("full", self.device):
            if self.last is None:
                self._hide_some(labelled, numbers, classes)
            else:
                self._note_what_was_said(labelled)
            weights = self._weights(mine)
            start = None if self.last is None else carried_over(self.last[0], self.last[1].R, classes)
            found = self._guess(labelled, numbers, len(classes), weights, start)
            self.last = classes, found, mine
            main = self.space.graph if weights[1] > weights[0] else found.graph
            reached = to_host(reach(main, main.matrix(), as_array(labelled, self.space.Z), SHARE_OF_NEIGHBOURS))
            gaussians = to_host(found.gaussians)
        P = self._probabilities(to_host(found.total), mine < 0)
        P[labelled] = np.eye(len(classes))[numbers]
        # Of labelled samples, the Gaussians of all samples say what the others teach, nearly.
        unseen = softmax(sharpness(gaussians, self.confidence) * gaussians[labelled], axis=1)
        graphs = [Graph(*(to_host(part) for part in one)) for one in (found.graph, self.space.graph)]
        graph = graphs[int(weights[1] > weights[0])]
        spreading = weights[:2] / max(weights[:2].sum(), TINY)
        questions = most_useful(usefulness(P, reached), mine < 0, graph.neighbours, graph.weights, QUESTIONS)
        own = unseen[np.arange(len(labelled)), numbers]
        doubtful = np.flatnonzero((own < UNLIKELY) & (unseen.max(axis=1) > LIKELY))
        doubtful = doubtful[np.argsort(own[doubtful], kind="stable")]
        shares = ", ".join(
            f"{name} {100 * weight:.0f} %" for name, weight in zip(EXPERTS, weights, strict=True)
        )
        return Lesson(
            classes,
            P[self.copy_of],
            self.rows[questions],
            self.rows[labelled[doubtful]],
            unseen[doubtful].argmax(axis=1),
            shares,
            self.copy_of,
            tuple((float(weight), one) for weight, one in zip(spreading, graphs, strict=True) if weight > 0.01),
            labelled,
            self.rows[labelled],
            masses(numbers, BALANCE)[numbers],
        )

    def estimate(self, y: Array, checks: Array) -> Estimate | None:
        """Return how many suggestions are right, from labels of samples that were drawn at random.

        These labels have taught, too. So each one is left out when it is judged: of the labels that spread to
        the sample, its own is not counted. Old checks are judged in the same way as new ones, by what is known
        now. The samples that are left are easier than the checks were when they were drawn, because the hardest
        ones have been asked for since. So the share is corrected by how much surer the model is of them.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            The labels of the last lesson.
        checks : array-like
            Rows that were drawn at random, all with labels.

        Returns
        -------
        estimate : Estimate or None
            None if there are no checks, or fewer than two classes.
        """
        mine = self._of_samples(np.asarray(y))
        samples = np.unique(self.copy_of[np.asarray(checks, dtype=np.int64)])
        samples = samples[mine[samples] >= 0]
        if self.space is None or not len(samples) or len(np.unique(mine[mine >= 0])) < 2:
            return None
        if self.last is None or not np.array_equal(self.last[2], mine):
            self.learn(y)
        assert self.last is not None
        classes, guesses, _ = self.last
        with one_blas_thread(), float32_products("full", self.device):
            total = self._left_out(samples)
        right = classes[total.argmax(axis=1)] == mine[samples]
        surer = 0.0
        if (mine < 0).any():
            every = np.concatenate([to_host(guesses.total)[mine < 0], total])
            is_left = np.arange(len(every)) < len(every) - len(total)
            sure = self._probabilities(every, is_left).max(axis=1)
            surer = float(sure[is_left].mean() - sure[~is_left].mean())
        found = with_interval(float(np.clip(right.mean() + surer, 0, 1)), len(samples))
        # Suggestions are as sure as they are right, in the mean. A few checks do not change that much.
        shown = (found.accuracy * len(samples) + USUAL * USUAL_CHECKS) / (len(samples) + USUAL_CHECKS)
        self.confidence = float(np.clip(shown, 0.5, 0.98))
        return found

    def _probabilities(self, total: Array, is_open: Array) -> Array:
        """Return probabilities from sums of logarithms, as sure for open samples as suggestions are right."""
        factor = sharpness(total[is_open] if is_open.any() else total, self.confidence)
        return np.asarray(softmax(factor * total, axis=1), dtype=np.float32)

    def _left_out(self, samples: Array) -> Array:
        """Return what the experts would say of labelled samples together, without the label of each: (m, c).

        F = (1 - a) (I - a S)^-1 H is linear in the labels H. So what reaches sample i from the others is the
        sum over them of column i of (1 - a) (I - a S)^-1, times their masses. The learnt space stays as it is.
        From the Gaussians of labelled samples, a part of the samples is left out at a time.
        """
        assert self.space is not None
        assert self.last is not None
        classes, guesses, mine = self.last
        labelled = np.flatnonzero(mine >= 0)
        Z, m = self.space.Z, len(samples)
        numbers = np.searchsorted(classes, mine[labelled])
        one_hots = np.eye(len(classes))[numbers]
        H = one_hots * masses(numbers, BALANCE)
        here = np.zeros((len(mine), m), dtype=np.float32)
        here[samples, np.arange(m)] = 1
        logs = []
        for S, F in ((guesses.graph.matrix(), guesses.learnt), (self.plain, guesses.plain)):
            columns = to_host(spread(S, as_array(here, Z), SHARE_OF_NEIGHBOURS, tol=1e-5))[labelled]
            others = columns.T * (labelled != samples[:, None])
            logs.append(sharpness(log_shares(F)) * log_shares(others @ H))
        guess = partial(Gaussians.of_labelled, Z, self.space.products)
        every = as_array(labelled, Z), as_array(one_hots.astype(np.float32), Z)
        factor, alone = sharpness(guess(*every).guess(Z)), np.empty((m, len(classes)))
        for part in range(min(PARTS, m)):
            hidden = samples[part::PARTS]
            rest = ~np.isin(labelled, hidden)
            others = as_array(labelled[rest], Z), as_array(one_hots[rest].astype(np.float32), Z)
            alone[part::PARTS] = to_host(guess(*others).guess(Z[as_array(hidden, Z)]))
            alone[part::PARTS][
                :, ~one_hots[rest].any(axis=0)
            ] = -np.inf  # a class without labels is not guessed
        logs.append(factor * alone)
        logs = [np.maximum(log_softmax(one, axis=1), np.log(TINY)) for one in logs]
        return np.einsum("e,enc->nc", guesses.weights, np.stack(logs))

    def _of_samples(self, y: Array) -> Array:
        """Return the labels of distinct samples. Of copies with different labels, the last row counts."""
        found = np.full(len(self.rows), -1)
        has_label = y >= 0
        found[self.copy_of[has_label]] = y[has_label]
        return found

    def _nothing(self, y: Array, mine: Array, classes: Array) -> Lesson:
        """Return a lesson without suggestions: questions about samples that are unlike each other."""
        is_open = mine < 0
        questions = np.flatnonzero(is_open)
        if self.space is not None:
            questions = first_questions(to_host(self.space.Z), is_open, QUESTIONS)
        none = np.empty(0, dtype=np.int64)
        empty = np.empty((len(y), 0), dtype=np.float32)
        return Lesson(
            classes, empty, self.rows[questions], none, none, "", self.copy_of, (), none, none, np.empty(0)
        )

    def _guess(
        self,
        labelled: Array,
        numbers: Array,
        c: int,
        weights: Array,
        R: Array | None,
        threads: int | None = None,
    ) -> Guesses:
        """Return the guesses of all experts, from labels and from the guesses R of a lesson before, if any."""
        assert self.space is not None
        Z, products = self.space.Z, self.space.products
        where = as_array(labelled, Z)
        one_hots = np.eye(c, dtype=np.float32)[numbers]
        known = where, as_array(one_hots, Z)
        H = one_hot(Z, where, as_array(one_hots * masses(numbers, BALANCE).astype(np.float32), Z))
        how = H, threads or self.threads
        alone = sharpen(Gaussians.of_labelled(Z, products, *known).guess(Z), *known)
        F = spread(self.plain, H, SHARE_OF_NEIGHBOURS)
        plain = sharpen(log_shares(F), *known)
        if R is None:  # each start goes its own way for two steps
            ends = []
            for guesses in (alone, plain):
                for _ in range(2):
                    _, learnt = self._spread_in_space_of(guesses, *how)
                    guesses = sharpen(self._gaussians(log_shares(learnt), known), *known)
                ends.append(log_shares(learnt))
            R = sharpen(ends[0] + ends[1], *known)
        else:
            R[where] = known[1]
            R = (R + alone + plain) / 3
        log = namespace(Z).log
        for _ in range(2):
            graph, learnt = self._spread_in_space_of(R, *how)
            # All are as sure as each other, so that weights mean the same for each.
            experts = tuple(log(one + TINY) for one in (sharpen(log_shares(learnt), *known), plain, alone))
            total = sum(float(weight) * one for weight, one in zip(weights, experts, strict=True))
            gaussians = self._gaussians(total, known)
            R = sharpen(gaussians, *known)
        return Guesses(experts, total, R, gaussians, graph, learnt, F, np.asarray(weights))

    def _spread_in_space_of(self, R: Array, H: Array, threads: int) -> tuple[Graph, Array]:
        """Return the graph in the space that guesses R teach, and the labels H spread over it."""
        assert self.space is not None
        Z = self.space.Z
        axes = Gaussians.of(Z, self.space.products, R, SHRINKAGE).directions()
        graph = Graph.of(Z @ axes, self.space.graph.neighbours.shape[1], threads)
        return graph, spread(graph.matrix(), H, SHARE_OF_NEIGHBOURS)

    def _gaussians(self, scores: Array, known: tuple[Array, Array]) -> Array:
        """Return what Gaussians of all samples say, whose classes these scores and the labels guess."""
        assert self.space is not None
        Z = self.space.Z
        return Gaussians.of(Z, self.space.products, sharpen(scores, *known), SHRINKAGE).guess(Z)

    def _hide_some(self, labelled: Array, numbers: Array, classes: Array) -> None:
        """Note what the experts say of labels that are hidden from them in turn, if any can be."""
        folds = default_folds(numbers, 0)
        say = partial(self._say, labelled, numbers, len(classes))
        parts = map_in_threads(say, folds, 1 if self.device else self.threads)
        for (_, test), part in zip(folds, parts, strict=True):
            for i, one in zip(test, part, strict=True):
                self.said.setdefault(int(labelled[i]), Said(classes, one))

    def _say(self, labelled: Array, numbers: Array, c: int, fold: tuple[Array, Array]) -> Array:
        """Return what the experts say of one part of the labels, from the other part."""
        train, test = fold
        found = self._guess(labelled[train], numbers[train], c, np.array(FIRST_WEIGHTS), None, 1)
        return self._experts(found, labelled[test])

    def _note_what_was_said(self, labelled: Array) -> None:
        """Note what the last lesson said of the samples that have got labels since."""
        assert self.last is not None
        classes, guesses, before = self.last
        new = labelled[before[labelled] < 0]
        for i, one in zip(new.tolist(), self._experts(guesses, new), strict=True):
            self.said.pop(i, None)
            self.said[i] = Said(classes, one)

    def _experts(self, guesses: Guesses, samples: Array) -> Array:
        """Return the logarithms of probabilities of samples by each expert: (m, 3, c)."""
        where = [as_array(samples, one) for one in guesses.experts]
        parts = [to_host(one[rows]) for one, rows in zip(guesses.experts, where, strict=True)]
        return np.stack([log_softmax(part.astype(np.float64), axis=1) for part in parts], axis=1)

    def _weights(self, mine: Array) -> Array:
        """Return the weights of the experts: those of a grid, averaged.

        A point of the grid counts by how likely it makes the last answers, with the best of some factors.
        """
        last = [(i, said) for i, said in self.said.items() if mine[i] >= 0][-LAST_ANSWERS:]
        if len(last) < FEWEST_ANSWERS:
            return np.array(FIRST_WEIGHTS)
        classes = np.unique(np.concatenate([mine[[i for i, _ in last]], *(said.classes for _, said in last)]))
        # A class that was not known when it was asked for has next to no share.
        logs = np.full((len(last), len(EXPERTS), len(classes)), np.log(TINY))
        for k, (_, said) in enumerate(last):
            logs[k][:, np.searchsorted(classes, said.classes)] = said.experts
        answers = np.searchsorted(classes, mine[[i for i, _ in last]])
        tenths = range(11)
        grid = np.array([(a, b, 10 - a - b) for a in tenths for b in tenths if a + b <= 10]) / 10
        losses = np.empty(len(grid))
        for k, weights in enumerate(grid):
            total = np.einsum("nec,e->nc", logs, weights)
            shares = [softmax(factor * total, axis=1)[np.arange(len(last)), answers] for factor in FACTORS]
            losses[k] = -np.log(SURPRISES + (1 - SURPRISES) * np.array(shares)).sum(axis=1).max()
        likely = np.exp(losses.min() - losses)
        return np.asarray(likely @ grid / likely.sum())


def carried_over(before: Array, R: Array, classes: Array) -> Array:
    """Return earlier guesses (n, c) for the classes of now, with 0 for a class that is new."""
    xp = namespace(R)
    padded = xp.concat([R, xp.zeros_like(R[:, :1])], axis=1)
    R = padded[:, as_array(places_of(classes, before), padded)]
    sums = xp.sum(R, axis=1, keepdims=True)  # less than 1 where a class has gone
    return xp.where(sums > TINY, R / xp.clip(sums, TINY, None), xp.ones_like(R) / len(classes))


def places_of(values: Array, among: Array) -> Array:
    """Return where values are in a sorted array, or its length for those that are not there."""
    places = np.minimum(np.searchsorted(among, values), len(among) - 1)
    return np.where(among[places] == values, places, len(among))


def with_interval(share: float, n: int) -> Estimate:
    """Return a share of n, and its 90 % interval, Wilson's."""
    z = NormalDist().inv_cdf(0.95)
    middle, whole = share + z * z / (2 * n), 1 + z * z / n
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Estimate(share, float(max(middle - half, 0) / whole), float(min((middle + half) / whole, 1)), n)


def mix(questions: Sequence[int], checks: Sequence[int], n: int, n_checks: int = 0) -> list[tuple[int, bool]]:
    """Return at most n questions, and for each whether it is a random check.

    Every third one is a check until there are 40, with the `n_checks` that were drawn before; then every tenth.
    """
    useful, random = iter(questions), iter(checks)
    found: list[tuple[int, bool]] = []
    for k in range(1, n + 1):
        every = EVERY_FIRST if n_checks < MANY_CHECKS else EVERY_LATER
        is_check = k % every == 0
        one: Any = next(random if is_check else useful, None)
        if one is None:
            is_check = not is_check
            one = next(random if is_check else useful, None)
        if one is None:
            break
        n_checks += is_check
        found.append((int(one), is_check))
    return found
