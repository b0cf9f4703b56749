"""The random numbers of a model in a private step: secret, and never the same twice."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tf_lowrank_dp as tfdp
from tf_lowrank_dp._keras.layers import global_seed_state
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.tracing.random_ops import ConstantSource, FixedSource, random_numbers_from

ROWS, WIDTH = 6, 5
L = keras.layers


class Draws(L.Layer):
    """Adds what it draws in every way that a layer may, and keeps it in its outputs."""

    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)
        self.twin = keras.random.SeedGenerator(1)

    def call(self, x):
        shape = tf.shape(x)
        drawn = [
            keras.random.uniform(shape, seed=self.generator),
            keras.random.uniform(shape, seed=self.generator),
            keras.random.uniform(shape, seed=self.twin),
            keras.random.uniform(shape, seed=7),
            keras.random.uniform(shape, seed=7),
            tf.random.uniform(shape, seed=3),
            tf.random.stateless_uniform(shape, seed=(1, 2)),
            keras.random.uniform(shape),
        ]
        return x + 0.0 * tf.add_n(drawn), tf.stack(drawn, 1)


def model_with(layer):
    """A Dense layer before what draws; float32 `(b, WIDTH)` to losses and what was drawn."""
    x = keras.Input((WIDTH,))
    return keras.Model(x, layer(L.Dense(WIDTH)(x)))


def drawn_by(model, steps, method="auto", seed=None):
    """What a model draws in some private steps, `(steps, rows, ...)`."""
    tfdp.make_private(model)
    model.compile(
        tfdp.DPSGDOptimizer(
            "sgd", l2_norm_clip=1.0, noise_multiplier=1.0, gradient_method=method, seed=seed
        )
    )
    trainer = tfdp.PrivateTrainer(model, Sampling.poisson(ROWS, ROWS), steps=steps)

    def forward(batch):
        y, drawn = model(batch["x"], training=True)
        return tf.reduce_sum(y, 1), drawn

    engine = trainer._run.engine

    @tf.function(autograph=False)
    def step(x):
        found = []
        engine.private_gradients(
            forward, {"x": x}, tf.ones([ROWS]), lambda *part: found.append(part[-1])
        )
        return found[0]

    return np.stack([step(tf.ones([ROWS, WIDTH])).numpy() for _ in range(steps)])


SHAPE = (8, WIDTH)


@pytest.mark.parametrize("method", ["auto", "reweight", "vectorized", "loop"])
def test_no_number_is_drawn_twice_whatever_the_model_asks_for(method):
    keras.utils.set_random_seed(0)
    drawn = drawn_by(model_with(Draws()), 3, method)
    assert drawn.shape == (3, ROWS, *SHAPE)
    # Equal numbers among 720 of 2^23 values: a chance of 3 % for one pair, 1e-4 for two.
    assert len(np.unique(drawn)) >= drawn.size - 2
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-4
    correlations = np.corrcoef(drawn.reshape(3 * ROWS * 8, WIDTH).T)
    assert np.abs(correlations - np.eye(WIDTH)).max() < 0.4


def test_masks_do_not_follow_from_any_seed_that_can_be_read():
    def masks():
        keras.utils.set_random_seed(0)
        return drawn_by(model_with(Draws()), 1)

    first, second = masks(), masks()
    assert not np.any(first == second)


def test_a_seeded_run_draws_the_same_masks():
    first, second = (drawn_by(model_with(Draws()), 2, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("method", ["auto", "vectorized", "loop"])
@pytest.mark.parametrize("microbatch_size", [None, 1, 4])
def test_no_state_that_is_saved_tells_how_many_rows_were_drawn(method, microbatch_size):
    model = keras.Sequential(
        [keras.Input((WIDTH,)), L.Dense(3), L.Dropout(0.5), L.GaussianNoise(0.1), L.Dense(1)]
    )
    generators = [g for layer in model.layers for g in getattr(layer, "_seed_generators", [])]
    before = [g.state.numpy() for g in generators]
    tfdp.make_private(model, microbatch_size=microbatch_size)
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, gradient_method=method),
        "mse",
        jit_compile=False,
    )
    model.fit(np.ones((12, WIDTH)), np.ones((12, 1)), batch_size=4, verbose=0)
    assert len(before) == 2
    np.testing.assert_array_equal([g.state.numpy() for g in generators], before)


class DrawsInItsMetrics(keras.Model):
    """Keeps the loss of a noisy pass, by the noise of its forward pass or by other noise."""

    def __init__(self, generator):
        super().__init__()
        self.noise, self.dense, self.noisy = L.GaussianNoise(1.0), L.Dense(1), keras.metrics.Mean()
        of_layer = generator == "of a layer"
        self.own = keras.random.SeedGenerator(1)
        self.generator = self.noise.seed_generator if of_layer else self.own
        if generator == "none":
            self.generator = None

    def call(self, x):
        x = x + keras.random.normal((1, WIDTH)) if self.generator is None else x
        return self.dense(self.noise(x, training=True))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        noise = keras.random.normal((1, WIDTH), seed=self.generator)
        self.noisy.update_state(keras.ops.square(self.dense(x + noise) - y))
        return super().compute_metrics(x, y, y_pred, sample_weight)


@pytest.mark.parametrize("generator", ["of a layer", "of the model", "none"])
@pytest.mark.parametrize("microbatch_size", [None, 1])
def test_no_state_that_is_saved_tells_how_often_metrics_drew(microbatch_size, generator):
    """An exported model told the number of rows of all draws, 171, or of parts."""
    model = DrawsInItsMetrics(generator)
    model(np.ones((1, WIDTH), "float32"))
    tfdp.make_private(model, microbatch_size=microbatch_size)
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse", jit_compile=False
    )
    states = [model.own.state, model.noise.seed_generator.state, global_seed_state()]
    before = [state.numpy() for state in states]
    rows = np.ones((12, WIDTH)), np.ones((12, 1))
    history = model.fit(*rows, batch_size=4, epochs=2, verbose=0).history
    np.testing.assert_array_equal([state.numpy() for state in states], before)
    assert len(history["loss"]) == 2


def test_xla_draws_anew_at_each_step_and_in_each_part():
    model = keras.Sequential([keras.Input((WIDTH,)), L.Dense(4), L.GaussianNoise(1.0)])
    tfdp.make_private(model, microbatch_size=2)
    # The learning rate is zero, so that only the drawn numbers can change the loss.
    model.compile(
        tfdp.DPSGDOptimizer(keras.optimizers.SGD(0.0), l2_norm_clip=1.0, noise_multiplier=1.0),
        "mse",
        jit_compile=True,
    )
    losses = model.fit(
        np.ones((8, WIDTH)), np.zeros((8, 4)), batch_size=8, epochs=4, verbose=0
    ).history["loss"]
    assert len(set(losses)) == 4


class Inner(L.Layer):
    """Draws in a function of its own."""

    def __init__(self):
        super().__init__()
        self.function = tf.function(lambda x: x + tf.random.normal(tf.shape(x)))

    def call(self, x):
        return self.function(x)


class WithGenerator(L.Layer):
    def __init__(self):
        super().__init__()
        self.generator = tf.random.Generator.from_seed(1)

    def call(self, x):
        return x + self.generator.normal(tf.shape(x))


@pytest.mark.parametrize(
    "layer, remedy",
    [
        (Inner, "Remove the @tf.function"),
        (WithGenerator, "keras.random.SeedGenerator"),
    ],
)
def test_draws_that_cannot_be_replaced_are_refused_before_anything_is_spent(layer, remedy):
    model = keras.Sequential([keras.Input((WIDTH,)), L.Dense(3), layer()])
    if layer is Inner:
        model(np.ones((2, WIDTH)))  # traced before, outside of any private step
    tfdp.make_private(model)
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse")
    with pytest.raises(tfdp.UnsupportedModelError, match=remedy):
        model.fit(np.ones((8, WIDTH)), np.ones((8, 3)), batch_size=4, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


@pytest.mark.parametrize(
    "draw, law",
    [
        (lambda n: keras.random.normal((n,), 1.0, 2.0), stats.norm(1.0, 2.0)),
        (lambda n: keras.random.uniform((n,), -1.0, 3.0), stats.uniform(-1.0, 4.0)),
        (lambda n: keras.random.truncated_normal((n,)), stats.truncnorm(-2, 2)),
        (lambda n: keras.random.gamma((n,), 2.0), stats.gamma(2.0)),
        (lambda n: keras.random.beta((n,), 2.0, 3.0), stats.beta(2.0, 3.0)),
        (lambda n: tf.random.normal((n,)), stats.norm()),
        (lambda n: tf.random.truncated_normal((n,)), stats.truncnorm(-2, 2)),
        (lambda n: tf.random.gamma((n,), 2.0), stats.gamma(2.0)),
        (lambda n: tf.random.gamma((), tf.fill((n,), 2.0)), stats.gamma(2.0)),
    ],
    ids=[
        *("normal", "uniform", "truncated", "gamma", "beta", "tf normal", "tf truncated"),
        *("tf gamma", "tf gamma for each"),
    ],
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_law_of_a_draw_stays_as_it_was(draw, law, jit_compile):
    if jit_compile and law.dist.name in ("gamma", "beta"):
        pytest.skip("XLA has no gamma, with this package or without it.")

    @tf.function(jit_compile=jit_compile)
    def drawn():
        with random_numbers_from(FixedSource()):
            return draw(4096)

    assert stats.kstest(drawn().numpy(), law.cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    "draw",
    [
        lambda: keras.random.randint((4096,), 2, 5),
        lambda: tf.random.uniform((4096,), 2, 5, tf.int32),
        lambda: 2 + keras.random.categorical(tf.zeros((4096, 3)), 1)[:, 0],
        lambda: 2 + tf.random.categorical(tf.zeros((4096, 3)), 1)[:, 0],
    ],
)
def test_integers_keep_their_law(draw):
    @tf.function
    def drawn():
        with random_numbers_from(FixedSource()):
            return draw()

    counts = np.bincount(drawn().numpy(), minlength=5)
    assert counts[:2].sum() == 0 and stats.chisquare(counts[2:]).pvalue > 1e-4


def test_counts_keep_their_law_for_each_rate():
    @tf.function
    def drawn():
        with random_numbers_from(FixedSource()):
            return tf.random.poisson((4096,), [1.0, 4.0])

    for counts, rate in zip(drawn().numpy().T, (1.0, 4.0), strict=True):
        found = np.bincount(counts.astype(int), minlength=12)[:12]
        expected = stats.poisson(rate).pmf(np.arange(12))
        enough = expected * 4096 > 5
        rest = [4096 - found[enough].sum()], [4096 * (1.0 - expected[enough].sum())]
        observed = np.append(found[enough], rest[0])
        assert stats.chisquare(observed, np.append(4096 * expected[enough], rest[1])).pvalue > 1e-4


class Drawing(L.Layer):
    """Draws by a function of a seed generator and of what comes in."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.seed = draw, keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.ops.cast(self.draw(self.seed, x), "float32")


