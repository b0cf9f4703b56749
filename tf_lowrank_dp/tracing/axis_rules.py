"""What each operation of TensorFlow does to the axis of the examples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tf_lowrank_dp.tracing.example_axis import (
    Label,
    Operation,
    Public,
    Rows,
    Unknown,
    reshaped,
    worst,
)

Rule = Callable[[Operation], Label]


def elementwise(o: Operation) -> Label:
    """Broadcast against each other from the last axis on; rows must meet rows of their own."""
    out = o.out_shape()
    if out is None:
        return o.unknown
    places = set()
    for index, label in enumerate(o.labels):
        if isinstance(label, Rows):
            shape = o.shape(index)
            if shape is None:
                return o.unknown
            places.add((len(shape) - label.axis, label.inner))
    if len(places) > 1:
        return o.joined
    [(from_last, inner)] = places
    for index, label in enumerate(o.labels):
        if isinstance(label, Public) and o.tells_rows_apart(index, from_last):
            # Rows that share random numbers are not independent, see docs/randomness.md.
            return o.joined if label.random else o.unknown
    return Rows(len(out) - from_last, inner)


def same(o: Operation) -> Label:
    """As the first input that holds examples, axis for axis; the others tell no rows apart."""
    held = {label for label in o.labels if isinstance(label, Rows)}
    return held.pop() if len(held) == 1 else o.joined


def examples_first(o: Operation) -> Label:
    """Acts on the axes behind the first one: images, rows of logits."""
    held = {label for label in o.labels if isinstance(label, Rows)}
    if any(label.axis != 0 for label in held):
        return o.joined
    return held.pop() if len(held) == 1 else o.unknown


def joins(o: Operation) -> Label:
    """Sums over all examples by its nature."""
    return o.joined


def _leading(count: int) -> Rule:
    """Acts on the last `count` axes; those before are independent."""

    def rule(o: Operation) -> Label:
        found = same(o)
        shape = o.shape(next(i for i, label in enumerate(o.labels) if isinstance(label, Rows)))
        if not isinstance(found, Rows) or shape is None:
            return o.unknown
        return found if found.axis < len(shape) - count else o.joined

    return rule


def _axes(o: Operation, index: int, rank: int) -> set[int] | None:
    value = o.value(index)
    return None if value is None else {int(axis) % max(rank, 1) for axis in value.ravel()}


def reduction(o: Operation) -> Label:
    """Sum, mean, maximum and the like over some axes."""
    label, shape = o.labels[0], o.shape(0)
    if not isinstance(label, Rows) or shape is None:
        return o.unknown
    axes = _axes(o, 1, len(shape))
    if axes is None:
        return o.unknown
    if label.axis in axes:
        return o.joined
    names = [attribute.name for attribute in o.op.op_def.attr]
    if "keep_dims" in names and o.op.get_attr("keep_dims"):
        return label
    return Rows(label.axis - sum(axis < label.axis for axis in axes), label.inner)


def along_axis(o: Operation) -> Label:
    """Cumulates, reverses or rolls along axes that its last input names."""
    label, shape = o.labels[0], o.shape(0)
    if not isinstance(label, Rows) or shape is None:
        return o.unknown
    axes = _axes(o, len(o.labels) - 1, len(shape))
    if axes is None:
        return o.unknown
    return o.joined if label.axis in axes else label


def product(o: Operation) -> Label:
    """Matrix products, with leading axes that are broadcast."""
    ranks = [2, 2] if o.op.type == "MatMul" else [o.rank(0), o.rank(1)]
    if None in ranks:
        return o.unknown
    names = {attribute.name for attribute in o.op.op_def.attr}
    places = set()
    for index, label in enumerate(o.labels[:2]):
        if not isinstance(label, Rows):
            continue
        rank = ranks[index]
        if label.axis < rank - 2:
            places.add((rank - label.axis, label.inner))
            continue
        flag = [("transpose_a", "adj_x"), ("transpose_b", "adj_y")][index]
        flipped = any(f in names and o.op.get_attr(f) for f in flag)
        is_row = (label.axis == rank - 2) != flipped  # of the matrix as it is multiplied
        if is_row != (index == 0):
            return o.joined  # the products are summed over this axis
        places.add((2 - index, label.inner))
    if len(places) != 1:
        return o.joined
    [(from_last, inner)] = places
    for index, label in enumerate(o.labels[:2]):
        if isinstance(label, Public) and from_last > 2 and o.tells_rows_apart(index, from_last):
            return o.unknown
    return Rows(max(ranks) - from_last, inner)


def einsum(o: Operation) -> Label:
    """By its equation; the examples' letter must be in the result."""
    equation = o.op.get_attr("equation").decode().replace(" ", "")
    if "." in equation:
        return o.unknown
    inputs, output = equation.split("->")
    held = {
        (letters[label.axis], label.inner)
        for letters, label in zip(inputs.split(","), o.labels, strict=True)
        if isinstance(label, Rows)
    }
    if len(held) > 1:
        return o.joined
    [(letter, inner)] = held
    for index, letters in enumerate(inputs.split(",")):
        if isinstance(o.labels[index], Public) and letter in letters and not o.labels[index].even:
            return o.unknown
    return Rows(output.index(letter), inner) if letter in output else o.joined


