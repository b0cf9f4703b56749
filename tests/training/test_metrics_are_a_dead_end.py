"""What metrics keep of examples, without clip and noise, comes back into no step and no weight."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp


class Linear(keras.Model):
    """A model whose `compute_metrics` keeps the mean target where a subclass says."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="zeros")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)

    def keep(self, y):
        raise NotImplementedError

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        self.keep(y)
        return super().compute_metrics(x, y, y_pred, sample_weight)


class ReadsItsMetric(Linear):
    def __init__(self):
        super().__init__()
        self.centre = keras.metrics.Mean(name="centre")

    def keep(self, y):
        self.centre.update_state(y)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.square(y_pred[:, 0] - (y[:, 0] - self.centre.result()))


class AssignsItsWeight(Linear):
    def __init__(self):
        super().__init__()
        self.centre = self.add_weight(shape=(), trainable=False, name="centre")

    def keep(self, y):
        self.centre.assign(keras.ops.mean(y))


class AssignsItsKernel(Linear):
    def keep(self, y):
        self.dense.kernel.assign_add(keras.ops.ones((4, 1)) * keras.ops.mean(y))


class AssignsInALoop(Linear):
    def keep(self, y):
        def body(i):
            self.dense.bias.assign(y[i])
            return i + 1

        tf.while_loop(lambda i: i < tf.shape(y)[0], body, [0])


class AssignsInAFunction(Linear):
    def keep(self, y):
        tf.function(lambda: self.dense.bias.assign(y[0]), autograph=False)()


class ReadsAHelper(Linear):
    def __init__(self):
        super().__init__()
        self.helper = (lambda variable: lambda: variable)(tf.Variable(0.0))

    def keep(self, y):
        self.helper().assign(tf.reduce_max(tf.cast(y, tf.float32)))

    def call(self, x):
        return self.dense(x) * (1.0 + self.helper())


class Ordinary(Linear):
    """Keeps it where nobody reads it, and asks the model again, as honest ones do."""

    def __init__(self):
        super().__init__()
        self.centre = keras.metrics.Mean(name="centre")

    def keep(self, y):
        self.centre.update_state(y)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, self(x), sample_weight)


class WritesToTheModel(keras.metrics.Metric):
    def __init__(self, weight, **arguments):
        super().__init__(**arguments)
        self.weight = lambda: weight

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.weight().assign(keras.ops.mean(y_true) + self.weight())

    def result(self):
        return 0.0


class KeepsWhatItReports(Linear):
    """Writes where its results are read, which is after the step."""

    def __init__(self):
        super().__init__()
        self.centre = self.add_weight(shape=(), trainable=False, name="centre")

    def keep(self, y):
        pass

    def get_metrics_result(self):
        results = super().get_metrics_result()
        self.centre.assign(results["loss"])
        return results


class WritesWhenAsked(keras.metrics.Mean):
    """Keeps the mean target, and writes it to a weight of the model when it is asked for it."""

    def __init__(self, weight, **arguments):
        super().__init__(**arguments)
        self.weight = lambda: weight

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_true)

    def result(self):
        self.weight().assign(super().result() * keras.ops.ones_like(self.weight()))
        return super().result()


class ResetsInPython(keras.metrics.MeanSquaredError):
    """Is reset by Python, which Keras calls between epochs."""

    def reset_state(self):
        if getattr(self, "count", None) is not None and self.count > 0:
            self.last = float(self.total.numpy())
        self.base = keras.ops.zeros(())
        super().reset_state()

    def result(self):
        return super().result() + getattr(self, "base", 0.0)


def fit(model, metrics=(), run_eagerly=False, **settings):
    x, y = np.ones((24, 4), "float32"), np.arange(24.0)[:, None]
    model.build((None, 4))
    tfdp.make_private(model, **settings)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(
        optimizer, "mse", metrics=list(metrics), jit_compile=False, run_eagerly=run_eagerly
    )
    before = [weight.numpy() for weight in model.weights]
    try:
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    finally:
        changed = any(np.any(w != b) for w, b in zip(model.weights, before, strict=True))
    return changed


@pytest.mark.parametrize("settings", [{}, {"microbatch_size": 2}], ids=["whole", "in parts"])
@pytest.mark.parametrize(
    "make",
    [
        ReadsItsMetric,
        AssignsItsWeight,
        AssignsItsKernel,
        AssignsInALoop,
        AssignsInAFunction,
        ReadsAHelper,
        KeepsWhatItReports,
    ],
)
def test_what_metrics_write_to_is_neither_read_nor_kept(make, settings):
    model = make()
    with pytest.raises(tfdp.UnsupportedModelError, match="metrics that write to variables of"):
        fit(model, **settings)
    assert tfdp.privacy_spent(model) == 0.0
    assert not np.any(model.dense.kernel) and not np.any(model.dense.bias)


