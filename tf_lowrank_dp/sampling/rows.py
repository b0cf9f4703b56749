"""Rows of user data: nested structures of arrays whose first axis counts the examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy import sparse

from tf_lowrank_dp.sampling.one_dtype import dtypes_without_missing

SCALARS = (str, bytes, bool, int, float, np.generic)


def to_rows(data: Any, name: str) -> Any:
    """Turns user data into a nested structure of numpy arrays, without copying arrays.

    Arrays, tensors and everything with `__array__` become arrays. A list that holds only scalars
    or strings, at any depth, is one array; a tuple of scalars or strings is one array as well. Any
    other list or tuple is a structure of several arrays and becomes a tuple (as in Keras), and
    mappings become dicts.  Sparse matrices stay sparse, as `scipy.sparse.csr_array`; batches of
    their rows are dense.

    Args:
        data: the user's data.
        name: what error messages call it, such as `"x"`.

    Returns:
        Structure of dicts, tuples and arrays `(n, ...)`.

    Raises:
        ValueError: a leaf is no array of rows, or its dtype has no TensorFlow equivalent.

    Example:

    >>> to_rows({"text": ["good", "bad"], "size": [1, 2]}, "x")["size"].tolist()
    [1, 2]
    """
    if isinstance(data, Mapping) and not sparse.issparse(data):  # a `dok_matrix` is a dict
        return {key: to_rows(value, f"{name}[{key!r}]") for key, value in data.items()}
    if isinstance(data, list | tuple) and not _is_one_array(data):
        children = [to_rows(value, f"{name}[{i}]") for i, value in enumerate(data)]
        return type(data)(*children) if hasattr(data, "_fields") else tuple(children)
    return _to_array(data, name)


def as_array(data: Any) -> np.ndarray:
    """`np.asarray`, but of texts the objects: numpy's own would lose zeros at the end of bytes.

    Example:

    >>> as_array([b"ends in 0: \\0"]).tolist()
    [b'ends in 0: \\x00']
    """
    array = np.asarray(data)
    if array.dtype.kind in "SU" and not isinstance(data, np.ndarray):
        texts = np.array(data, dtype=object)
        if any(all(isinstance(text, kind) for text in texts.flat) for kind in (bytes, str)):
            return texts
    return array


def has_random_access(source: Any) -> bool:
    """Whether something gives records by index, but is neither an array nor a structure of such.

    Example:

    >>> has_random_access(range(3)), has_random_access(np.zeros(3)), has_random_access([0, 1])
    (True, False, False)
    """
    known = isinstance(source, list | tuple | Mapping | str | bytes) or sparse.issparse(source)
    is_array = hasattr(source, "__array__") or isinstance(source, tf.RaggedTensor | tf.SparseTensor)
    has_both = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return has_both and not known and not is_array


def _is_one_array(data: list | tuple) -> bool:
    """Whether a list or tuple holds the rows of one array (judged by its first element)."""
    if not data:
        return isinstance(data, list)
    first = data[0]
    if isinstance(first, SCALARS):
        return True
    return isinstance(data, list) and isinstance(first, list | tuple) and _is_scalars(first)


def _is_scalars(data: Any) -> bool:
    """Whether nested lists or tuples end in scalars (judged by the first elements)."""
    while isinstance(data, list | tuple):
        if not data:
            return True
        data = data[0]
    return isinstance(data, SCALARS)


def _to_array(data: Any, name: str) -> Any:
    if data is None:
        raise ValueError(f"Expected an array for `{name}`. Received: None. Leave this entry out.")
    if isinstance(data, tf.SparseTensor) and data.shape.rank == 2:
        indices = data.indices.numpy().T
        return sparse.csr_array((data.values.numpy(), tuple(indices)), shape=tuple(data.shape))
    if sparse.issparse(data):
        return _checked(sparse.csr_array(data), name)
    if isinstance(data, tf.RaggedTensor | tf.SparseTensor):
        raise ValueError(
            f"Expected an array with rows of one public shape for `{name}`. Received: "
            f"{type(data).__name__}, as long as its longest row. Convert it first: "
            "`.to_tensor(shape=(None, length))` with a length that you choose, or "
            "`tf.sparse.to_dense`."
        )
    if has_random_access(data):
        raise ValueError(
            f"Expected arrays for `{name}`. Received: {type(data).__name__}, which gives records "
            "by index. Pass tfdp.Records(source, map=...), which reads those that are drawn."
        )
    try:
        array = as_array(data)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected an array with one row per example for `{name}`. Received: a value of type "
            f"{type(data).__name__} that numpy cannot convert ({error}). Give every row the same "
            "shape, for example by padding sequences."
        ) from error
    if array.ndim == 0:
        raise ValueError(
            f"Expected an array with one row per example for `{name}`. Received: a value of type "
            f"{type(data).__name__} without rows. Pass arrays, tensors, lists, or dicts and tuples "
            "of these."
        )
    if array.dtype == object and not all(isinstance(v, str | bytes) for v in array.flat):
        raise ValueError(
            f"Expected numbers or strings in `{name}`. Received: an object array with other values "
            "(such as None, or rows of different lengths). Convert it to numbers, strings or one "
            "rectangular array."
        )
    _check_one_dtype(data, array, name)
    try:
        tensor_dtype(array.dtype)
    except TypeError as error:
        raise ValueError(
            f"Expected a dtype that TensorFlow knows for `{name}`. Received: {array.dtype}. "
            "Convert it to numbers or strings first."
        ) from error
    return array


def _checked(matrix: sparse.csr_array, name: str) -> sparse.csr_array:
    """The matrix, if scipy would write no entry into another row, as of columns that are none."""
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(
            f"Expected entries of the {matrix.shape[1]} columns of `{name}`. Received: a sparse "
            f"matrix with others ({error}). Leave them out, as words of no vocabulary."
        ) from error
    return matrix


def _check_one_dtype(data: Any, array: np.ndarray, name: str) -> None:
    """Refuses data in which one row decides the dtype of the others."""
    dtypes = dtypes_without_missing(data, array)
    if isinstance(data, list | tuple):
        dtypes.update(np.asarray(row).dtype for row in data)
    found = {"text" if dtype.kind in "USO" else dtype.name for dtype in dtypes}
    if len(found) > 1:
        raise ValueError(
            f"Expected rows of one dtype for `{name}`. Received: {', '.join(sorted(found))}, of "
            "which numpy makes one for all, so that one example would change the others. Pass an "
            "array of a dtype that you choose, such as np.array(rows, 'float32'), and replace "
            "missing values by one that you choose."
        )


def batch_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in a batch, in the machine's order: float64 becomes `keras.config.floatx()`.

    Example:

    >>> import numpy as np
    >>> batch_dtype(np.dtype("float64")).name, batch_dtype(np.dtype("int64")).name
    ('float32', 'int64')
    """
    native = dtype.newbyteorder("=")
    return np.dtype(floatx_type()) if native == np.float64 else native


