"""The formulas of the papers in numpy, float64, one line each; no code of the package."""

import numpy as np


def matrices(gradients, rows, columns):
    """`(b, *shape)` to `(b, m, n)`: the axes of a variable that make the rows and the columns."""
    gradients = np.asarray(gradients, np.float64)
    size = len(gradients)
    axes = [0, *(1 + axis for axis in rows), *(1 + axis for axis in columns)]
    m = int(np.prod([gradients.shape[1 + axis] for axis in rows]))
    return np.transpose(gradients, axes).reshape(size, m, -1)


def variable(matrix, shape, rows, columns):
    """The inverse of `matrices`, for one matrix."""
    order = [*rows, *columns]
    tensor = np.asarray(matrix).reshape([shape[axis] for axis in order])
    return np.transpose(tensor, np.argsort(order))


def projection(g, left, right):
    """RGP: `G - (I - L L^T) G (I - R^T R)`."""
    m, n = g.shape
    return g - (np.eye(m) - left @ left.T) @ g @ (np.eye(n) - right.T @ right)


def reconstruction(d_left, d_right, left, right):
    """RGP, Equation 3, with `dL` transposed as it is released: `dL R + L dR - L L^T dL R`."""
    return d_left.T @ right + left @ d_right - left @ left.T @ d_left.T @ right


def leading_projection(g, rank):
    """`U U^T G` with the `rank` leading left singular vectors."""
    u = np.linalg.svd(g)[0][:, :rank]
    return u @ u.T @ g


def frozen(scores, sparsity):
    """Positions of the `floor(sparsity * s)` smallest of different scores."""
    return set(np.argsort(scores)[: int(np.floor(sparsity * len(scores)))].tolist())


def float64(tensors):
    return [np.asarray(tensor, np.float64) for tensor in tensors]