def test_a_compiled_metric_that_writes_to_a_weight_is_refused():
    model = keras.Sequential([keras.layers.Dense(1, name="only")])
    model.build((None, 4))
    metric = WritesToTheModel(model.layers[0].bias, name="writes")
    with pytest.raises(tfdp.UnsupportedModelError, match=r"write to \['only/bias'\]|only/bias"):
        fit(model, [metric])


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_compiled_metric_that_writes_to_a_weight_when_it_is_asked_is_refused(run_eagerly):
    model = keras.Sequential([keras.layers.Dense(1, name="only")])
    model.build((None, 4))
    bias = model.layers[0].bias
    with pytest.raises(tfdp.UnsupportedModelError, match="only/bias"):
        fit(model, [WritesWhenAsked(bias, name="writes")], run_eagerly)
    assert abs(bias.numpy()[0]) < 5  # the targets' mean is 11.5


def test_metrics_that_python_resets_are_taken():
    assert fit(keras.Sequential([keras.layers.Dense(1)]), [ResetsInPython(name="python")])


class RemembersTheLastEpoch(keras.metrics.MeanSquaredError):
    """Keeps its result when Python resets it, which nobody traces."""

    def __init__(self, size):
        super().__init__(name="error")
        self.last = self.add_variable(size, "ones", name="last")

    def reset_state(self):
        if getattr(self, "last", None) is not None and float(self.count):
            self.last.assign(keras.ops.ones_like(self.last) * (self.total / self.count))
        super().reset_state()


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("size", [(), (2,)], ids=["a number", "an array"])
def test_what_a_metric_keeps_when_it_is_reset_is_read_by_no_step(size, run_eagerly):
    """A record moved 15 clips for 2 in the second epoch by the error of the first."""
    metric = RemembersTheLastEpoch(size)

    def loss(y_true, y_pred):
        return keras.losses.mean_squared_error(y_true, y_pred) * keras.ops.mean(metric.last)

    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(optimizer, loss, metrics=[metric], jit_compile=False, run_eagerly=run_eagerly)
    with pytest.raises(tfdp.UnsupportedModelError, match="error/last"):
        model.fit(np.ones((24, 4)), np.arange(24.0)[:, None], batch_size=8, epochs=2, verbose=0)
    assert tfdp.privacy_spent(model) == 0.0


class Shows(keras.metrics.Metric):
    """Shows a variable of the model, which it holds as its own, as Keras tracks attributes."""

    def __init__(self, shown):
        super().__init__(name="shown")
        self.shown = shown

    def update_state(self, y_true, y_pred, sample_weight=None):
        pass

    def result(self):
        return keras.ops.mean(self.shown)

    def reset_state(self):
        pass


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_metric_may_show_a_weight(run_eagerly):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    assert fit(model, [Shows(model.layers[0].kernel)], run_eagerly)


class ShowsFewer(keras.Model):
    """Its `metrics` leave out one that it has."""

    def __init__(self):
        super().__init__()
        self.dense, self.hidden = keras.layers.Dense(1), RemembersTheLastEpoch(())

    @property
    def metrics(self):
        return [metric for metric in super().metrics if metric is not self.hidden]

    def call(self, x):
        return self.dense(x)


def test_a_step_reads_no_metric_that_the_metrics_of_a_class_leave_out():
    """A record moved 13 clips for 2 by what a test_step had updated."""
    model = tfdp.make_private(ShowsFewer())

    def loss(y_true, y_pred):
        return keras.losses.mean_squared_error(y_true, y_pred) * model.hidden.last

    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(optimizer, loss, jit_compile=False)
    with pytest.raises(tfdp.UnsupportedModelError, match="error/last"):
        model.fit(np.ones((24, 4)), np.arange(24.0)[:, None], batch_size=8, verbose=0)


class Raises(keras.metrics.MeanSquaredError):
    """Assigns its result to a variable of others when Python resets it."""

    def __init__(self, variable, is_held):
        super().__init__(name="error")
        self.where = [variable] if is_held else lambda: [variable]  # Keras tracks lists

    def reset_state(self):
        result = float(self.total)
        for variable in (self.total, self.count):
            variable.assign(0.0)
        for variable in self.where() if callable(self.where) else self.where:
            if result:
                variable.assign(keras.ops.ones_like(variable) * result)