def rows_shuffled(seed, x):
    return tf.transpose(keras.random.shuffle(tf.transpose(x), seed=seed))


KERAS = keras.random
DRAWN = {
    "gamma": lambda seed, x: KERAS.gamma(keras.ops.shape(x), 2.0, seed=seed),
    "gamma of data": lambda seed, x: KERAS.gamma(keras.ops.shape(x), 1.0 + x**2, seed=seed),
    "beta": lambda seed, x: KERAS.beta(keras.ops.shape(x), 2.0, 3.0, seed=seed),
    "binomial": lambda seed, x: KERAS.binomial(keras.ops.shape(x), 3.0, 0.5, seed=seed),
    "categorical": lambda seed, x: KERAS.categorical(x, 1, seed=seed),
    "integers": lambda seed, x: KERAS.randint(keras.ops.shape(x), 0, 3, seed=seed),
    "features exchanged": rows_shuffled,
    "tf gamma": lambda seed, x: tf.random.gamma([], 1.0 + x**2),
    "tf poisson": lambda seed, x: tf.random.poisson(tf.shape(x), 2.0),
    "tf categorical": lambda seed, x: tf.random.categorical(x, 1),
}


@pytest.mark.filterwarnings("ignore:.*one example at a time")
@pytest.mark.parametrize("name", DRAWN)
def test_models_that_draw_in_any_way_train(name):
    """Some were refused for wrong gradients: each example alone had drawn other numbers."""
    keras.utils.set_random_seed(0)  # Whether a weight has a gradient depends on where it starts.
    layers = [L.Dense(3, "tanh"), Drawing(DRAWN[name]), L.Dense(1)]
    model = tfdp.make_private(keras.Sequential([keras.Input((WIDTH,)), *layers]))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1e-3), "mse")
    before = model.get_weights()
    model.fit(np.ones((8, WIDTH)), np.ones((8, 1)), batch_size=4, epochs=8, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        assert np.abs(old - new).max() > 1e-4


@pytest.mark.filterwarnings("ignore:.*one example at a time")
def test_what_has_no_gradient_may_stand_in_front_of_the_weights():
    counts = Drawing(lambda seed, x: tf.random.poisson([], tf.abs(x)))
    model = keras.Sequential([keras.Input((WIDTH,)), counts, L.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, WIDTH)), np.ones((8, 1)), verbose=0)
    tfdp.make_private(model)
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse")
    model.fit(np.ones((8, WIDTH)), np.ones((8, 1)), batch_size=4, verbose=0)
    assert model.optimizer.ledger.num_steps == 2


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("op", ["poisson", "poisson by a state", "binomial"])
def test_a_record_without_a_law_hangs_nobody(op, dtype):
    """TensorFlow's own draws never end with these."""
    of_law = tf.constant([4.0, np.nan, 1e20, 4.0])

    @tf.function
    def drawn():
        with random_numbers_from(FixedSource()):
            if op == "poisson":
                return tf.random.stateless_poisson([4], [1, 2], of_law, dtype)
            if op == "poisson by a state":
                return tf.random.poisson([], of_law, dtype)
            return tf.random.stateless_binomial([4], [1, 2], of_law, 0.5, dtype)

    numbers = drawn().numpy()
    assert 0 <= numbers[0] < 30 and 0 <= numbers[3] < 30
    if dtype == "float32":
        assert np.isnan(numbers[1]) and numbers[2] > 1e19
    else:
        assert numbers[1] == numbers[2] == 0


@pytest.mark.parametrize("name", DRAWN)
def test_a_row_alone_draws_what_it_draws_beside_others_from_a_constant_source(name):
    rows = np.random.default_rng(0).normal(size=(5, 1)).astype("float32")

    @tf.function(reduce_retracing=True)
    def drawn(rows):
        with random_numbers_from(ConstantSource()):
            return tf.cast(DRAWN[name](None, rows), tf.float32)

    alone = [drawn(rows[k : k + 1])[0] for k in range(len(rows))]
    np.testing.assert_allclose(drawn(rows), alone, rtol=1e-6)


def test_random_numbers_cannot_be_replaced_in_eager_mode():
    with pytest.raises(RuntimeError, match="tf.function"):
        with random_numbers_from(FixedSource()):
            pass
