"""What is trained is what was looked at, whatever a callback changes or traces again."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.tracing.random_ops import random_numbers_from
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.tracing.traced_part import traced_part
from tf_lowrank_dp.training import chosen_method
from tf_lowrank_dp.training.state import ledger_of

N = 256


class Centre(keras.layers.Layer):
    """Takes off the batch's mean as soon as a Python attribute says so."""

    on = False

    def call(self, h):
        return h - tf.reduce_mean(h, 0, keepdims=True) if self.on else h


class WarmUp(keras.callbacks.Callback):
    """Switches it on in the second epoch, and has the step traced again."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.get_layer("centre").on = epoch > 0
        if epoch and not self.model.run_eagerly:
            self.model.make_train_function(force=True)


def rows(n=N):
    x = np.random.RandomState(0).normal(size=(n, 4)).astype("float32")
    x[-1] = 5.0 * n
    return x, np.random.RandomState(1).randint(0, 2, n)


def compiled(private, *middle, **arguments):
    layers = [keras.Input((4,)), keras.layers.Dense(8), *middle, keras.layers.Dense(2)]
    of_compile = {"run_eagerly": arguments.pop("run_eagerly", False)}
    model = private(keras.Sequential(layers), noise_multiplier=1.0, **arguments)
    model.compile(model.optimizer, model.loss, jit_compile=False, **of_compile)
    return model


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_term_over_the_batch_that_a_callback_switches_on_is_refused(private, run_eagerly):
    """Once one record more moved the sum by many clips in the second epoch."""
    model = compiled(private, Centre(name="centre"), run_eagerly=run_eagerly)
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        model.fit(*rows(), batch_size=N, epochs=2, verbose=0, callbacks=[WarmUp()])
    assert ledger_of(model).num_steps == 1


@pytest.fixture
def probed(monkeypatch):
    """The arguments of each call of the probe."""
    probe, calls = chosen_method.probe, []

    def counted(*args, **kwargs):
        calls.append(args)
        return probe(*args, **kwargs)

    monkeypatch.setattr(chosen_method, "probe", counted)
    return calls


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_model_is_looked_at_once_while_its_graph_stays_the_same(private, run_eagerly, probed):
    model = compiled(private, keras.layers.Dropout(0.5), run_eagerly=run_eagerly)
    model.fit(*rows(), batch_size=16, steps_per_epoch=3, verbose=0)
    assert len(probed) == 1


def freeze_more(model):
    model.layers[1].trainable = False


def change_frozen_values(model):
    model.layers[0].bias.assign_add(np.ones(8))


def compile_anew(model):
    model.compile(model.optimizer, "sparse_categorical_crossentropy", jit_compile=False)


def leave_it(model):
    pass


@pytest.mark.parametrize(
    ("change", "batch_size", "looks"),
    [
        (leave_it, N, 1),
        (leave_it, N // 2, 2),
        (freeze_more, N, 2),
        (change_frozen_values, N, 2),
        (compile_anew, N, 2),
    ],
)
def test_another_fit_looks_again_only_if_something_has_changed(
    private, probed, change, batch_size, looks
):
    model = compiled(private, keras.layers.Dense(3))
    model.layers[0].trainable = False
    model.fit(*rows(), batch_size=N, verbose=0)
    change(model)
    model.fit(*rows(), batch_size=batch_size, verbose=0)
    assert len(probed) == looks


@pytest.mark.parametrize("method", ["auto", "reweight", "loop", "vectorized"])
def test_what_the_backward_pass_writes_is_refused(private, method):
    """Once an un-noised sum stayed in a variable under "loop"."""
    kept = tf.Variable(tf.zeros(8))

    @tf.custom_gradient
    def spy(h):
        def backward(d):
            with tf.control_dependencies([kept.assign_add(tf.reduce_sum(d, 0))]):
                return tf.identity(d)

        return tf.identity(h), backward

    model = compiled(private, keras.layers.Lambda(spy, output_shape=(8,)), gradient_method=method)
    with pytest.raises(
        tfdp.UnsupportedModelError, match="keeps something of the ex|cannot be traced"
    ):
        model.fit(*rows(), batch_size=16, steps_per_epoch=2, verbose=0)
    assert ledger_of(model).num_steps == 0


class Again(keras.layers.Layer):
    """Computes its layer again in the backward pass."""

    def __init__(self, inner, again):
        super().__init__()
        self.inner, self.again = inner, again

    def build(self, shape):
        self.inner.build(shape)

    def call(self, h):
        return self.again(self.inner)(h)


def in_scope(layer):
    with keras.RematScope(mode="full"):
        return layer()


RECOMPUTED = {
    "recompute_grad": lambda: Again(keras.layers.Dense(8), tf.recompute_grad),
    "remat": lambda: Again(keras.layers.Dense(8), keras.remat),
    "RematScope": lambda: in_scope(lambda: keras.layers.Dense(8)),
    "function without weights": lambda: Again(keras.layers.ReLU(), tf.recompute_grad),
}


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("name", RECOMPUTED)
def test_what_is_recomputed_trains_the_same_weights_as_what_is_kept(
    private, assert_same_weights, weights_of, name, method
):
    def trained(middle):
        keras.utils.set_random_seed(0)
        model = compiled(private, middle(), gradient_method=method, l2_norm_clip=0.5, seed=3)
        before = weights_of(model)
        model.fit(*rows(32), batch_size=16, verbose=0)
        assert all(np.any(a != b) for a, b in zip(before, weights_of(model), strict=True))
        return model

    plain = keras.layers.ReLU if "without" in name else lambda: keras.layers.Dense(8)
    assert_same_weights(trained(RECOMPUTED[name]), trained(plain))


def test_a_mask_is_that_of_the_output_in_the_gradient_of_what_would_be_recomputed():
    """A recomputed dropout layer gave its output one mask and its gradient another."""
    stream = SecretStream()

    @tf.function(autograph=False)
    def masks(x):
        with random_numbers_from(stream), tf.GradientTape() as tape:
            tape.watch(x)
            kept = tf.recompute_grad(lambda h: keras.random.dropout(h, 0.5))(x)
        return kept, tape.gradient(kept, x)

    mask, of_gradient = masks(tf.ones([N]))
    np.testing.assert_array_equal(mask, of_gradient)
    assert set(np.unique(mask)) == {0.0, 2.0}


class Referring(keras.Model):
    """Scales by the mean of a constant, or of the batch once the constant is taken away."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        self.reference = tf.ones((500, 1))  # so large that a graph captures it

    def call(self, inputs):
        reference = inputs["b"] if self.reference is None else self.reference
        return self.dense(inputs["a"]) * tf.reduce_mean(reference)


