"""What several workers cannot train is refused, with its remedy, before anything is sent."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.workers import cases
from tf_lowrank_dp.workers import join
from tf_lowrank_dp.workers.agreement import Disagreement, refuse_differences, refuse_same_rows
from tf_lowrank_dp.workers.alone import ALONE, Workers
from tf_lowrank_dp.workers.leaves import map_leaves


class Two(Workers):
    """The chief of two, whose other never comes: whatever is refused is refused before."""

    count = 2

    def gather(self, text):
        raise AssertionError("something was sent")

    gather_numbers = gather


@pytest.fixture
def two(monkeypatch):
    workers = Two()
    monkeypatch.setattr(join, "_joined", [workers])
    return workers


@pytest.fixture
def cluster(monkeypatch):
    """Sets TF_CONFIG; returns what sets it."""
    monkeypatch.setattr(join, "_joined", [])

    def of(jobs, job="worker", index=0):
        task = {"type": job, "index": index}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": task}))

    return of


def test_a_model_that_would_train_alone_among_others_is_refused(two):
    with pytest.raises(tfdp.UnsupportedModelError, match=r"make_private\(model, workers=...\)"):
        cases.model_of(ALONE)


def test_workers_that_were_not_joined_are_refused():
    with pytest.raises(tfdp.UnsupportedModelError, match="join_workers"):
        cases.model_of(Two())


def test_a_model_that_was_made_before_the_others_were_joined_is_refused(monkeypatch):
    model = cases.compiled(ALONE, cases.OPTIMIZERS["dpsgd"]())
    monkeypatch.setattr(join, "_joined", [Two()])
    with pytest.raises(tfdp.UnsupportedModelError, match="Expected the workers of this process"):
        model.fit(*cases.rows(), verbose=0)
    assert tfdp.privacy_spent(model) == 0.0


def test_batches_of_others_are_refused(two):
    model = cases.compiled(two, cases.OPTIMIZERS["dpsgd"]())
    data = tf.data.Dataset.from_tensor_slices(cases.rows()).batch(8)
    with pytest.raises(tfdp.UnsupportedModelError, match="rows that 2 workers can share"):
        model.fit(data, sampling="poisson", num_examples=96, verbose=0)


def test_a_custom_loop_is_refused(two):
    model = cases.compiled(two, cases.OPTIMIZERS["dpsgd"]())
    sampler = tfdp.PoissonSampler(*cases.rows(), batch_size=8, steps=2)
    with pytest.raises(tfdp.UnsupportedModelError, match="one process for a custom loop"):
        tfdp.PrivateTrainer(model, sampler)


def test_statistics_of_which_each_worker_would_release_its_own_are_refused(two):
    with pytest.raises(tfdp.UnsupportedModelError, match="beforehand in one process"):
        tfdp.private_mean(np.ones((5, 2)), l2_norm_clip=1.0, noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="beforehand in one process"):
        tfdp.private_histogram([["a"]], ["a"], tokens_per_record=1, noise_multiplier=1.0)


def test_several_processes_that_were_not_joined_are_told_how(cluster):
    cluster({"worker": ["a:1", "b:1"]})
    with pytest.raises(tfdp.UnsupportedModelError, match=r"tfdp\.join_workers\(\) first thing"):
        tfdp.make_private(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))


@pytest.mark.parametrize(
    "jobs, job, index",
    [
        ({"worker": ["a:1"], "ps": ["b:1"]}, "worker", 0),
        ({"chief": ["a:1", "b:1"]}, "chief", 0),
        ({"worker": ["a:1", "b:1"]}, "worker", 2),
        ({"worker": ["a:1", "b:1"]}, "chief", 0),
        ({"worker": ["a:1", "b:1"]}, "worker", None),
    ],
)
def test_other_clusters_are_refused(cluster, jobs, job, index):
    cluster(jobs, job, index)
    with pytest.raises(tfdp.UnsupportedModelError, match="Expected TF_CONFIG to name workers"):
        tfdp.join_workers()


def test_a_cluster_that_cannot_be_read_is_refused(cluster, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(tfdp.UnsupportedModelError, match="Expected TF_CONFIG to be JSON"):
        tfdp.join_workers()


def test_two_visible_devices_of_one_worker_are_refused(cluster, monkeypatch):
    cluster({"worker": ["a:1", "b:1"]})
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["GPU:0", "GPU:1"])
    with pytest.raises(tfdp.UnsupportedModelError, match="2 visible GPUs.*CUDA_VISIBLE_DEVICES"):
        tfdp.join_workers()


def test_joining_when_tensorflow_is_at_work_is_refused(cluster):
    tf.constant(1) + 1
    cluster({"worker": ["a:1", "b:1"]})
    with pytest.raises(RuntimeError, match="before any other use of TensorFlow"):
        tfdp.join_workers()


@pytest.mark.parametrize("jobs", [{}, {"worker": ["a:1"]}, {"chief": ["a:1"]}])
def test_a_cluster_of_one_is_alone(cluster, jobs):
    cluster(jobs)
    assert tfdp.join_workers() is ALONE


def test_the_same_rows_in_two_shards_are_refused():
    with pytest.raises(Disagreement, match="the same rows on workers 0 and 2"):
        refuse_same_rows(["a", "b", "a"])


def test_a_sampler_of_all_rows_is_refused_as_a_shard(two):
    model = cases.compiled(two, cases.OPTIMIZERS["dpsgd"]())
    sampler = tfdp.PoissonSampler(*cases.rows(), batch_size=12)
    with pytest.raises(ValueError, match="this worker's rows with sharded=True"):
        model.fit(sampler, sharded=True)


def test_a_difference_is_shown_by_worker():
    facts = [{"clip": "1.0", "rows": "a"}, {"clip": "2.0", "rows": "a"}, {"clip": "1.0"}]
    with pytest.raises(Disagreement) as raised:
        refuse_differences(facts)
    assert "clip:\n    worker 0, 2: 1.0\n    worker 1: 2.0\n" in str(raised.value)
    assert "rows:\n    worker 0, 1: a\n    worker 2: -" in str(raised.value)


def test_a_long_value_is_shown_where_it_differs():
    first, second = "a" * 500 + "b" + "a" * 500, "a" * 500 + "c" + "a" * 500
    with pytest.raises(Disagreement, match=r"\.\.\.a+ba+\.\.\.\n.*\.\.\.a+ca+\.\.\."):
        refuse_differences([{"x": first}, {"x": second}])


def test_a_subspace_that_cannot_be_sent_is_refused():
    with pytest.raises(TypeError, match="Let refresh"):
        map_leaves(lambda tensor: tensor, {"a": np.zeros(3)})