def shape_change(o: Operation) -> Label:
    """Reshapes, with the order of the elements kept."""
    label, before, after = o.labels[0], o.shape(0), o.out_shape()
    if not isinstance(label, Rows) or before is None or after is None:
        return o.unknown
    return reshaped(label, before, after, o.size) or o.unknown


def transpose(o: Operation) -> Label:
    label, order = o.labels[0], o.value(1)
    if not isinstance(label, Rows) or order is None:
        return o.unknown
    return Rows(list(order).index(label.axis), label.inner)


def concatenation(o: Operation) -> Label:
    """Along another axis, or whole batches one after the other."""
    out, axis = o.out_shape(), o.value(len(o.labels) - 1)
    held = {label for label in o.labels if isinstance(label, Rows)}
    if out is None or axis is None or len(held) != 1:
        return o.unknown
    [label] = held
    along = int(axis) % len(out)
    for index in range(len(o.labels) - 1):
        is_public = isinstance(o.labels[index], Public)
        if is_public and (along == label.axis or not _fits(o, index, len(out) - label.axis)):
            return o.unknown
        if along == label.axis and not o.spans(label, o.shape(index)[along]):
            return o.unknown
    return label


def _fits(o: Operation, index: int, from_last: int) -> bool:
    return not o.tells_rows_apart(index, from_last)


def stack(o: Operation) -> Label:
    out, held = o.out_shape(), {label for label in o.labels if isinstance(label, Rows)}
    if out is None or len(held) != 1:
        return o.unknown
    [label] = held
    public = [i for i, other in enumerate(o.labels) if isinstance(other, Public)]
    if any(not _fits(o, i, len(out) - 1 - label.axis) for i in public):
        return o.unknown
    axis = o.op.get_attr("axis") % len(out)
    return Rows(label.axis + (axis <= label.axis), label.inner)


def unstack(o: Operation) -> Label:
    label, shape = o.labels[0], o.shape(0)
    if not isinstance(label, Rows) or shape is None:
        return o.unknown
    axis = o.op.get_attr("axis") % len(shape)
    return o.unknown if axis == label.axis else Rows(label.axis - (axis < label.axis), label.inner)


def _part(index: int, axis_index: int) -> Rule:
    """Parts of a tensor along an axis: whole batches, or of another axis."""

    def rule(o: Operation) -> Label:
        label, shape, axis = o.labels[index], o.shape(index), o.value(axis_index)
        if not isinstance(label, Rows) or shape is None or axis is None:
            return o.unknown
        if int(axis) % len(shape) != label.axis:
            return label
        outs = [o.out_shape(n) for n in range(len(o.op.outputs))]
        whole = all(out is not None and o.spans(label, out[label.axis]) for out in outs)
        return label if whole else o.joined

    return rule


