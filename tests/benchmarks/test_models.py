"""Every benchmark model builds, runs and has the size that its name promises."""

import keras
import pytest

from benchmarks.models import CLASSES, MODELS

TINY = {
    "transformer": {"layers": 1, "width": 8, "tokens": 5, "vocab": 11, "heads": 2},
    "resnet20": {"size": 8},
    "resnet18": {"size": 32},
    "resnet50": {"size": 32},
    "vgg16": {"size": 32},
    "convnext_tiny": {"size": 32},
    "bert_base": {"layers": 1, "width": 24, "vocab": 11},
    "gpt2_small": {"layers": 1, "width": 24, "tokens": 5, "vocab": 11},
    "wrn28_10": {"widen": 1, "size": 8},
    "decoder": {"layers": 1, "width": 8, "heads": 2, "tokens": 5, "vocab": 11},
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_builds_a_classifier_with_matching_data(name):
    workload = MODELS[name](num_examples=3, **TINY.get(name, {}))
    assert {len(array) for array in keras.tree.flatten((workload.x, workload.y))} == {3}
    logits = workload.model(workload.x)
    assert logits.shape == ((3, 5, 11) if name in ("decoder", "gpt2_small") else (3, CLASSES))
    assert workload.loss(workload.y, logits).shape == ()


def test_resnet20_has_the_size_of_the_paper():
    assert MODELS["resnet20"](num_examples=1).model.count_params() == pytest.approx(
        0.27e6, rel=0.02
    )


def test_resnet18_has_the_size_of_the_paper():
    parameters = MODELS["resnet18"](num_examples=1).model.count_params()
    assert parameters == pytest.approx(11.7e6 - 512 * (1000 - CLASSES), rel=0.02)


def test_bert_base_has_the_size_of_the_paper():
    """Without the pooling layer and the second kind of token, on words of our own number."""
    encoder = 12 * (12 * 768**2 + 13 * 768) + (30522 + 128) * 768
    parameters = MODELS["bert_base"](num_examples=1).model.count_params()
    assert parameters == pytest.approx(encoder, rel=1e-3)


def test_resnet50_has_the_size_of_the_paper():
    parameters = MODELS["resnet50"](num_examples=1, size=32).model.count_params()
    assert parameters == pytest.approx(25.6e6 - 2048 * (1000 - CLASSES), rel=0.02)


def test_mlp_has_the_units_of_the_paper():
    expected = (784 + 1) * 128 + (128 + 1) * 256 + (256 + 1) * CLASSES
    assert MODELS["mlp"](num_examples=1).model.count_params() == expected


def test_cnn_has_the_kernels_of_the_paper():
    convolutions = (25 + 1) * 20 + (20 * 25 + 1) * 50
    dense = (4 * 4 * 50 + 1) * 128 + (128 + 1) * CLASSES
    assert MODELS["cnn"](num_examples=1).model.count_params() == convolutions + dense


def test_transformer_trains_every_position():
    model = MODELS["transformer"](num_examples=1, **TINY["transformer"]).model
    assert (5, 8) in [tuple(weight.shape) for weight in model.trainable_weights]
