"""What reaches a model by other ways than private steps: releases are counted, `adapt` is named."""

import warnings

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import LedgerEntry, PrivacyLedger, ReleaseEntry, Sampling
from tf_lowrank_dp.training.other_releases import adapted_layers

DELTA = 1e-3
X = np.random.default_rng(0).normal(size=(24, 5)).astype("float32")


def normalised(layer):
    return keras.Sequential([keras.Input((5,)), layer, keras.layers.Dense(3)])


def test_a_private_mean_counts_with_the_training_in_budget_and_file(private, data, tmp_path):
    mean, event, description = tfdp.private_mean(X, l2_norm_clip=3.0, noise_multiplier=6.0)
    model = normalised(keras.layers.Normalization(mean=mean, variance=np.ones(5)))
    with pytest.warns(UserWarning, match="which is not private.*in no file"):
        tfdp.record_release(model, event, description)
    private(model, noise_multiplier=1.5, accountant="rdp", delta=DELTA)
    model.fit(*data(), batch_size=6, verbose=0)
    run = LedgerEntry(Sampling.poisson(24, 6), 1.5, steps=4)
    union = PrivacyLedger([run, ReleaseEntry(event, "mean")]).epsilon(DELTA, accountant="rdp")
    assert tfdp.privacy_spent(model) == pytest.approx(union)
    text = tfdp.privacy_statement(model)
    assert "private mean of 24 rows" in text and "unknown" not in text and "adapt" not in text
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert tfdp.privacy_spent(loaded) == pytest.approx(union)
    private(loaded, epsilon=union * 0.99, accountant="rdp", delta=DELTA)
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="already spent"):
        loaded.fit(*data(), batch_size=6, verbose=0)


def adapted_normalization():
    layer = keras.layers.Normalization()
    layer.adapt(X)
    return layer


def adapted_discretization():
    layer = keras.layers.Discretization(num_bins=4)
    layer.adapt(X)
    return layer


def nested_in_a_model():
    return keras.Sequential([keras.Input((5,)), adapted_normalization()])


@pytest.mark.parametrize(
    "build", [adapted_normalization, adapted_discretization, nested_in_a_model]
)
def test_adapted_layers_are_named_by_a_warning_and_the_statement_loaded_ones_too(build, tmp_path):
    model = normalised(build())
    with pytest.warns(UserWarning, match="may come from adapt"):
        tfdp.make_private(model)
    assert "holds exact statistics" in " ".join(tfdp.privacy_statement(model, DELTA).split())
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="may come from adapt"):
        tfdp.make_private(keras.models.load_model(tmp_path / "model.keras"))


def in_a_lambda(layer):
    return keras.layers.Lambda(lambda x: layer(x), output_shape=(5,))


class Own(keras.layers.Layer):
    """Uses a layer of the module in a method of its own."""

    def __init__(self, layer):
        super().__init__()
        self.function = np.linspace(0.0, 1.0, 5)  # a name that a Lambda layer has too
        self.held = [lambda x: layer(x)]

    def call(self, x):
        return self._scaled(x)

    def _scaled(self, x):
        return self.held[0](x) + MODULE(x)


MODULE = adapted_normalization()


class Many(list):
    looked_into = False

    def __iter__(self):
        self.looked_into = True
        return super().__iter__()


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


def test_whatever_functions_use_looking_for_adapted_layers_neither_fails_nor_takes_long():
    assert MODULE.name in adapted_layers(normalised(Own(keras.layers.Identity())))
    deep, many, model = nested(5_000), Many(range(1_000)), normalised(keras.layers.Identity())
    assert adapted_layers(model, lambda x: (x, many), lambda x: (x, deep), nested(3), len) == []
    assert not many.looked_into  # a million objects took 11 s


