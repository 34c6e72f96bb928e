"""Plain versions of codes of one sample, with which `ledl.solvers.compiled.numba` is compared."""

import numpy as np

from ledl.solvers.lasso import duality_gap


def active_set_plain(G, b, sq_norm, alpha, tol, max_iter, positive):
    """Return the code of one sample and its gap, as "active_set" does, but without its bookkeeping.

    The `width` atoms most correlated with the residual enter, with the signs of their correlations; `width`
    doubles while all of them are useful. Then the objective, quadratic while signs stay, is minimised over the
    active atoms; an atom that reaches zero on the way leaves, and the others continue. An atom that is a
    combination of active ones replaces the first of them that it brings to zero. Every round lowers the
    objective, so no active set comes twice.
    """
    s, sign, width = np.zeros_like(b), np.zeros_like(b), 2
    for _ in range(max_iter + 1):
        c = b - s @ G
        gap = duality_gap(s[None], (s @ G)[None], b[None], np.array([sq_norm]), alpha, positive)[0]
        size = np.where(sign == 0, c if positive else np.abs(c), -np.inf)
        entering = np.argsort(-size)[: min(width, np.count_nonzero(size > alpha))]
        if gap <= tol * sq_norm / 2 or not entering.size:
            break
        for j in entering:
            on = np.flatnonzero(sign)
            w = np.linalg.solve(G[np.ix_(on, on)], G[on, j])
            if G[j, j] - w @ G[on, j] > 1e-12 * G[j, j]:
                sign[j] = np.sign(c[j])
            elif j == entering[0]:
                _exchange_plain(s, sign, on, w, j, np.sign(c[j]))
                break
        thrown = _settle_plain(G, b, alpha, s, sign)
        width = 2 * width if thrown == 0 else max(1, width // 2)
    return s, float(gap)


def _exchange_plain(s, sign, on, w, j, direction):
    """Add atom j = sum_a w_a (atom a) in place of others: the fit stays, the l1 norm falls."""
    falls = s[on] * w * direction > 0
    step, leaves = min(zip(s[on][falls] / (w * direction)[falls], on[falls], strict=True))
    s[on] -= step * direction * w
    s[j], sign[j] = step * direction, direction
    s[leaves] = sign[leaves] = 0


def _settle_plain(G, b, alpha, s, sign):
    """Minimise over the active atoms at their signs; return how many that had just entered left at once."""
    thrown = 0
    while sign.any():
        on = np.flatnonzero(sign)
        target = np.linalg.solve(G[np.ix_(on, on)], b[on] - alpha * sign[on])
        turned = target * sign[on] <= 0
        if not turned.any():
            s[on] = target
            break
        stuck = on[turned & (s[on] == 0)]
        if stuck.size:
            sign[stuck] = 0
            thrown += stuck.size
            continue
        reach = s[on][turned] / (s[on] - target)[turned]
        s[on] += reach.min() * (target - s[on])
        leaves = on[turned][reach.argmin()]
        s[leaves] = sign[leaves] = 0
    return thrown


def omp_plain(D, x, n_nonzero):
    """Return the code of one sample by definition: add the most correlated atom, then use least squares."""
    chosen = []
    s, residual = np.zeros(len(D)), x
    while len(chosen) < n_nonzero:
        c = np.abs(D @ residual)
        c[chosen] = 0
        chosen.append(int(c.argmax()))
        s[chosen] = np.linalg.lstsq(D[chosen].T, x, rcond=None)[0]
        residual = x - s @ D
    return s
