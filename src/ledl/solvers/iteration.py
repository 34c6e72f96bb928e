"""The loop of all iterative solvers: history, stopping problem by problem, status with advice, callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ledl.arrays import Array, to_host

State = TypeVar("State")
Record = dict[str, Array]

# The objective must stay nearly unchanged this many times in a row: a single small change is often an accident
# of the multipliers.
PATIENCE = 3


class Status(Enum):
    """The reason why iterations ended, with advice."""

    CONVERGED = "converged"
    MAX_ITER = (
        "the objective still changed by more than tol={tol} (relative) when max_iter={max_iter} "
        "was reached; raise max_iter, raise tol, or set tol=0 to ask for exactly max_iter iterations"
    )
    NON_FINITE = (
        "the objective became infinite or NaN; scale the samples (normalize=True does), use float64, or, "
        "for LEDL, raise rho or lower dual_step"
    )
    INTERRUPTED = "a callback asked to stop"

    def advice(self, **values: Any) -> str:
        """Return the text of the status, with the parameters that it names filled in."""
        return self.value.format(**values)


class Iterations(NamedTuple):
    """The result of a loop: its final state, and for each problem the iterations, history and status.

    ``history`` maps a name to an array (max over problems of n_iter, ...), NaN after a problem
    has ended.
    """

    state: Any
    n_iter: Array
    history: dict[str, Array]
    status: Array


def iterate(
    step: Callable[[State, int, Array], tuple[State, Record]],
    state: State,
    *,
    watch: str,
    problems: tuple[int, ...] = (),
    max_iter: int,
    tol: float,
    callback: Callable[[int, Record, Any], bool] | None = None,
    past: Sequence[Record] = (),
) -> Iterations:
    """Call `step` until every problem has converged, or `max_iter` times.

    Parameters
    ----------
    step : callable (state, iteration, active) -> (state, record)
        One iteration. `active`, of shape `problems`, marks the problems that continue; the others
        must not change. `record` holds numbers of the problems that continue, in their order.
    watch : str
        Name in `record` of the number that decides. A problem has converged when its relative
        change is at most `tol` three times in a row; ``tol=0`` runs all iterations.
    callback : callable (iteration, record, state) -> bool
        Called after every iteration; True ends the loop.
    past : sequence of records
        Records of earlier iterations, which led to `state`.
    """
    active = np.ones(problems, dtype=bool)
    calm = n_iter = np.zeros(problems, dtype=int)
    status = np.full(problems, Status.MAX_ITER)
    history: dict[str, list[Array]] = {}
    previous = np.full(problems, np.nan)
    for iteration in range(max_iter):
        known = iteration < len(past)
        state, record = (state, past[iteration]) if known else step(state, iteration, active)
        for name, values in record.items():  # a few numbers a problem, on the host
            row = np.full(problems, np.nan)
            row[active] = np.ravel(to_host(values))
            history.setdefault(name, []).append(row)
        n_iter = n_iter + active
        current = history[watch][-1]
        with np.errstate(invalid="ignore"):  # the objective of a broken problem may be infinite
            unchanged = np.abs(previous - current) <= tol * np.abs(current)
        calm = np.where(unchanged, calm + 1, 0)
        converged = active & (calm >= PATIENCE) & (tol > 0)
        broken = active & ~np.isfinite(current)
        status[converged], status[broken] = Status.CONVERGED, Status.NON_FINITE
        active, previous = active & ~converged & ~broken, current
        if not known and callback is not None and callback(iteration, record, state):
            status[active] = Status.INTERRUPTED
            break
        if not active.any():
            break
    return Iterations(state, n_iter, dict(zip(history, map(np.stack, history.values()), strict=True)), status)