def strided_slice(o: Operation) -> Label:
    """Slices: those of the examples' axis must keep all of it, or whole batches."""
    label, shape = o.labels[0], o.shape(0)
    begin, end, strides = (o.value(index) for index in (1, 2, 3))
    if not isinstance(label, Rows) or shape is None or strides is None:
        return o.unknown
    masks = {n: o.op.get_attr(f"{n}_mask") for n in ("begin", "end", "ellipsis", "new_axis")}
    shrink = o.op.get_attr("shrink_axis_mask")
    in_axis, out_axis, count = 0, 0, len(strides)
    for bit in range(count):
        if masks["ellipsis"] >> bit & 1:
            later = range(bit + 1, count)
            new = sum(masks["new_axis"] >> later_bit & 1 for later_bit in later)
            skipped = len(shape) - in_axis - (len(later) - new)
            if in_axis <= label.axis < in_axis + skipped:
                return Rows(out_axis + label.axis - in_axis, label.inner)
            in_axis, out_axis = in_axis + skipped, out_axis + skipped
        elif masks["new_axis"] >> bit & 1:
            out_axis += 1
        elif in_axis == label.axis:
            if shrink >> bit & 1 or strides[bit] != 1:
                return o.joined
            known = begin is not None and end is not None
            low = None if masks["begin"] >> bit & 1 else (int(begin[bit]) if known else "?")
            high = None if masks["end"] >> bit & 1 else (int(end[bit]) if known else "?")
            if "?" in (low, high):
                return o.unknown
            if low in (None, 0) and high is None:
                return Rows(out_axis, label.inner)
            if shape[in_axis] is None:
                return o.unknown
            low, high, _ = slice(low, high).indices(shape[in_axis])
            whole = o.spans(label, low) and high > low and o.spans(label, high - low)
            return Rows(out_axis, label.inner) if whole else o.joined
        else:
            in_axis, out_axis = in_axis + 1, out_axis + (not shrink >> bit & 1)
    return Rows(label.axis - in_axis + out_axis, label.inner)


def slice_of(o: Operation) -> Label:
    label, shape, out = o.labels[0], o.shape(0), o.out_shape()
    if not isinstance(label, Rows) or shape is None or out is None:
        return o.unknown
    whole = shape[label.axis] is not None and out[label.axis] == shape[label.axis]
    return label if whole else o.unknown


def padded(o: Operation) -> Label:
    label, paddings = o.labels[0], o.value(1)
    if not isinstance(label, Rows) or paddings is None:
        return o.unknown
    return label if not np.any(paddings[label.axis]) else o.unknown


def broadcast(o: Operation) -> Label:
    label, shape, out = o.labels[0], o.shape(0), o.out_shape()
    if not isinstance(label, Rows) or shape is None or out is None:
        return o.unknown
    return Rows(label.axis + len(out) - len(shape), label.inner)


def gather(o: Operation) -> Label:
    """Rows of a table by the examples' ids, or of each example's own axes."""
    params, indices = o.labels[:2]
    axis = o.value(2)
    shapes = o.shape(0), o.shape(1)
    if axis is None or None in shapes:
        return o.unknown
    axis, batch_dims = int(axis) % max(len(shapes[0]), 1), o.op.get_attr("batch_dims")
    if isinstance(params, Public) and isinstance(indices, Rows):
        if batch_dims:
            return o.unknown
        return Rows(axis + indices.axis, indices.inner)
    if isinstance(params, Rows) and params.axis == axis:
        return o.joined
    if isinstance(params, Rows) and isinstance(indices, Rows):
        return params if params == indices and params.axis < batch_dims else o.joined
    if batch_dims:
        return o.unknown
    return Rows(params.axis + (params.axis > axis) * (len(shapes[1]) - 1), params.inner)


def lookup(o: Operation) -> Label:
    """Of a variable's rows by the examples' ids."""
    label = o.labels[1]
    return label if isinstance(label, Rows) else o.unknown


def one_hot(o: Operation) -> Label:
    label, axis = o.labels[0], o.op.get_attr("axis")
    if not isinstance(label, Rows):
        return o.unknown
    return Rows(label.axis + (0 <= axis <= label.axis), label.inner)


def normalisation(o: Operation) -> Label:
    """Of a batch: with statistics of the batch, or with stored ones."""
    return o.joined if o.op.get_attr("is_training") else examples_first(o)


def counts(o: Operation) -> Label:
    """Row by row for matrices, of all for vectors."""
    label, shape = o.labels[0], o.shape(0)
    if not isinstance(label, Rows) or shape is None:
        return o.unknown
    return label if len(shape) == 2 and label.axis == 0 else o.joined


def known_shape(o: Operation) -> Label:
    """The static shape, whatever the values."""
    return o.unknown if any(isinstance(label, Unknown) for label in o.labels) else Public()


