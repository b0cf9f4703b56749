"""Which matrices are reparametrised or made sparse: the default rule, `include` and `exclude`."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.release.engines import EXACT, mixed_model, space_of
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.release.masked import MaskedSpace

L = keras.layers


def selected(model, rank=1, optimizer=tfdp.RGPOptimizer, **arguments):
    """Layer and variable of the matrices that are treated, "layer/kernel"."""
    if issubclass(optimizer, tfdp.SparseDPSGDOptimizer):
        optimizer = optimizer(**arguments, **EXACT)
    else:
        optimizer = optimizer(rank=rank, **arguments, **EXACT)
    space = space_of(optimizer, model)
    treated = space.refresh()[1] if isinstance(space, MaskedSpace) else space.ranks
    return {"/".join(space.parameters[i].path.split("/")[-2:]) for i in treated}


def big(name):
    return L.Dense(40, activation="relu", name=name)


def sequential():
    return keras.Sequential([keras.Input((40,)), big("one"), big("two"), big("last")])


def activation_behind():
    inputs = keras.Input((40,))
    x = big("last")(big("two")(big("one")(inputs)))
    return keras.Model(inputs, L.Dropout(0.1)(L.Activation("softmax")(L.Reshape((2, 20))(x))))


def sequential_with_activation():
    layers = [keras.Input((40,)), big("one"), big("two"), big("last"), L.Activation("softmax")]
    return keras.Sequential(layers)


def nested():
    inner = keras.Sequential([keras.Input((40,)), big("two"), big("last")], name="inner")
    return keras.Sequential([keras.Input((40,)), big("one"), inner])


def nested_functional():
    inputs = keras.Input((40,))
    inner = keras.Model(inputs, L.Softmax()(big("last")(big("two")(inputs))), name="inner")
    outer = keras.Input((40,))
    return keras.Model(outer, inner(big("one")(outer)) * 2.0)


def outputs_added():
    inputs = keras.Input((40,))
    x = big("two")(big("one")(inputs))
    return keras.Model(inputs, big("last")(x) + 1.0)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.last = big("one"), big("two"), big("last")

    def call(self, x):
        return self.last(self.two(self.one(x)))


def subclassed():
    model = Subclassed()
    model(np.zeros((1, 40), np.float32))
    return model


MODELS = [
    sequential, activation_behind, sequential_with_activation, nested, nested_functional,
    outputs_added, subclassed,
]  # fmt: skip


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_kernels_are_selected_but_not_that_of_the_output_layer(make):
    model = make()
    assert selected(model) == {"one/kernel", "two/kernel"}


def test_each_output_has_an_output_layer():
    inputs = keras.Input((40,))
    x = big("one")(inputs)
    outputs = {"a": big("a")(big("two")(x)), "b": L.Softmax()(big("b")(x))}
    assert selected(keras.Model(inputs, outputs)) == {"one/kernel", "two/kernel"}


def test_a_layer_of_one_output_that_feeds_another_is_an_output_layer():
    inputs = keras.Input((40,))
    x = big("a")(big("one")(inputs))
    assert selected(keras.Model(inputs, [x, big("b")(x)])) == {"one/kernel"}


def test_all_layers_of_a_sum_of_branches_are_output_layers():
    inputs = keras.Input((40,))
    x = big("one")(inputs)
    assert selected(keras.Model(inputs, big("a")(x) + big("b")(x))) == {"one/kernel"}


def test_a_layer_used_twice_is_an_output_layer_if_one_use_is():
    inputs = keras.Input((40,))
    layer = big("twice")
    assert selected(keras.Model(inputs, layer(big("one")(layer(inputs))))) == {"one/kernel"}


def test_the_last_kernel_of_attention_at_the_output_is_the_output_layers():
    inputs = keras.Input((6, 40))
    x = big("one")(inputs)
    model = keras.Model(inputs, L.MultiHeadAttention(4, 10, name="mha")(x, x))
    kernels = {f"{part}/kernel" for part in ("query", "key", "value")}
    assert selected(model) == {"one/kernel", *kernels}


def test_embeddings_are_not_selected_unless_included():
    model = keras.Sequential(
        [keras.Input((6,), dtype="int32"), L.Embedding(50, 40, name="table"), L.Flatten()]
        + [big("one"), big("end")]
    )
    assert selected(model) == {"one/kernel"}
    assert selected(model, include=["table"]) == {"one/kernel", "table/embeddings"}


@pytest.mark.parametrize("make", [tfdp.RGPOptimizer, tfdp.LSGOptimizer, tfdp.DPPowerSGDOptimizer])
@pytest.mark.parametrize(
    ("m", "n", "rank"),
    [(8, 8, 2), (8, 8, 3), (12, 6, 2), (12, 6, 3), (4, 100, 1), (4, 100, 2), (3, 100, 1)],
)
def test_a_kernel_is_selected_if_two_carriers_have_at_most_half_of_its_numbers(make, m, n, rank):
    model = keras.Sequential([keras.Input((m,)), L.Dense(n, name="one"), L.Dense(2, name="last")])
    expected = {"one/kernel"} if 2 * rank * (m + n) <= m * n else set()
    assert selected(model, rank, make) == expected


def test_the_rule_counts_a_convolution_as_a_matrix_of_patches():
    """A kernel (3, 3, 2, 16) has 18 rows: 2 * 4 * (18 + 16) <= 288 holds, rank 5 does not."""
    model = keras.Sequential([keras.Input((5, 5, 2)), L.Conv2D(16, 3, name="one"), L.Dense(2)])
    assert selected(model, 4) == {"one/kernel"} and selected(model, 5) == set()


def test_sparse_dpsgd_selects_all_kernels_but_those_of_output_layers():
    model = keras.Sequential([keras.Input((3,)), L.Dense(2, name="one"), L.Dense(2, name="last")])
    assert selected(model, optimizer=tfdp.SparseDPSGDOptimizer) == {"one/kernel"}


def test_include_takes_what_the_defaults_leave_and_exclude_leaves_what_they_take():
    model = sequential()
    assert selected(model, include=["last"]) == {"one/kernel", "two/kernel", "last/kernel"}
    assert selected(model, exclude=["one"]) == {"two/kernel"}
    assert selected(model, rank=1000, include=["two"]) == {"two/kernel"}
    assert selected(model, include=["last"], exclude=["one", "two"]) == {"last/kernel"}


def test_vectors_are_never_selected():
    assert selected(sequential(), include=["one"]) == {"one/kernel", "two/kernel"}
    assert not any("bias" in path for path in selected(mixed_model(), include=["conv"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"include": ["nothing"]}, "nothing"),
        ({"exclude": ["nothing"]}, "nothing"),
        ({"include": ["one/bias"]}, "one/bias"),
        ({"include": ["one"], "exclude": ["kernel"]}, "one/kernel"),
    ],
    ids=["include", "exclude", "vector", "conflict"],
)
def test_entries_that_match_nothing_or_conflict_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"(?s)Expected.*Received.*{message}"):
        selected(sequential(), **arguments)


@pytest.mark.parametrize("name", ["include", "exclude"])
@pytest.mark.parametrize("parts", ["kernel", [3]], ids=["string", "number"])
def test_parts_that_are_no_list_of_strings_are_refused(name, parts):
    with pytest.raises(ValueError, match=f"(?s)Expected.*{name}.*list of strings"):
        tfdp.RGPOptimizer(**{name: parts}, **EXACT)


def test_the_rank_is_at_most_the_smaller_side():
    optimizer = tfdp.RGPOptimizer(rank=6, include=["kernel"], **EXACT)
    space = space_of(optimizer, mixed_model())
    ranks = {space.parameters[i].path: rank for i, rank in space.ranks.items()}
    assert ranks["hidden/kernel"] == 5 and ranks["head/kernel"] == 3
    assert ranks["mha/query/kernel"] == 6 and ranks["conv/kernel"] == 6


def test_roles_and_matrices_of_parameters():
    parameters = {p.path: p for p in describe_parameters(mixed_model())}
    assert [p.path for p in parameters.values() if p.role == "kernel"] == [
        path for path in parameters if path.endswith("kernel")
    ]
    assert [path for path, p in parameters.items() if p.is_output] == ["head/kernel", "head/bias"]
    sizes = {
        path: (p.view.rows, p.view.columns, p.view.input_units)
        for path, p in parameters.items()
        if p.view is not None
    }
    assert sizes == {
        "hidden/kernel": (5, 8, 5),
        "mha/query/kernel": (8, 6, 8),
        "mha/key/kernel": (8, 6, 8),
        "mha/value/kernel": (8, 6, 8),
        "mha/attention_output/kernel": (6, 8, 6),
        "conv/kernel": (24, 7, 8),
        "head/kernel": (42, 3, 42),
    }


def test_an_einsum_kernel_with_axes_that_are_not_inputs_or_outputs_is_no_matrix():
    """Its axis `b` is in input and output: one kernel for each position."""
    layer = L.EinsumDense("abc,bcd->abd", (6, 40), name="grouped")
    model = keras.Sequential([keras.Input((6, 40)), layer, big("last")])
    assert describe_parameters(model)[0].view is None
    assert selected(model) == set()
    with pytest.raises(ValueError, match="grouped"):
        selected(model, include=["grouped"])


def test_kernels_of_layers_without_a_capture_are_matrices_with_the_last_axis_in_columns():
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), L.SeparableConv2D(5, 3), L.Flatten(), L.Dense(2)]
    )
    views = [(p.view.rows, p.view.columns, p.role) for p in describe_parameters(model)[:2]]
    assert views == [(27, 1, "kernel"), (3, 5, "kernel")]


def test_frozen_layers_have_no_parameters():
    model = sequential()
    model.get_layer("one").trainable = False
    assert [p.path for p in describe_parameters(model)] == [v.path for v in model.trainable_weights]
    assert selected(model) == {"two/kernel"}
