"""Contracts of the port to TensorFlow, on the TensorFlow that is installed."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from benchmarks.speed.gpu.export import as_with_a_gpu
from tests.kernels import skipped_without_kernel
from tf_lowrank_dp._tensorflow import (
    elements_stay_apart,
    functions_of,
    graph_of_function,
    has_branches,
    is_stateful,
    kernels_repeat,
    next_name_number,
    nodes_of,
    nothing_recomputed,
    operations_seen_by,
    pointwise_filters_without_strides,
    run_without,
    strategies_of,
    traced_bodies,
    value_behind,
)
from tf_lowrank_dp._tf_data import (
    captured_by,
    comes_in_several,
    data_sets_of,
    functions_in,
    held_by,
    inputs_of,
    is_out_of_order,
    kind_of,
    made_of_numbers,
    mapped_in_one_thread,
    number_of,
    read_by,
    shard_of,
    windows_overlap,
)


def test_a_callback_replaces_the_outputs_of_operations_in_its_context_only():
    def seven_for_cosines(op_type, inputs, attributes, outputs, op_name=None, graph=None):
        return [tf.fill(tf.shape(inputs[0]), 7.0)] if op_type == "Cos" else outputs

    @tf.function(autograph=False)
    def step(x):
        with operations_seen_by(seven_for_cosines):
            inside = tf.map_fn(tf.cos, x)  # in a loop as well
        return inside, tf.cos(x)

    inside, outside = step(tf.zeros([2]))
    assert inside.numpy().tolist() == [7.0, 7.0] and outside.numpy().tolist() == [1.0, 1.0]


def test_an_operation_that_runs_unused_can_be_given_zeros():
    """A draw by a state runs whether it is used or not, and one with a rate of NaN never ends."""

    @tf.function(autograph=False)
    def step(rate):
        unused = tf.random.poisson([], rate)
        run_without(unused.op, 1)
        return 2.0 * rate

    assert step(tf.constant([1.0, float("nan")])).numpy()[0] == 2.0
    function = step.get_concrete_function(tf.TensorSpec([2]))
    (draw,) = [op for op in function.graph.get_operations() if op.type == "RandomPoissonV2"]
    assert draw.inputs[1].op.type in ("ZerosLike", "Const", "Fill")


def test_a_data_set_is_mapped_as_by_map_with_functions_and_calls_of_python():
    def function(number):
        half = tf.function(lambda n: n // 2)(number)
        return half, tf.py_function(lambda n: n + 1, [number], tf.int64)

    numbers = tf.data.Dataset.range(6)
    found = list(mapped_in_one_thread(numbers, function).as_numpy_iterator())
    assert found == list(numbers.map(function).as_numpy_iterator())
    pairs = tf.data.Dataset.zip((numbers, numbers))
    assert list(mapped_in_one_thread(pairs, lambda a, b: a * b))[2].numpy() == 4


def test_branches_are_found_in_functions_as_well():
    def graph(function):
        return tf.function(function).get_concrete_function(tf.TensorSpec([])).graph

    inner = tf.function(lambda x: tf.cond(x > 0.0, lambda: x, lambda: -x))
    assert has_branches(graph(inner)) and has_branches(graph(lambda x: 2.0 * inner(x)))
    assert has_branches(graph(lambda x: tf.while_loop(lambda y: y < 9.0, lambda y: 2 * y, [x])))
    assert not has_branches(graph(lambda x: tf.function(tf.exp)(x)))


def test_functions_traced_before_have_smaller_numbers_in_their_names():
    def traced():
        inner = tf.function(lambda: tf.constant(1.0), autograph=False)
        name = inner.get_concrete_function().function_def.signature.name
        return int(name.rpartition("_")[2])

    before = traced()
    number = next_name_number()
    assert before < number <= traced()


def test_strategies_of_models_optimizers_and_variables_are_those_of_the_scope():
    def parts():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        return model, keras.optimizers.SGD(), model.variables[0].value

    default = tf.distribute.get_strategy()
    assert all(set(strategies_of(part)) <= {default} for part in parts())
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        made = parts()
    assert all(strategies_of(part) == [strategy] for part in made)
    assert strategies_of(object()) == []


def test_operations_are_stateful_by_their_definition():
    stateful = ["AssignVariableOp", "ResourceStridedSliceAssign", "AssignAdd", "PyFunc", "Unheard"]
    assert all(is_stateful(name) for name in stateful)
    others = ["MatMul", "TensorListPushBack", "StatelessWhile"]
    assert not any(is_stateful(name) for name in others)


def test_the_graph_of_a_function_in_a_library_has_its_operations_and_shapes():
    inner = tf.function(lambda x: tf.reduce_sum(x, 1))
    outer = tf.function(lambda x: inner(x)).get_concrete_function(tf.TensorSpec([3, 2])).graph
    functions = functions_of(outer)
    assert functions == functions_of(outer.as_graph_def())
    assert all(name == definition.signature.name for name, definition in functions.items())
    [definition] = [f for f in functions.values() if any(node.op == "Sum" for node in f.node_def)][
        :1
    ]
    with outer.as_default():
        graph = graph_of_function(definition, [tf.TensorShape([3, 2])])
    assert [len(graph.inputs), graph.inputs[0].shape, graph.outputs[0].shape] == [1, [3, 2], [3]]
    assert "Sum" in {op.type for op in graph.get_operations()}


def test_the_nodes_of_a_graph_are_those_of_its_functions_too():
    inner = tf.function(lambda x: tf.reduce_sum(x, 1))
    outer = tf.function(lambda x: tf.exp(inner(x)))
    graph = outer.get_concrete_function(tf.TensorSpec([3, 2])).graph
    assert {"Exp", "Sum"} <= {node.op for node in nodes_of(graph)}
    assert "Sum" not in {op.type for op in graph.get_operations()}


def test_the_traced_bodies_of_a_loop_and_a_branch_have_their_names_and_shapes():
    @tf.function(autograph=False)
    def function(x):
        y = tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (y + 1.0,), (x,))[0]
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: y, lambda: -y)

    graph = function.get_concrete_function(tf.TensorSpec([3])).graph
    loop, branch = (
        next(op for op in graph.get_operations() if op.type.endswith(kind))
        for kind in ("While", "If")
    )
    for op, attributes in ((loop, ("body", "cond")), (branch, ("then_branch", "else_branch"))):
        names = {graph.name for graph in traced_bodies(op)}
        assert names == {op.get_attr(attribute).name for attribute in attributes}
    assert [3] in [tensor.shape for body in traced_bodies(loop) for tensor in body.inputs]


def test_a_function_that_would_be_recomputed_is_called_once_in_the_context_only():
    calls = []

    def doubled(x):
        calls.append(x)
        return 2.0 * x

    @tf.function(autograph=False)
    def gradient(x, kept):
        with nothing_recomputed() if kept else contextlib.nullcontext(), tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.recompute_grad(doubled)(x)
        return tape.gradient(y, x)

    for size, kept, number in ((1, True, 1), (2, False, 2), (3, True, 1)):
        calls.clear()
        assert gradient(tf.ones([size]), kept).numpy()[0] == 2.0
        assert len(calls) == number


def test_kernels_of_a_gpu_repeat_under_op_determinism_only():
    assert kernels_repeat()  # without a GPU
    with as_with_a_gpu():
        assert not kernels_repeat()
        tf.config.experimental.enable_op_determinism()
        try:
            assert kernels_repeat()
        finally:
            config.disable_op_determinism()


def test_a_data_set_knows_what_it_is_made_of_and_what_its_functions_capture():
    source, variable = tf.data.Dataset.range(3), tf.Variable(1, dtype=tf.int64)
    mapped = source.map(lambda n: n + variable)
    joined = tf.data.Dataset.zip((source, mapped)).batch(2)
    assert {id(source), id(mapped), id(joined)} <= {id(each) for each in data_sets_of(joined)}
    assert [tensor.dtype for tensor in captured_by(mapped)] == [tf.resource]
    assert captured_by(mapped)[0] is variable.handle
    assert captured_by(source) == []


@pytest.mark.parametrize("size", [(1, 1), (3, 3)])
@pytest.mark.parametrize("strides", [1, 2, (2, 3)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradients_of_pointwise_filters_are_those_of_the_pixels_that_they_see(
    size, strides, padding
):
    generator = np.random.default_rng(0)
    x = tf.constant(generator.normal(size=(4, 9, 8, 3)), tf.float32)
    kernel = tf.constant(generator.normal(size=(*size, 3, 5)), tf.float32)

    def gradient(context):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = tf.reduce_sum(tf.nn.conv2d(x, kernel, strides, padding) ** 3)
        with context:
            return tape.gradient(loss, kernel)

    safe = tf.function(lambda: gradient(pointwise_filters_without_strides()))
    np.testing.assert_allclose(safe(), gradient(contextlib.nullcontext()), rtol=2e-4, atol=1e-3)
    strided = size == (1, 1) and strides != 1
    graph = safe.get_concrete_function().graph.as_graph_def()
    pruned = tf.compat.v1.graph_util.extract_sub_graph(graph, [graph.node[-1].name])
    assert strided != any(node.op == "Conv2DBackpropFilter" for node in pruned.node)


def test_segment_numbers_beyond_the_last_are_dropped_by_a_vectorized_map():
    elements_stay_apart()
    numbers = tf.constant([[0, 1, 2, 5], [3, 0, -1, 1]])
    found = tf.vectorized_map(lambda n: tf.math.unsorted_segment_sum(tf.ones(4), n, 2), numbers)
    np.testing.assert_array_equal(found, [[1.0, 1.0], [1.0, 1.0]])


def test_the_stages_of_a_pipeline_are_told_by_name_and_number():
    rows = tf.data.Dataset.range(10)
    stages = {
        "Batch": rows.batch(3), "ParallelBatch": rows.batch(3, num_parallel_calls=2),
        "PaddedBatch": rows.padded_batch(3), "Repeat": rows.repeat(3), "Map": rows.map(abs),
        "ParallelMap": rows.map(abs, num_parallel_calls=2), "Shuffle": rows.shuffle(3),
        "Cache": rows.cache(), "Prefetch": rows.prefetch(3), "Take": rows.take(3),
        "Skip": rows.skip(3), "Filter": rows.filter(lambda x: x > 1),
        "Options": rows.with_options(tf.data.Options()),
        "AssertCardinality": rows.apply(tf.data.experimental.assert_cardinality(10)),
        "Concatenate": rows.concatenate(rows),
        "DirectedInterleave": tf.data.Dataset.choose_from_datasets([rows], rows),
    }  # fmt: skip
    for name, stage in stages.items():
        assert kind_of(stage) == name
        assert rows in inputs_of(stage)
        if name in ("Batch", "ParallelBatch", "PaddedBatch", "Repeat"):
            assert number_of(stage) == 3
    assert number_of(rows.repeat()) == -1 and number_of(rows) is None
    assert number_of(rows.batch(tf.random.uniform([], 1, 3, tf.int64))) in (1, 2)


def test_stages_of_the_first_version_are_told_as_well():
    rows = tf.compat.v1.data.Dataset.range(10)
    batches = rows.repeat(3).shard(2, 1).batch(4)
    assert (kind_of(batches), number_of(batches)) == ("Batch", 4)
    [shard] = inputs_of(batches)
    assert (kind_of(shard), shard_of(shard)) == ("Shard", (2, 1))
    assert [kind_of(each) for each in data_sets_of(batches)] == [
        "Batch",
        "Shard",
        "Repeat",
        "Range",
    ]
    assert windows_overlap(rows.window(3, shift=1)) and not windows_overlap(rows.window(3))


def test_parts_of_what_apply_joins_are_seen():
    rows, others = tf.data.Dataset.range(3), tf.data.Dataset.range(4)
    for stage in (rows.concatenate(others), rows.apply(lambda d: d.concatenate(others))):
        assert [id(each) for each in inputs_of(stage)] == [id(rows), id(others)]


class Holder:
    def __init__(self):
        self.rows = tf.data.Dataset.range(3).map(lambda x: x)

    def share(self, index):
        return self.rows.shard(2, index)


def test_data_sets_that_functions_capture_are_seen():
    index, holder = tf.data.Dataset.range(2), Holder()
    local = tf.data.Dataset.range(5)
    nested = index.flat_map(lambda _: index.flat_map(lambda _: local))
    assert held_by(index.interleave(lambda i: local.shard(2, i))) == [local]
    assert held_by(index.interleave(holder.share)) == [holder.rows]
    assert local in held_by(nested)
    assert local in data_sets_of(nested.batch(2))
    assert read_by(nested) == [index, *held_by(nested)]
    assert held_by(index.map(lambda x: x + 1)) == held_by(local) == []


def test_a_data_set_that_nothing_names_any_more_is_known_to_be_missing():
    variant = tf.data.Dataset.range(5)._variant_tensor
    spec = tf.TensorSpec([], tf.int64)
    unnamed = tf.data.Dataset.range(2).flat_map(
        lambda _: tf.data.experimental.from_variant(variant, spec)
    )
    assert held_by(unnamed) == [None]


def test_numbers_that_tensorflow_rewrites_are_told_from_rows():
    rows = tf.data.Dataset.from_tensor_slices([1.0, 2.0])
    number = inputs_of(rows.enumerate())[0]
    window = next(iter(rows.window(2)))
    assert kind_of(number) == kind_of(window) == "Variant"
    assert made_of_numbers(number) and not made_of_numbers(window)


def test_functions_of_a_stage_are_seen():
    doubled = tf.data.Dataset.range(3).map(lambda x: 2 * x)
    [graph] = functions_in(doubled)
    assert "Mul" in {op.type for op in graph.get_operations()}
    assert functions_in(doubled.batch(2)) == []


@pytest.mark.parametrize("deterministic", [None, True, False])
def test_stages_that_give_what_is_ready_first_are_told(deterministic):
    rows, told = tf.data.Dataset.range(4), {"num_parallel_calls": 2, "deterministic": deterministic}
    for stage in (
        rows.map(abs, **told),
        rows.batch(2, **told),
        rows.interleave(lambda _: tf.data.Dataset.range(2), **told),
        rows.apply(
            tf.data.experimental.parallel_interleave(
                lambda _: tf.data.Dataset.range(2), 2, sloppy=deterministic is False
            )
        ),
        tf.compat.v1.data.Dataset.range(4).map(abs, **told),
    ):
        assert is_out_of_order(stage) == (deterministic is False)
    assert not is_out_of_order(rows) and not is_out_of_order(rows.interleave(lambda _: rows))


def test_shards_tell_which_they_are():
    assert shard_of(tf.data.Dataset.range(9).shard(3, 2)) == (3, 2)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shift", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_windows_overlap_where_an_element_comes_twice(size, shift, stride):
    windows = tf.data.Dataset.range(30).window(size, shift, stride, drop_remainder=True)
    held = [int(each) for window in windows for each in window]
    assert windows_overlap(windows) == (len(set(held)) < len(held))
    numbers = (tf.constant(number) for number in (size, shift, stride))
    assert comes_in_several(*numbers) == windows_overlap(windows)


IMAGES, KERNELS = (1, 8, 8, 4), (3, 3, 4, 2)  # XLA folds few channels otherwise than many
OPERATIONS = {
    "conv": lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"),
    "strided conv": lambda x, k: tf.nn.conv2d(x, k, 2, "VALID"),
    "dilated conv": lambda x, k: tf.nn.conv2d(x, k, 1, "SAME", dilations=2),
    "grouped conv": lambda x, k: tf.nn.conv2d(x, k[:, :, :2], 1, "SAME"),
    "transposed conv": lambda x, k: tf.nn.conv2d_transpose(
        x, tf.transpose(k, [0, 1, 3, 2]), [1, 16, 16, 2], 2
    ),
    "depthwise conv": lambda x, k: tf.nn.depthwise_conv2d(x, k, [1, 1, 1, 1], "SAME"),
    "strided depthwise conv": lambda x, k: tf.nn.depthwise_conv2d(x, k, [1, 2, 2, 1], "SAME"),
    "separable conv": lambda x, k: tf.nn.separable_conv2d(
        x, k, tf.ones([1, 1, 8, 3]), [1, 1, 1, 1], "SAME"
    ),
    "3d conv": lambda x, k: tf.nn.conv3d(x[..., None], k[..., None, :], [1] * 5, "SAME"),
    "max pool": lambda x, k: tf.nn.max_pool2d(x, 2, 2, "SAME") * tf.reduce_sum(k),
    "average pool": lambda x, k: tf.nn.avg_pool2d(x, 2, 2, "SAME") * tf.reduce_sum(k),
    "product": lambda x, k: tf.matmul(x, tf.reshape(k, [4, 18])),
    "einsum": lambda x, k: tf.einsum("bhwc,xycd->bhwxyd", x, k),
    "softmax": lambda x, k: tf.nn.softmax(x) * tf.reduce_sum(k),
    "running sum": lambda x, k: tf.cumsum(x, 1) * tf.reduce_sum(k),
    "normalisation": lambda x, k: tf.nn.batch_normalization(
        x, *tf.nn.moments(x, [1, 2], keepdims=True), k[0, 0, :, 0], k[0, 0, :, 1], 1e-3
    ),
    "patches": lambda x, k: tf.matmul(
        tf.image.extract_patches(x, [1, 3, 3, 1], [1, 1, 1, 1], [1] * 4, "SAME"),
        tf.reshape(k, [36, 2]),
    ),
    "sort": lambda x, k: tf.sort(x, 1) * tf.reduce_sum(k),
    "resize": lambda x, k: tf.image.resize(x, [9, 9]) * tf.reduce_sum(k),
    "gather": lambda x, k: tf.gather(x, tf.argmax(x, 1), axis=1) * tf.reduce_sum(k),
    "roll": lambda x, k: tf.roll(x, 1, -1) * tf.reduce_sum(k),
    "roll along two axes": lambda x, k: tf.roll(x, [1, 2], [-2, 1]) * tf.reduce_sum(k),
    "roll by its own number": lambda x, k: (
        tf.roll(x, tf.cast(tf.reduce_sum(x) > 0.0, tf.int32) + 1, -1) * tf.reduce_sum(k)
    ),
    "from the back": lambda x, k: (
        tf.cumsum(tf.reverse(x, [-1]), -2, exclusive=True) * tf.reduce_sum(k)
    ),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_element_that_holds_no_numbers_changes_no_other(name, compiled):
    """Values and both gradients of an operation, vectorised over five elements."""
    elements_stay_apart()
    kernel = tf.random.stateless_normal(KERNELS, [1, 2])

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            value = OPERATIONS[name](x, kernel)
            loss = tf.tanh(value)  # its gradient is no number either
        found = tape.gradient(loss, [x, kernel])
        return [value, *(each for each in found if each is not None)]

    @tf.function(jit_compile=compiled, autograph=False)
    def vectorised(x):
        return tf.vectorized_map(gradients, x)

    x = tf.random.stateless_normal([25, *IMAGES], [3, 4]).numpy()
    with skipped_without_kernel():
        alone = gradients(tf.constant(x[3]))
    expected = [t.numpy() for t in vectorised(tf.constant(x))]
    for all_, one in zip(expected, alone, strict=True):
        np.testing.assert_allclose(all_[3], one, rtol=2e-3, atol=1e-3)
    for bad in (np.nan, np.inf, 1e30):
        x[2, 0, 3, 3, 1] = bad
        for found, without in zip(vectorised(tf.constant(x)), expected, strict=True):
            np.testing.assert_allclose(
                np.delete(found, 2, 0), np.delete(without, 2, 0), rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("dtype", [tf.float32, tf.int64, tf.string])
def test_the_value_behind_a_handle_is_that_of_its_variable(dtype):
    value = tf.constant(["3", "4"]) if dtype == tf.string else tf.constant([3, 4], dtype)
    variable = tf.Variable(value)
    found = []
    tf.function(lambda: found.append(value_behind(variable.handle))).get_concrete_function()
    for each in (value_behind(variable.handle), *found):
        assert each.dtype == dtype and bool(tf.reduce_all(each == value))


def test_a_table_has_no_value_behind_its_handle():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    assert value_behind(table.resource_handle) is None