def linear():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(
    ("what", "is_held"), [("rate", False), ("rate", True), ("number of the model", True)]
)
def test_a_metric_changes_no_rate_when_it_is_reset(what, is_held, run_eagerly):
    """A record moved the rate of the second epoch from 0.012 to 41.5, and no statement said so."""
    model = tfdp.make_private(linear())
    model.scale = keras.Variable(1.0, trainable=False, name="scale")
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    number = optimizer.inner_optimizer._learning_rate if what == "rate" else model.scale
    before = float(number)
    model.compile(
        optimizer,
        "mse",
        metrics=[Raises(number, is_held)],
        jit_compile=False,
        run_eagerly=run_eagerly,
    )
    with pytest.raises(tfdp.UnsupportedModelError, match="reset_metrics changes"):
        model.fit(np.ones((24, 4)), np.arange(24.0)[:, None], batch_size=8, epochs=3, verbose=0)
    assert float(number) == before
    assert optimizer.iterations == 3  # the epoch before it


class Inner(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.hidden = keras.layers.Dense(1), RemembersTheLastEpoch(())

    def call(self, x):
        return self.dense(x)


def test_a_step_reads_no_metric_of_an_inner_model():
    """A record moved 15.8 clips by what a test_step had updated."""
    inner = Inner()
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), inner]))

    def loss(y_true, y_pred):
        return keras.losses.mean_squared_error(y_true, y_pred) * inner.hidden.last

    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3), loss
    )
    with pytest.raises(tfdp.UnsupportedModelError, match="error/last"):
        model.fit(np.ones((24, 4)), np.arange(24.0)[:, None], batch_size=8, verbose=0)


class BehavesAsAMetric:
    name = "largest"

    def __init__(self):
        self.value = keras.Variable(0.0)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))

    def result(self):
        return self.value

    def reset_state(self):
        self.value.assign(0.0)


class HasSuch(Linear):
    def __init__(self):
        super().__init__()
        object.__setattr__(self, "like_one", BehavesAsAMetric())

    @property
    def metrics(self):
        return [*super().metrics, self.like_one]

    def keep(self, y):
        self.like_one.update_state(y, y)


def test_what_behaves_as_a_metric_is_taken():
    history = fit(HasSuch())
    assert history


def test_metrics_are_reset_in_graphs_and_of_models_without_an_optimizer():
    model = tfdp.make_private(linear())
    model.reset_metrics()
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3), "mse"
    )
    tf.function(model.reset_metrics)()


def test_what_metrics_write_to_is_not_read_by_the_data():
    """A record moved 24 clips for 4 in two steps by a metric that a map of the data read."""
    errors = keras.metrics.MeanSquaredError()
    x, y = np.ones((24, 4), "float32"), np.arange(24.0)[:, None]
    records = tfdp.Records((x, y), map=lambda x, y: (x + errors.total, y))
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, "mse", metrics=[errors])
    with pytest.raises(tfdp.UnsupportedModelError, match="metrics that write to variables of"):
        model.fit(records, batch_size=8, verbose=0)


@pytest.mark.parametrize("arguments", [{}, {"microbatch_size": 2}], ids=["whole", "in parts"])
def test_a_regularizer_may_not_read_a_metric(arguments):
    class Towards(keras.regularizers.Regularizer):
        def __init__(self, metric):
            self.metric = metric

        def __call__(self, weights):
            return keras.ops.sum(keras.ops.square(weights - self.metric.result()))

    class Plain(Ordinary):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_regularizer=Towards(self.centre))

    with pytest.raises(tfdp.UnsupportedModelError, match="metrics that write to variables of"):
        fit(Plain(), **arguments)


def test_metrics_of_their_own_train():
    model = Ordinary()
    assert fit(model, ["mae", keras.metrics.R2Score()])
    assert float(model.centre.result()) > 0


class ByMetric(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that is the total of a metric, once it is switched on."""

    def __init__(self, metric):
        self.metric, self.on = metric, False

    def __call__(self, step):
        return 0.01 * self.metric.total if self.on else 1.0

    def get_config(self):
        return {}


def test_a_rate_that_begins_to_read_a_metric_in_eager_mode_is_refused_before_the_update():
    """It was looked at in the first update alone: one record moved the weights by 170,000."""
    metric = keras.metrics.MeanSquaredError(name="own")
    schedule = ByMetric(metric)
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    inner = keras.optimizers.SGD(schedule)
    optimizer = tfdp.DPSGDOptimizer(inner, l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, "mse", metrics=[metric], run_eagerly=True)
    weights = []

    def switch(*_):
        schedule.on = True
        weights.extend(model.get_weights())

    switched = keras.callbacks.LambdaCallback(on_epoch_end=switch)
    x, y = np.ones((24, 4), "float32"), np.arange(24.0)[:, None]
    with pytest.raises(tfdp.UnsupportedModelError, match="metrics that write to variables of"):
        model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[switched])
    for found, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(found, expected)
