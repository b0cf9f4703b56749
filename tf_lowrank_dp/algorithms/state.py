"""What an algorithm keeps between steps, training runs and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.per_example.parameter import Parameter


class AlgorithmState:
    """Variables by name, which an optimizer saves, loads and restores; none of them is private.

    A value that is replaced by one of the same shape stays the same variable, so steps that are
    compiled already read the new one.

    Example:

    >>> state = AlgorithmState()
    >>> state.keep("scale", np.float32([1.0, 2.0]))
    >>> state.names, state["scale"].numpy().tolist()
    (['scale'], [1.0, 2.0])
    """

    def __init__(self) -> None:
        self._variables: dict[str, tf.Variable] = {}
        # For the name of `keep_first`, paths of variables by the names of their values.
        self._paths: dict[str, dict[str, str]] = {}

    @property
    def names(self) -> list[str]:
        """Names of all values."""
        return list(self._variables)

    @property
    def weights(self) -> list[tf.Variable]:
        """The values that are no single numbers: copies of weights, bases and the like."""
        return [variable for variable in self._variables.values() if variable.shape.rank]

    def __contains__(self, name: str) -> bool:
        return name in self._variables

    def __getitem__(self, name: str) -> tf.Variable:
        return self._variables[name]

    def keep(self, name: str, value: np.ndarray | np.generic) -> None:
        """Keeps a value, instead of the one of this name.

        Args:
            name: key in saved files as well.
            value: of any shape; its dtype is kept.
        """
        known = self._variables.get(name)
        if known is not None and known.shape == value.shape and known.dtype == value.dtype:
            known.assign(value)
            return
        with tf.init_scope():
            self._variables[name] = tf.Variable(value, trainable=False)

    def keep_first(
        self,
        name: str,
        parameters: Mapping[int, Parameter],
        value: Callable[[Parameter], np.ndarray] = lambda parameter: np.array(parameter.variable),
    ) -> None:
        """Keeps a value of each variable, unless an earlier one is known.

        Values follow their variables, by path, when layers are frozen between two runs and
        positions change; those of variables that are left out are dropped then.

        Args:
            name: of all values; `name + str(position)` is that of each.
            parameters: by position among the trainable variables.
            value: float32 after a cast; the present value of the variable by default.
        """
        paths = {f"{name}{index}": parameter.path for index, parameter in parameters.items()}
        moved = {
            path: self._variables.pop(key)
            for key, path in self._paths.get(name, {}).items()
            if key in self._variables and paths.get(key) != path
        }
        self._paths[name] = paths
        for (key, path), parameter in zip(paths.items(), parameters.values(), strict=True):
            if path in moved:
                self._variables[key] = moved[path]
            first = np.asarray(value(parameter), np.float32)
            if key not in self or self[key].shape != first.shape:
                self.keep(key, first)

    def by_position(self, name: str) -> dict[int, tf.Variable]:
        """The values of `keep_first`, by the position of their variables."""
        positions = {key: key.removeprefix(name) for key in self._variables if key.startswith(name)}
        return {int(p): self[key] for key, p in positions.items() if p.isdecimal()}

    def save(self, store: MutableMapping[str, np.ndarray]) -> None:
        """Writes all values into a mapping, by their names."""
        for name, variable in self._variables.items():
            store[name] = variable.numpy()

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        """Keeps all values that were saved."""
        for name, value in values.items():
            self.keep(name, np.asarray(value))

    def copy(self) -> AlgorithmState:
        """The same values in variables of their own."""
        other = AlgorithmState()
        other.load({name: variable.numpy() for name, variable in self._variables.items()})
        other._paths = dict(self._paths)
        return other

    def restore_point(self) -> Callable[[], None]:
        """Returns a function that undoes all changes from now on."""
        values = {name: (v, v.numpy()) for name, v in self._variables.items()}
        paths = dict(self._paths)

        def restore() -> None:
            for variable, value in values.values():
                variable.assign(value)
            self._variables = {name: variable for name, (variable, _) in values.items()}
            self._paths = paths

        return restore
