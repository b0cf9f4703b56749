"""Which operations can keep something of the examples outside of what a graph computes."""

from __future__ import annotations

from tf_lowrank_dp._tensorflow import is_stateful
from tf_lowrank_dp.tracing.random_draws import is_random

# They execute Python, though TensorFlow takes them at their word that nothing is kept.
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}

# Stateful by TensorFlow's definition, and they read only, call functions, which are looked at by
# themselves, or write to the terminal.
_READS = {
    *("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp", "VarIsInitializedOp"),
    *("VariableShape", "DisableCopyOnRead"),
    *("LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2"),
    *("StatefulPartitionedCall", "While", "If", "Case"),
    *("Assert", "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2", "Timestamp"),
    *("Empty", "DeepCopy", "GuaranteeConst", "DeviceIndex"),
    *("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"),
    *("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"),
    *("SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceTokenizeWithOffsetsOp"),
    *("SentencepieceDetokenizeOp", "SentencepieceIdToStringOp", "SentencepieceStringToIdOp"),
    *("SentencepieceVocabSizeOp", "WordpieceTokenizeWithOffsets"),  # of TensorFlow Text
}


def hands_to_python(op_type: str) -> bool:
    """Whether an operation of this type executes Python, of which no graph shows what it reads."""
    return op_type in _PYTHON


def may_keep(op_type: str) -> bool:
    """Whether an operation may keep what it is given, in a variable, a table, a file, in Python.

    Guarantee: True for every operation that TensorFlow calls stateful, or that takes a reference to
    a variable, but those that are known to keep nothing and those that draw random numbers, which
    `random_ops` replaces or refuses.

    Args:
        op_type: an operation's type; one that TensorFlow does not know may keep anything.

    Example:

    >>> may_keep("ResourceStridedSliceAssign"), may_keep("ReadVariableOp"), may_keep("MatMul")
    (True, False, False)
    """
    return hands_to_python(op_type) or (
        op_type not in _READS and not is_random(op_type) and is_stateful(op_type)
    )
