"""Tasks in threads, and BLAS held to one of them."""

import os
import queue
import threading
import time
from collections import Counter

import joblib
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from helpers.processes import process
from ledl.parallel import (
    goes_elsewhere,
    in_threads,
    map_in_threads,
    n_places,
    n_threads,
    one_blas_thread,
    run_tasks,
)


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
def test_results_come_in_the_order_of_the_tasks(n_threads):
    def work(task):
        time.sleep(0.001 * (task % 3))
        return task, threading.get_ident()

    results = map_in_threads(work, list(range(20)), n_threads)
    assert [task for task, _ in results] == list(range(20))
    assert 1 <= len({thread for _, thread in results}) <= n_threads
    assert map_in_threads(work, [], n_threads) == []


@pytest.mark.parametrize("how", [map_in_threads, in_threads])
def test_threads_share_the_work(how):
    def work(task):
        time.sleep(0.003)
        return threading.get_ident()

    shares = Counter(how(work, list(range(24)), 2))
    assert len(shares) == 2
    assert min(shares.values()) >= 6


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_few_results_wait_to_be_taken(n_threads):
    begun = []
    for taken, result in enumerate(in_threads(lambda task: begun.append(task) or task, range(50), n_threads)):
        time.sleep(0.001)
        assert result == taken
        assert len(begun) <= taken + 1 + n_threads
    assert sorted(begun) == list(range(50))


@pytest.mark.parametrize("by_whom", ["caller", "helper"])
def test_an_error_ends_the_rest(by_whom):
    caller, done = threading.get_ident(), []

    def work(task):
        time.sleep(0.002)
        if (threading.get_ident() == caller) == (by_whom == "caller"):
            raise RuntimeError("this task")
        done.append(task)

    with pytest.raises(RuntimeError, match="this task"):
        map_in_threads(work, list(range(1000)), 2)
    assert len(done) < 10


def test_an_error_of_the_queue_is_an_error():
    def work(task):
        raise queue.Empty

    with pytest.raises(queue.Empty):
        map_in_threads(work, [1, 2, 3], 2)


def test_blas_is_held_and_given_back_whichever_thread_asks_first_and_ends_last():
    with threadpool_limits(2, "blas"):
        first_is_in, second_is_in, may_end = threading.Event(), threading.Event(), threading.Event()
        seen = []

        def first():
            with one_blas_thread():
                seen.append(blas_threads())
                first_is_in.set()
                second_is_in.wait()
            may_end.wait()  # alive until the second has ended

        thread = threading.Thread(target=first)
        thread.start()
        first_is_in.wait()
        with one_blas_thread():
            second_is_in.set()
            time.sleep(0.05)
            seen.append(blas_threads())
        assert blas_threads() == {2}
        may_end.set()
        thread.join()
        assert seen == [{1}, {1}]


def test_blas_has_its_threads_back_when_the_last_holder_ends():
    with threadpool_limits(2, "blas"):
        outer = one_blas_thread()
        with outer:
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


# Tasks in other processes.


def test_an_error_in_a_batch_arrives(backend):
    with joblib.parallel_config(backend=backend, n_jobs=2), pytest.raises(ZeroDivisionError):
        list(run_tasks(divmod, [(1, 1), (1, 0)]))


def test_one_job_and_threads_stay_in_this_process():
    for options in ({"backend": "threading", "n_jobs": 2}, {"n_jobs": 2}, {"backend": "sequential"}):
        with joblib.parallel_config(**options):
            assert not goes_elsewhere(None)
            assert {pid for _, pid in run_tasks(process, [(i,) for i in range(4)])} == {os.getpid()}
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert goes_elsewhere(None)
        assert not goes_elsewhere(1)
    assert not goes_elsewhere(-1)


def test_the_workers_of_a_cluster_are_places_and_no_threads(client):
    with joblib.parallel_config(backend="dask"):
        assert n_places(None) == 2
        assert n_places(-1) == 2
        assert n_threads(None) == 1
        assert n_threads(3) == 3
        assert n_threads(-1) == joblib.cpu_count()
    assert n_threads(3) == n_places(3) == 3


def counted(number):
    """What a task on a worker would do if it searched."""
    answers = list(run_tasks(process, [(i,) for i in range(3)]))
    return goes_elsewhere(None), n_threads(None), n_places(None), {pid for _, pid in answers} == {os.getpid()}


def test_a_worker_spreads_nothing_again(backend):
    with joblib.parallel_config(backend=backend, n_jobs=2):
        answers = joblib.Parallel()(joblib.delayed(counted)(i) for i in range(4))
    assert {(again, here) for again, _, _, here in answers} == {(False, True)}
    if backend == "dask":
        assert {(threads, places) for _, threads, places, _ in answers} == {(1, 1)}
