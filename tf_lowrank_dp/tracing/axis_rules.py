"""What each operation of TensorFlow does to the axis of the examples."""

from __future__ import annotations

from tf_lowrank_dp.tracing import axis_layout
from tf_lowrank_dp.tracing.axis_layout import Rule, of_input
from tf_lowrank_dp.tracing.example_axis import (
    Joined,
    Label,
    Operation,
    Public,
    Rows,
    Unknown,
    worst,
)


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


def bias_add(o: Operation) -> Label:
    """One number for each channel, which the examples must not be."""
    label, shape = o.labels[0], o.shape(0)
    if not isinstance(label, Rows) or not isinstance(o.labels[1], Public) or shape is None:
        return o.unknown
    channels = 1 if o.op.get_attr("data_format") == b"NCHW" else len(shape) - 1
    return o.unknown if label.axis == channels else label


def examples_first(o: Operation) -> Label:
    """Acts on the axes behind the first one: images, rows of logits; the same for each row."""
    held = {label for label in o.labels if isinstance(label, Rows)}
    if any(label.axis != 0 for label in held):
        return o.joined
    filters = {1} if o.op.type in _OF_FILTERS else set()  # which are used on all rows
    if any(isinstance(o.labels[index], Rows) for index in filters):
        return o.joined
    if any(o.differs_by_row(index) for index in {*range(len(o.labels))} - filters):
        return o.unknown
    return held.pop() if len(held) == 1 else o.unknown


def select(o: Operation) -> Label:
    """Elements of one tensor or another, by a condition of their shape."""
    return elementwise(o) if o.rank(0) in (0, o.rank(1)) else o.unknown


def contrast(o: Operation) -> Label:
    """Of images, by the mean over their pixels: the last three axes."""
    rank = o.rank(0)
    if rank is None or not isinstance(o.labels[0], Rows):
        return o.unknown
    return o.labels[0] if o.labels[0].axis < rank - 3 else o.joined


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
    both = (2, 2) if o.op.type == "MatMul" else (o.rank(0), o.rank(1))
    ranks = [rank for rank in both if rank is not None]
    if len(ranks) != 2:
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
    terms = list(zip(inputs.split(","), o.labels, strict=True))
    held = {(term[label.axis], label.inner) for term, label in terms if isinstance(label, Rows)}
    if len(held) > 1:
        return o.joined
    [(letter, inner)] = held
    for term, label in terms:
        uneven = isinstance(label, Public) and letter in term and not label.even
        if uneven or term.count(letter) > 1:  # a diagonal tells of each example's place
            return o.unknown
    return Rows(output.index(letter), inner) if letter in output else o.joined


def shuffled(o: Operation) -> Label:
    """Exchanges what lies along the first axis: the examples, or the same for all of them."""
    label = o.labels[0]
    return o.joined if not isinstance(label, Rows) or label.axis == 0 else o.unknown


def normalisation(o: Operation) -> Label:
    """Of a batch: with statistics of the batch, or with stored ones, which are of channels."""
    return o.joined if o.op.get_attr("is_training") else of_input(0, examples_first)(o)


def known_shape(o: Operation) -> Label:
    """The static shape, whatever the values."""
    return o.unknown if any(isinstance(label, Unknown) for label in o.labels) else Public()


def apply(rule: Rule, o: Operation) -> Label:
    """The label of an operation's outputs, of which a single input may decide.

    A length or position that depends on the examples, such as the largest id, is not followed.
    """
    lengths = LENGTHS.get(o.op.type, ())
    if all(isinstance(o.labels[index], Public) for index in lengths):
        return worst(o.labels) or rule(o)
    labels = tuple(Public() if n in lengths else label for n, label in enumerate(o.labels))
    if all(isinstance(label, Public) for label in labels):
        return o.unknown
    found = apply(rule, Operation(o.op, labels, o.size))
    return found if isinstance(found, Joined) else o.unknown


# Inputs that say how long a result is, or which part of an input it is.
LENGTHS = {
    **dict.fromkeys(["Reshape", "Tile", "BroadcastTo", "OneHot", "DenseBincount", "Bincount"], [1]),
    **dict.fromkeys(["Pad", "PadV2", "MirrorPad", "ExpandDims"], [1]),
    **dict.fromkeys(["Fill"], [0]),
    **dict.fromkeys(["Range", "LinSpace"], [0, 1, 2]),
    **dict.fromkeys(["Slice"], [1, 2]),
    **dict.fromkeys(["StridedSlice"], [1, 2, 3]),
}