def test_a_constant_that_becomes_the_batch_is_another_graph(private):
    """One record moved the sum from 200 to -200 clips: the operations were the same."""
    data = {"a": np.ones((8, 1), "float32"), "b": np.ones((8, 1), "float32")}
    model = Referring()
    model(data)
    private(model, loss=lambda y_true, y_pred: y_pred[:, 0], l2_norm_clip=1.0, noise_multiplier=1.0)
    model.fit(data, np.zeros((8, 1)), batch_size=8, verbose=0)
    model.reference = None
    model.make_train_function(force=True)
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        model.fit(data, np.zeros((8, 1)), batch_size=8, verbose=0)
    assert ledger_of(model).num_steps == 1


KEPT = tf.Variable(tf.zeros([N, 8]))


@pytest.mark.parametrize(
    "keep",
    [
        lambda x: KEPT[:1].assign(x[:1]),
        lambda x: tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=KEPT.handle,
            accum=KEPT.handle,
            lr=1.0,
            epsilon=1.0,
            grad=x[:1],
            indices=[0],
        ),
        lambda x: tf.raw_ops.AddSparseToTensorsMap(
            sparse_indices=[[0]], sparse_values=x[0, :1], sparse_shape=[1]
        ),
        lambda x: tf.raw_ops.Stage(values=[x], shared_name="kept"),
        lambda x: tf.raw_ops.SaveV2(
            prefix="kept", tensor_names=["x"], shape_and_slices=[""], tensors=[x]
        ),
    ],
)
def test_a_layer_that_keeps_rows_outside_of_variables_is_refused(
    private, keep, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # the probe runs the model, and one of them writes a file

    def kept(x):
        keep(x)
        return x

    model = compiled(private, keras.layers.Lambda(kept))
    with pytest.raises(tfdp.UnsupportedModelError, match="nothing else"):
        model.fit(*rows(), batch_size=N, verbose=0)
    assert ledger_of(model).num_steps == 0


def test_how_a_function_is_run_is_no_part_of_what_it_computes():
    """A call of a function holds the optimizer's settings, which the probe has others of."""

    def digest(settings):
        before = tf.config.optimizer.get_experimental_options()
        tf.config.optimizer.set_experimental_options(settings)
        try:
            function = tf.function(lambda x: tf.function(tf.exp)(x) + 1.0)
            graph = function.get_concrete_function(tf.TensorSpec([None])).graph
        finally:
            tf.config.optimizer.set_experimental_options(
                {**dict.fromkeys(settings, False), **before}
            )
        assert any(op.type == "PartitionedCall" for op in graph.get_operations())
        return traced_part(graph, 0).digest

    assert digest({"disable_meta_optimizer": True}) == digest({"disable_meta_optimizer": False})


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_model_that_calls_functions_trains_in_graphs_and_compiled(jit_compile):
    class Calls(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], 2))

        def call(self, x):
            return tf.function(lambda t: tf.tanh(t) @ self.kernel)(x)

    model = tfdp.make_private(keras.Sequential([keras.Input((3,)), Calls(), keras.layers.Dense(1)]))
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=4, verbose=0)
    assert optimizer.ledger.num_steps == 2
