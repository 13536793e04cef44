"""Variables of job functions: one for each name, in all threads, and for a compiled job for good."""

import threading
import time

import numpy as np
import pytest
from compare import count_comparison

import miniflow as flow
import miniflow.typing as tp
from miniflow.errors import ArgumentError

X = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def no_variables():
    flow.clear_default_session()


def slowly(tensor):
    time.sleep(0.05)
    tensor.fill_(1.0)


def job(kind, trainable=None):
    @flow.global_function(type=kind)
    def run(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3,), initializer=slowly, trainable=trainable)
        y = (x * w).sum()
        if kind == "train":
            flow.optimizer.SGD(0.1, momentum=0.0).minimize(y)
        return y

    return run


def test_jobs_in_two_threads_share_a_variable():
    train, predict, failures = job("train"), job("predict"), []

    def call(one):
        try:
            one(X)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(one,)) for one in (train, predict)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    np.testing.assert_allclose(flow.get_all_variables()["w"].detach().numpy(), 0.8, rtol=1e-6)
    np.testing.assert_allclose(predict(X), 4.8, rtol=1e-6)
    count_comparison()


def test_a_job_that_compiles_again_keeps_its_variables():
    train = job("train")
    train(X)
    flow.clear_default_session()
    train.graph.config.disable_pass("cse")
    np.testing.assert_allclose([train(X), train(X)], [4.8, 3.6], rtol=1e-6)
    assert not flow.get_all_variables()
    count_comparison()


def test_trainable_is_compared():
    job("predict")(X)
    with pytest.raises(ArgumentError, match="'w' has trainable=True; asked for False"):
        job("train", trainable=False)(X)
    job("train")(X)
    flow.clear_default_session()
    job("predict", trainable=False)(X)
    assert not flow.get_all_variables()["w"].requires_grad
    job("predict")(X)