ELEMENTWISE = """
Angle Complex ComplexAbs Conj Imag Real
Abs Acos Acosh Add AddN AddV2 Asin Asinh Atan Atan2 Atanh BitwiseAnd BitwiseOr BitwiseXor Cast
Ceil CheckNumerics ClipByValue Cos Cosh Digamma Div DivNoNan Elu EluGrad EnsureShape Equal Erf Erfc
Erfinv Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Identity Inv InvGrad Invert
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
ImageProjectiveTransformV3 RGBToHSV HSVToRGB AdjustHue AdjustSaturation
SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits InTopKV2
""".split()
_OF_FILTERS = """
Conv2D Conv3D DepthwiseConv2dNative Conv2DBackpropInput Conv3DBackpropInputV2
DepthwiseConv2dNativeBackpropInput
""".split()
_JOINS = "BiasAddGrad Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter L2Loss".split()
_ALONG = "Cumsum Cumprod CumulativeLogsumexp ReverseV2 Roll".split()
SEGMENTS = """
SegmentSum SegmentSumV2 SegmentMean SegmentMax SegmentMaxV2 SegmentMin SegmentMinV2 SegmentProd
SegmentProdV2 UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
""".split()

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(REDUCTIONS, of_input(0, reduction)),
    **dict.fromkeys(_IMAGES, examples_first),
    **dict.fromkeys(_JOINS, joins),
    **dict.fromkeys(["MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"], product),
    **dict.fromkeys(["Reshape", "ExpandDims", "Squeeze"], of_input(0, axis_layout.shape_change)),
    **dict.fromkeys(_ALONG, of_input(0, along_axis)),
    **dict.fromkeys(["Softmax", "LogSoftmax", "TopKV2"], _leading(1)),
    **dict.fromkeys(["MatrixBandPart", "Cholesky", "MatrixInverse"], _leading(2)),
    **dict.fromkeys(["FFT", "IFFT", "RFFT", "IRFFT"], _leading(1)),
    **dict.fromkeys(["FFT2D", "IFFT2D", "RFFT2D", "IRFFT2D"], _leading(2)),
    **dict.fromkeys(["FFT3D", "IFFT3D", "RFFT3D", "IRFFT3D"], _leading(3)),
    **dict.fromkeys(["SpaceToBatchND", "BatchToSpaceND"], of_input(0, axis_layout.blocks)),
    **dict.fromkeys(["Shape", "Size", "Rank", "ShapeN"], known_shape),
    **dict.fromkeys(["Pad", "PadV2", "MirrorPad"], of_input(0, axis_layout.padded)),
    **dict.fromkeys(["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"], normalisation),
    **dict.fromkeys(["StatelessShuffle", "RandomShuffle"], shuffled),
    "AdjustContrastv2": of_input(0, contrast),
    "BiasAdd": bias_add,
    "Einsum": einsum,
    "Select": select,
    "Transpose": of_input(0, axis_layout.transpose),
    "ConcatV2": axis_layout.concatenation,
    "Pack": axis_layout.stack,
    "Unpack": axis_layout.unstack,
    "Split": of_input(1, axis_layout.part(1, 0)),
    "SplitV": of_input(0, axis_layout.part(0, 2)),
    "StridedSlice": of_input(0, axis_layout.strided_slice),
    "StridedSliceGrad": of_input(4, axis_layout.strided_slice_grad),
    "Slice": of_input(0, axis_layout.slice_of),
    "Tile": of_input(0, same),
    "BroadcastTo": of_input(0, axis_layout.broadcast),
    "GatherV2": axis_layout.gather,
    "GatherNd": axis_layout.gather_nd,
    **dict.fromkeys(SEGMENTS, axis_layout.segments),
    **dict.fromkeys(["ResourceGather", "LookupTableFindV2"], of_input(1, axis_layout.lookup)),
    "OneHot": of_input(0, axis_layout.one_hot),
    "DenseBincount": axis_layout.counts,
}