def fit_for_a_warning(private, build, **arguments):
    """Trains, and gives what was warned of and what the statement says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = private(build(), noise_multiplier=1.5, loss="mse", delta=DELTA)
        model.fit(**arguments, batch_size=6, verbose=0)
    warned = any("may come from adapt" in str(each.message) for each in caught)
    return warned, tfdp.privacy_statement(model)


def test_adapted_layers_are_seen_in_functions_too(private):
    """One outlier in what they were adapted to had moved the others by 3 clips of 16 rows."""
    layer, y = adapted_normalization(), np.zeros((24, 3), "float32")
    plain = keras.layers.Identity

    def scaled(x, y):
        return layer(x[None])[0], y

    cases = [
        (lambda: normalised(plain()), {"x": tfdp.Records((X, y), map=scaled)}),
        (lambda: normalised(plain()), {"x": X, "y": y, "augment": lambda x: layer(x)}),
        (lambda: normalised(in_a_lambda(layer)), {"x": X, "y": y}),
    ]
    for build, arguments in cases:
        warned, text = fit_for_a_warning(private, build, **arguments)
        assert warned and f"the state of {layer.name}" in text
    warned, text = fit_for_a_warning(private, lambda: normalised(plain()), x=X, y=y)
    assert not warned and "adapt" not in text


class Standardised(keras.losses.Loss):
    """Of targets that a layer scales."""

    def __init__(self, layer):
        super().__init__(name="standardised")
        self.layer = layer

    def call(self, y, y_pred):
        return keras.ops.mean(keras.ops.square(self.layer(y) - y_pred), axis=-1)


@pytest.mark.parametrize("kind", ["loss", "losses", "map of a sampler"])
def test_adapted_layers_are_seen_in_losses_and_samplers(kind, private):
    """A target had moved the others by 4.1 clips for 2, without a word."""
    layer = adapted_normalization()
    loss = Standardised(layer) if kind == "loss" else [Standardised(layer)]
    records = tfdp.Records((X, X), map=lambda x, y: (layer(x[None])[0], y))
    if kind == "map of a sampler":
        loss, x = "mse", tfdp.PoissonSampler(records, batch_size=8, steps=2)
    else:
        x = tfdp.Records((X, X))
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5)])
    private(model, noise_multiplier=1.5, loss=loss, delta=DELTA)
    arguments = {} if kind == "map of a sampler" else {"batch_size": 8}
    with pytest.warns(UserWarning, match="may come from adapt"):
        model.fit(x, verbose=0, **arguments)
    assert f"the state of {layer.name}" in " ".join(tfdp.privacy_statement(model).split())


@pytest.mark.parametrize("used_by", ["map", "forward"])
def test_adapted_layers_are_seen_in_custom_loops(used_by, private):
    """A record had moved the others by 6.9 clips for 2, without a word."""
    layer = adapted_normalization()
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5)])
    private(model, noise_multiplier=1.5, delta=DELTA)

    def scaled(x):
        return layer(x[None])[0]

    records = tfdp.Records(X, map=scaled if used_by == "map" else None)
    sampler = tfdp.PoissonSampler(records, batch_size=8, steps=2)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=2)

    def forward(batch):
        x = layer(batch["x"]) if used_by == "forward" else batch["x"]
        return keras.ops.mean(keras.ops.square(model(x)), axis=-1), ()

    with pytest.warns(UserWarning, match="may come from adapt"):
        trainer.gradients(forward, next(iter(sampler)))
    assert f"the state of {layer.name}" in " ".join(tfdp.privacy_statement(model).split())


@pytest.mark.parametrize("used_by", ["augment", "records", "forward"])
def test_what_was_trained_by_adapted_layers_says_so_wherever_it_goes(used_by, private, tmp_path):
    """The file, a second conversion and models with its layers had lost it."""
    layer = adapted_normalization()
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5)])
    private(model, noise_multiplier=1.5, loss="mse", delta=DELTA)
    with pytest.warns(UserWarning, match="may come from adapt"):
        if used_by == "augment":
            model.fit(X, X, batch_size=8, augment=lambda x: layer(x), verbose=0)
        elif used_by == "records":
            records = tfdp.Records((X, X), map=lambda x, y: (layer(x[None])[0], y))
            model.fit(records, batch_size=8, verbose=0)
        else:
            sampler = tfdp.PoissonSampler(X, batch_size=8, steps=2)
            trainer = tfdp.PrivateTrainer(model, sampler)
            for batch in sampler:
                trainer.apply(
                    trainer.gradients(
                        lambda batch: (keras.ops.mean(model(layer(batch["x"])) ** 2, -1), ()), batch
                    )
                )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    head = keras.Sequential([keras.Input((5,)), model.layers[-1], keras.layers.Dense(1)])
    tfdp.make_private(model, microbatch_size=4)
    spent = tfdp.privacy_spent(model, DELTA)
    for each in (model, loaded, head):
        said = " ".join(tfdp.privacy_statement(each, DELTA).split())
        assert said.count(f"the state of {layer.name} was not given") == 1
        assert f"{layer.name}:" not in said and "0 times" not in said
        assert tfdp.privacy_spent(each, DELTA) == spent
        report = tfdp.privacy_report(each, DELTA)
        assert any(layer.name in warning for warning in report.warnings)
        assert len(report.releases) == 1


def test_what_was_computed_from_a_model_with_an_adapted_layer_says_so(private, tmp_path):
    """One in front of a private model after its training had been named by that model alone."""
    core = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    private(core, noise_multiplier=1.5, loss="mse", delta=DELTA)
    core.fit(X, np.zeros((24, 3), "float32"), batch_size=8, verbose=0)
    layer = adapted_normalization()
    whole = keras.Sequential([keras.Input((5,)), layer, core])
    student = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    student.compile("sgd", "mse")
    public = np.ones((8, 5), "float32")
    with tfdp.post_processing(student, whole):
        student.fit(public, whole.predict(public, verbose=0), verbose=0)
    for each in (whole, student):
        said = " ".join(tfdp.privacy_statement(each, DELTA).split())
        assert said.count(f"the state of {layer.name} was not given") == 1
    assert tfdp.privacy_spent(student, DELTA) == tfdp.privacy_spent(core, DELTA)


def text_model(**vocabulary):
    layer = keras.layers.TextVectorization(output_sequence_length=4, **vocabulary)
    if not vocabulary:
        layer.adapt(["a b", "b c"])
    layers = [layer, keras.layers.Embedding(9, 2), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((1,), dtype="string"), *layers])
    return model


def test_an_adapted_vocabulary_is_named_and_one_that_was_given_is_not():
    with pytest.warns(UserWarning, match="may come from adapt"):
        tfdp.make_private(text_model())
    words = ["a", "b", "c", "d"]
    counts, *_ = tfdp.private_histogram(
        [["a", "b"], ["b", "c"]] * 300, words, tokens_per_record=2, noise_multiplier=2.0
    )
    vocabulary = [word for word, count in zip(words, counts, strict=True) if count > 100]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = tfdp.make_private(text_model(vocabulary=vocabulary))
    assert vocabulary == ["a", "b", "c"] and "adapt" not in tfdp.privacy_statement(model, DELTA)


def test_a_file_that_would_hold_no_release_is_warned_of(tmp_path):
    _, event, description = tfdp.private_mean(X, l2_norm_clip=3.0, noise_multiplier=6.0)
    model = tfdp.make_private(normalised(keras.layers.Identity()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        tfdp.record_release(model, event, description)
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="is not saved with the model"):
        model.save(tmp_path / "model.keras")


def test_a_release_by_user_goes_with_training_by_user(private):
    means = np.stack([X[index::6].mean(0) for index in range(6)])
    _, event, description = tfdp.private_mean(means, l2_norm_clip=3.0, noise_multiplier=6.0)
    users = {"unit_ids": np.arange(24) % 6, "rows_per_unit": 2, "batch_size": 2, "verbose": 0}
    rows = X, np.zeros((24, 3), "float32")
    model = private(normalised(keras.layers.Identity()), noise_multiplier=1.5, loss="mse")
    tfdp.record_release(model, event, description, unit="user")
    model.fit(*rows, **users)
    entries = [LedgerEntry(Sampling.poisson(6, 2, unit="user"), 1.5, steps=3)]
    entries.append(ReleaseEntry(event, "mean", unit="user"))
    assert tfdp.privacy_spent(model, DELTA) == pytest.approx(PrivacyLedger(entries).epsilon(DELTA))
    text = PrivacyLedger(entries).to_json()
    assert PrivacyLedger.from_json(text) == PrivacyLedger(entries)
    by_example = private(normalised(keras.layers.Identity()), noise_multiplier=1.5, loss="mse")
    tfdp.record_release(by_example, event, description)
    with pytest.raises(ValueError, match="one unit of privacy"):
        by_example.fit(*rows, **users)