def floatx_type() -> Any:
    """The numpy type of `keras.config.floatx()` (bfloat16 included)."""
    return tf.as_dtype(keras.config.floatx()).as_numpy_dtype


def tensor_dtype(dtype: np.dtype) -> tf.DType:
    """The TensorFlow dtype of an array in a batch; strings become `tf.string`.

    Raises:
        TypeError: TensorFlow has no such dtype.

    Example:

    >>> import numpy as np
    >>> tensor_dtype(np.dtype("<U5")).name
    'string'
    """
    return tf.string if dtype.kind in "OUS" else tf.as_dtype(batch_dtype(dtype))


def row_spec(array: np.ndarray) -> tf.TensorSpec:
    """The spec of a batch of rows of `array`: unknown batch size, other axes static.

    Example:

    >>> import numpy as np
    >>> row_spec(np.zeros((5, 3))).shape.as_list()
    [None, 3]
    """
    return tf.TensorSpec((None, *array.shape[1:]), tensor_dtype(array.dtype))


def take_rows(array: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """A copy of some rows in the dtype of a batch.

    Args:
        array: `(n, ...)`, any dtype.
        indices: integers `(b,)`.

    Returns:
        `(b, ...)` with dtype `batch_dtype(array.dtype)`.

    Example:

    >>> import numpy as np
    >>> take_rows(np.array([10, 20, 30]), np.array([0, 2])).tolist()
    [10, 30]
    """
    found = array[indices]
    if sparse.issparse(found):
        found = found.toarray()
    return found.astype(batch_dtype(array.dtype), copy=False)


def count_rows(structure: Any) -> int:
    """The number of rows that all arrays of a structure share.

    Args:
        structure: nested structure of numpy arrays; the keys of the outer dict name the arrays in
            error messages.

    Returns:
        The number of rows, at least 1.

    Raises:
        ValueError: there are no arrays, no rows, or different numbers of rows.

    Example:

    >>> import numpy as np
    >>> count_rows({"x": np.zeros((4, 2)), "y": np.zeros(4)})
    4
    """
    count = check_equal_rows(structure)
    if count == 0:
        raise ValueError(
            "Expected at least one example. Received: arrays with 0 rows. Pass data with rows."
        )
    return count


def check_equal_rows(structure: Any) -> int:
    """As `count_rows`, but no rows at all are fine.

    Example:

    >>> import numpy as np
    >>> check_equal_rows({"x": np.zeros((0, 2))})
    0
    """
    counts = dict(_named_rows(structure, ""))
    if not counts:
        raise ValueError("Expected at least one array of examples. Received: an empty structure.")
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ValueError(
            "Expected every array to have the same number of rows, one per example. "
            f"Received rows: {listing}. Pass arrays of equal length."
        )
    return next(iter(counts.values()))


def _named_rows(structure: Any, name: str) -> Iterator[tuple[str, int]]:
    if isinstance(structure, Mapping):
        for key, value in structure.items():
            yield from _named_rows(value, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(structure, tuple):
        for i, value in enumerate(structure):
            yield from _named_rows(value, f"{name}[{i}]")
    else:
        yield name, structure.shape[0]
