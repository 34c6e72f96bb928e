import numpy as np
import pytest

from ledl.solvers.iteration import Status, iterate


def play(values):
    """A step that records given values, problem by problem, and counts what stays active."""

    def step(state, iteration, active):
        mine = np.asarray(values)[iteration][active] if active.ndim else np.asarray(values)[iteration]
        return state + active, {"f": mine, "twice": 2 * mine}

    return step


def test_stops_after_three_calm_changes_in_a_row():
    values = [10, 5, 5, 5, 4, 4, 4, 4, 3]  # two calm changes, a jump, three calm ones
    run = iterate(play(values), 0, watch="f", max_iter=9, tol=1e-3)
    assert run.status[()] is Status.CONVERGED
    assert run.n_iter == 8
    assert run.history["twice"].tolist() == [2.0 * v for v in values[:8]]


def test_zero_tolerance_runs_all_iterations():
    run = iterate(play([1.0] * 9), 0, watch="f", max_iter=9, tol=0.0)
    assert run.status[()] is Status.MAX_ITER
    assert run.n_iter == 9


def test_problems_stop_one_by_one():
    values = np.array([[1, 8], [1, 4], [1, 2], [1, 1], [7, 1], [7, 1], [7, 1]], dtype=float)
    run = iterate(play(values), np.zeros(2), watch="f", problems=(2,), max_iter=7, tol=1e-3)
    assert run.n_iter.tolist() == [4, 7]
    assert run.state.tolist() == [4, 7], "a problem that has ended is not active any more"
    assert list(run.status) == [Status.CONVERGED, Status.CONVERGED]
    assert np.isnan(run.history["f"][4:, 0]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_problem_that_breaks_ends_alone(bad):
    values = np.array([[3, 3], [2, bad], [1, 1], [0.5, 1]])
    run = iterate(play(values), 0, watch="f", problems=(2,), max_iter=4, tol=0.0)
    assert list(run.status) == [Status.MAX_ITER, Status.NON_FINITE]
    assert run.n_iter.tolist() == [4, 2]


def test_a_callback_may_stop():
    seen = []

    def callback(iteration, record, state):
        seen.append((iteration, float(record["f"])))
        return iteration == 1

    run = iterate(play([5.0, 4.0, 3.0]), 0, watch="f", max_iter=3, tol=0.0, callback=callback)
    assert run.status[()] is Status.INTERRUPTED
    assert seen == [(0, 5.0), (1, 4.0)]


def test_advice_names_the_parameters():
    advice = Status.MAX_ITER.advice(tol=1e-4, max_iter=7)
    assert "tol=0.0001" in advice
    assert "max_iter=7" in advice
