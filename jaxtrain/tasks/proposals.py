"""Interface of tasks that can be proposed for new data sets."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

# Proposed values: config section -> field -> (value, reason).
Advice = dict[str, dict[str, tuple[Any, str]]]


@runtime_checkable
class Proposable(Protocol):
    """Protocol of task classes that can be proposed for a data set."""

    def suits(self, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        """Whether to propose this task for a data set.

        Args:
          facts: Metadata of the data set (`Store.facts`).
          groups: Strata of the training examples, usually classes (`Store.strata`).
        """
        ...

    def advice(self, class_counts: np.ndarray) -> Advice:
        """Config values to propose for a new data set, with reasons.

        Args:
          class_counts: Number of training examples of each non-empty class or label,
            (C,).
        """
        ...