def apply(rule: Rule, o: Operation) -> Label:
    """The label of an operation's outputs, of which a single input may decide.

    A length or position that depends on the examples, such as the largest id, is not followed.
    """
    lengths = _LENGTHS.get(o.op.type, ())
    if any(not isinstance(o.labels[index], Public) for index in lengths):
        return worst([label for n, label in enumerate(o.labels) if n not in lengths]) or o.unknown
    return worst(o.labels) or rule(o)


# Inputs that say how long a result is, or which part of an input it is.
_LENGTHS = {
    **dict.fromkeys(["Reshape", "Tile", "BroadcastTo", "OneHot", "DenseBincount", "Bincount"], [1]),
    **dict.fromkeys(["Pad", "PadV2", "MirrorPad", "ExpandDims"], [1]),
    **dict.fromkeys(["Fill"], [0]),
    **dict.fromkeys(["Range", "LinSpace"], [0, 1, 2]),
    **dict.fromkeys(["Slice"], [1, 2]),
    **dict.fromkeys(["StridedSlice"], [1, 2, 3]),
}


ELEMENTWISE = """
Abs Acos Acosh Add AddN AddV2 Asin Asinh Atan Atan2 Atanh BitwiseAnd BitwiseOr BitwiseXor Cast
Ceil CheckNumerics ClipByValue Cos Cosh Digamma Div DivNoNan Elu EluGrad Equal Erf Erfc Erfinv
Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Identity IdentityN Inv InvGrad Invert
IsFinite IsInf IsNan LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p
LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Neg NextAfter NotEqual OnesLike
Pow PreventGradient RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad RightShift
Rint Round Rsqrt RsqrtGrad SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Snapshot
Softplus SoftplusGrad Softsign SoftsignGrad Sqrt SqrtGrad Square SquaredDifference StopGradient
Sub Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py Xlogy ZerosLike StringLower
StringUpper StringStrip StaticRegexReplace AsString StringToHashBucketFast StringToNumber
""".split()
REDUCTIONS = "Sum Mean Max Min Prod Any All EuclideanNorm ArgMax ArgMin".split()
_IMAGES = """
Conv2D Conv3D DepthwiseConv2dNative MaxPool MaxPoolV2 MaxPool3D AvgPool AvgPool3D MaxPoolGrad
MaxPool3DGrad AvgPoolGrad AvgPool3DGrad Conv2DBackpropInput Conv3DBackpropInputV2 LRN LRNGrad
DepthwiseConv2dNativeBackpropInput ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea
ResizeBilinearGrad ResizeNearestNeighborGrad SpaceToDepth DepthToSpace ExtractImagePatches
ImageProjectiveTransformV3 RGBToHSV HSVToRGB AdjustHue AdjustSaturation AdjustContrastv2
SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits InTopKV2 BiasAdd
""".split()
_JOINS = "BiasAddGrad Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter L2Loss".split()

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(_IMAGES, examples_first),
    **dict.fromkeys(_JOINS, joins),
    **dict.fromkeys(["MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"], product),
    **dict.fromkeys(["Reshape", "ExpandDims", "Squeeze"], shape_change),
    **dict.fromkeys(["Cumsum", "Cumprod", "ReverseV2", "Roll"], along_axis),
    **dict.fromkeys(["Softmax", "LogSoftmax", "TopKV2"], _leading(1)),
    **dict.fromkeys(["MatrixBandPart", "Cholesky", "MatrixInverse"], _leading(2)),
    **dict.fromkeys(["Shape", "Size", "Rank", "ShapeN"], known_shape),
    **dict.fromkeys(["Pad", "PadV2", "MirrorPad"], padded),
    **dict.fromkeys(["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"], normalisation),
    "Einsum": einsum,
    "Transpose": transpose,
    "ConcatV2": concatenation,
    "Pack": stack,
    "Unpack": unstack,
    "Split": _part(1, 0),
    "SplitV": _part(0, 2),
    "StridedSlice": strided_slice,
    "Slice": slice_of,
    "Tile": same,
    "BroadcastTo": broadcast,
    "GatherV2": gather,
    "ResourceGather": lookup,
    "LookupTableFindV2": lookup,
    "OneHot": one_hot,
    "DenseBincount": counts,
}
