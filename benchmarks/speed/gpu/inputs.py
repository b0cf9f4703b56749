"""What a program is called with, made from a description and a seed.

Beside `run.py` on the machine with the GPU: imports nothing but NumPy.
"""

import numpy as np


def described(value: np.ndarray) -> dict[str, object]:
    """A description from which `made` makes numbers of the same kind, of a few bytes.

    What is short, such as tables of positions, keys and counters, is described as it is.
    """
    value = np.asarray(value)
    found: dict[str, object] = {"shape": list(value.shape), "dtype": value.dtype.name}
    if value.size and np.all(value == value.flat[0]):
        return found | {"kind": "constant", "value": value.flat[0].item()}
    if value.size <= 4096 and np.issubdtype(value.dtype, np.integer):
        return found | {"kind": "values", "value": value.reshape(-1).tolist()}
    if np.issubdtype(value.dtype, np.integer):
        return found | {"kind": "integers", "high": int(min(value.max(), 2**31)) + 1}
    values = value.astype(np.float64)
    return found | {"kind": "normal", "mean": float(values.mean()), "std": float(values.std())}


def made(description: dict, seed: int) -> np.ndarray:
    """The numbers: as they were, or drawn anew, the same on every machine."""
    shape, dtype = tuple(description["shape"]), np.dtype(_name(description["dtype"]))
    if description["kind"] == "constant":
        return np.full(shape, description["value"], dtype)
    if description["kind"] == "values":
        return np.asarray(description["value"], dtype).reshape(shape)
    generator = np.random.default_rng(seed)
    if description["kind"] == "integers":
        return generator.integers(0, description["high"], shape).astype(dtype)
    values = generator.standard_normal(shape, dtype=np.float32)
    return (description["mean"] + description["std"] * values).astype(dtype)


def _name(dtype: str) -> str:
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: F401  (registers the name with NumPy; JAX and TensorFlow have it)
    return dtype
