"""Tasks that are proposed for data that nobody has trained on yet."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

# Section of the config -> its fields -> value, and why it is what it is.
Advice = dict[str, dict[str, tuple[Any, str]]]


@runtime_checkable
class Proposable(Protocol):
    """Class of tasks that says which data sets it suits."""

    def suits(self, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        """Whether to propose this task for a data set.

        Args:
          facts: What the data set says of itself (`Store.facts`).
          groups: Groups of the training examples (`Store.strata`).
        """
        ...

    def advice(self, class_counts: np.ndarray) -> Advice:
        """Return what a recipe for a data set that nobody has trained on yet sets.

        Args:
          class_counts: Training examples of each class, or label, that has any, (C,).
        """
        ...
