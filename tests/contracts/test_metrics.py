"""Every metric of Keras, by class, function and name, gives in private training what Keras gives.

The rows drawn are those of `evaluate`, with padding behind them, and the learning rate is 0: the
oracle is Keras' own `evaluate` with the same metrics.
"""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

M = keras.metrics
ROWS, CLASSES = 23, 3
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 5)).astype("float32")
LABELS = GENERATOR.integers(0, CLASSES, ROWS)
BINARY = GENERATOR.integers(0, 2, (ROWS, 1)).astype("float32")
SIGNS = 2.0 * BINARY - 1.0
ONE_HOT = np.eye(CLASSES, dtype="float32")[LABELS]
NUMBERS = GENERATOR.uniform(0.1, 1.0, (ROWS, CLASSES)).astype("float32")

OF_SCORES = [
    M.AUC(), M.BinaryAccuracy(), M.BinaryCrossentropy(), M.BinaryIoU(), M.F1Score(threshold=0.5),
    M.FBetaScore(threshold=0.5), M.FalseNegatives(), M.FalsePositives(), M.TrueNegatives(),
    M.TruePositives(), M.Precision(), M.Recall(), M.PrecisionAtRecall(0.5),
    M.RecallAtPrecision(0.5),
    M.SensitivityAtSpecificity(0.5), M.SpecificityAtSensitivity(0.5), M.IoU(2, [0]), M.MeanIoU(2),
    M.Accuracy(), "accuracy", "acc", "AUC", "binary_accuracy", M.binary_accuracy,
    "binary_crossentropy", M.binary_crossentropy, M.binary_focal_crossentropy, "precision",
    "recall",
]  # fmt: skip
# Keras' cross-entropies and F scores, as metrics, want labels with an axis.
WITH_AXIS = ("crossentropy", "f1_score", "fbeta_score")
OF_HITS = [m for m in OF_SCORES if not any(name in str(m) for name in WITH_AXIS)]
OF_SIGNS = [M.Hinge(), M.SquaredHinge(), "hinge", "squared_hinge", M.hinge, M.squared_hinge]
OF_CLASSES = [
    M.CategoricalAccuracy(), M.CategoricalCrossentropy(), M.CategoricalHinge(),
    M.OneHotIoU(3, [0, 1]),
    M.OneHotMeanIoU(3), M.TopKCategoricalAccuracy(2), M.AUC(multi_label=True), "accuracy",
    M.F1Score(average="macro"), "categorical_accuracy", M.categorical_accuracy,
    M.categorical_crossentropy, M.categorical_hinge, M.categorical_focal_crossentropy,
    M.top_k_categorical_accuracy,
]  # fmt: skip
OF_LABELS = [
    M.SparseCategoricalAccuracy(), M.SparseCategoricalCrossentropy(),
    M.SparseTopKCategoricalAccuracy(2), "accuracy", "acc", "sparse_categorical_accuracy",
    M.sparse_categorical_accuracy, M.sparse_categorical_crossentropy,
    M.sparse_top_k_categorical_accuracy, M.MeanIoU(3, sparse_y_pred=False),
]  # fmt: skip
OF_NUMBERS = [
    M.ConcordanceCorrelation(), M.CosineSimilarity(), M.KLDivergence(), M.LogCoshError(),
    M.MeanAbsoluteError(), M.MeanAbsolutePercentageError(), M.MeanSquaredError(),
    M.MeanSquaredLogarithmicError(), M.PearsonCorrelation(), M.Poisson(), M.R2Score(),
    M.RootMeanSquaredError(), M.MeanMetricWrapper(keras.losses.huber), "mse", "mae", "MAPE", "msle",
    "R2Score", "kl_divergence", "poisson", "cosine_similarity",
    "root_mean_squared_error", M.concordance_correlation, M.huber, M.kl_divergence, M.log_cosh,
    M.mean_absolute_error, M.mean_absolute_percentage_error, M.mean_squared_error,
    M.mean_squared_logarithmic_error, M.pearson_correlation, M.poisson,
]  # fmt: skip
TASKS = {
    "scores": (OF_SCORES, BINARY, 1, "sigmoid"),
    "scores, labels without an axis": (OF_HITS, BINARY[:, 0], 1, "sigmoid"),
    "signs": (OF_SIGNS, SIGNS, 1, "tanh"),
    "classes": (OF_CLASSES, ONE_HOT, CLASSES, "softmax"),
    "labels": (OF_LABELS, LABELS, CLASSES, "softmax"),
    "labels with an axis": (OF_LABELS[:-1], LABELS[:, None], CLASSES, "softmax"),
    "numbers": (OF_NUMBERS, NUMBERS, CLASSES, "sigmoid"),
}


def copied(metric):
    return type(metric).from_config(metric.get_config()) if isinstance(metric, M.Metric) else metric


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("task", TASKS)
def test_every_metric_has_the_value_that_keras_gives_for_the_rows_drawn(task, weighted):
    metrics, y, units, activation = TASKS[task]
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(units, activation)])
    loss = "sparse_categorical_crossentropy" if task.startswith("labels") else "mse"
    given = {"weighted_metrics" if weighted else "metrics": [copied(m) for m in metrics]}
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.0), l2_norm_clip=1.0, noise_multiplier=1.0
    )
    tfdp.make_private(model)
    model.compile(optimizer, loss, jit_compile=False, **given)
    weights = {"sample_weight": GENERATOR.uniform(0.5, 2.0, ROWS)} if weighted else {}
    sampler = tfdp.PoissonSampler(X, y, batch_size=ROWS, steps=1, pad_to_multiple=16, **weights)
    found = model.fit(sampler, verbose=0).history
    expected = model.evaluate(X, y, batch_size=ROWS, verbose=0, return_dict=True, **weights)
    assert len(expected) > len(metrics)
    for name in expected.keys() - {"loss"}:
        np.testing.assert_allclose(found[name][0], expected[name], rtol=1e-5, err_msg=name)


def test_every_metric_of_keras_is_in_the_lists():
    listed = [metric for task in TASKS.values() for metric in task[0]]
    classes = {type(metric) for metric in listed} | {M.Mean, M.Sum, M.Metric}  # of one number
    functions = {metric for metric in listed if callable(metric)}
    public = [getattr(M, name) for name in dir(M) if not name.startswith("_")]
    others = (M.get, M.serialize, M.deserialize)
    missing = [
        thing
        for thing in public
        if callable(thing) and thing not in classes and thing not in functions | {*others}
    ]
    assert missing == []
