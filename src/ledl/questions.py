"""Which labels would help most: the samples to ask a person about next."""

from __future__ import annotations

from numbers import Integral

import numpy as np
import scipy.sparse
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array
from ledl.parallel import n_threads, one_blas_thread
from ledl.semi_supervised import SemiSupervisedClassifier, distinct_rows
from ledl.solvers.graph import Graph

# A sample that labels reach this much is believed by half. 1 is usual, see `SemiSupervisedClassifier.reach`.
HALF_BELIEVED = 0.5
# First questions, without a model, come from at most this many samples.
SAMPLES_TO_LOOK_AT = 20_000


def next_questions(model: SemiSupervisedClassifier, X: Array, n_questions: int = 10) -> Array:
    r"""Return the samples whose labels would help a fitted model most.

    A label helps where the two best classes are nearly as probable, where few labels reach, and where the other
    questions are not: the neighbours of a question count less, by their weights in the graph.

    Parameters
    ----------
    model : SemiSupervisedClassifier
        The fitted model.

    X : array-like of shape (n_samples, n_features)
        The samples that the model was fitted on.

    n_questions : int, default=10
        How many samples to ask about. There may be fewer without a label.

    Returns
    -------
    rows : ndarray of shape (n_questions,)
        Rows of X, none of which has a label. The most useful is first.

    See Also
    --------
    SemiSupervisedClassifier : Learns from the answers.

    Notes
    -----
    Let a few answers be about samples that are drawn at random. Only these tell how good the model is: the
    samples that are asked for here are the hardest ones.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SemiSupervisedClassifier, next_questions
    >>> X, y = load_digits(return_X_y=True)
    >>> known = np.full(len(y), -1)
    >>> known[:50] = y[:50]
    >>> model = SemiSupervisedClassifier(random_state=0).fit(X, known)
    >>> rows = next_questions(model, X, 10)
    >>> known[rows] = y[rows]  # the answers
    >>> int((known >= 0).sum())
    60
    """
    if not isinstance(model, SemiSupervisedClassifier):
        raise TypeError(
            f"model is a {type(model).__name__}, but questions are about the graph of a "
            "SemiSupervisedClassifier. Give a fitted one; that of a RejectingClassifier is its estimator_."
        )
    check_is_fitted(model)
    check_scalar(n_questions, "n_questions", Integral, min_val=1)
    X = np.asarray(X)
    if len(X) != len(model.label_distributions_):
        raise ValueError(
            f"X has {len(X)} samples, but the model was fitted on {len(model.label_distributions_)}. Give the "
            "samples that it was fitted on, in the same order."
        )
    rows, copy_of = distinct_rows(X)
    points = model.reach_.points
    if len(rows) != len(points):
        raise ValueError(
            f"X has {len(rows)} different samples, but the model was fitted on {len(points)}. Give the samples "
            "that it was fitted on, in the same order."
        )
    graph: Graph
    if model.graph_ is not None:
        graph = Graph(model.graph_.neighbours, model.graph_.weights, model.graph_.scales, model.graph_.sums)
    else:
        with one_blas_thread():
            graph = Graph.of(points, model.reach_.n_neighbors, n_threads(model.n_jobs))
    is_open = np.ones(len(rows), dtype=bool)
    is_open[copy_of[model.labelled_rows_]] = False
    use = usefulness(model.label_distributions_[rows], model.reach_.values)
    return rows[most_useful(use, is_open, graph.neighbours, graph.weights, int(n_questions))]


def usefulness(probabilities: Array, reached: Array) -> Array:
    """Return 1 - v (p_1 - p_2), (n,): the two largest probabilities, believed by v = r / (r + 0.5).

    The reach r of labels is small for groups of samples without a label, which may be of another class than
    any label says.
    """
    largest = np.partition(probabilities, -2, axis=1)[:, -2:].astype(np.float64)
    believed = reached / (reached + HALF_BELIEVED)
    return np.asarray(1 - believed * (largest[:, 1] - largest[:, 0]))


def most_useful(use: Array, is_open: Array, neighbours: Array, weights: Array, n: int) -> Array:
    """Return at most n open samples, one after the other the most useful one that is left.

    Each one takes the share w_ij of the usefulness of its neighbours j away: the same answer is likely there.
    """
    rows = np.repeat(np.arange(len(use)), neighbours.shape[1])
    one_way = scipy.sparse.csr_array(
        (np.asarray(weights, dtype=np.float64).ravel(), (rows, np.asarray(neighbours).ravel())),
        shape=(len(use), len(use)),
    )
    links = one_way.maximum(one_way.T).tocsr()
    left = np.where(is_open, use, -1.0)
    found: list[int] = []
    for _ in range(min(n, int(is_open.sum()))):
        best = int(left.argmax())
        found.append(best)
        near = slice(links.indptr[best], links.indptr[best + 1])
        here = links.indices[near]
        left[here] = np.where(left[here] > 0, left[here] * (1 - links.data[near]), left[here])
        left[best] = -1
    return np.array(found, dtype=np.int64)


def first_questions(Z: Array, is_open: Array, n: int) -> Array:
    """Return at most n open samples that are unlike each other, for a start without any label.

    They are the first centres of k-means++, each of the best of some samples that are far from the others.
    """
    some = np.flatnonzero(is_open)
    if len(some) > SAMPLES_TO_LOOK_AT:
        some = np.random.default_rng(0).permutation(some)[:SAMPLES_TO_LOOK_AT]
    if len(some) <= 1:
        return some
    _, chosen = kmeans_plusplus(Z[some], min(n, len(some)), random_state=0)
    return np.array(list(dict.fromkeys(some[chosen].tolist())), dtype=np.int64)
