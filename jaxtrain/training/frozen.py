"""Layers that are not trained: what a step leaves out of its gradients."""

from dataclasses import dataclass
from typing import Any

from flax import nnx


@dataclass(frozen=True)
class Frozen:
    """Layers that stay as they are, and compute as in an evaluation.

    So their batch norms use the running statistics, and nothing in them is random.

    Attributes:
      layers: their paths, such as `stage1_block2/conv1`, with those of all within them.
    """

    layers: frozenset[str] = frozenset()

    def part(self, tree: Any) -> tuple[Any, Any]:
        """Return what is trained of a tree of arrays by their paths, and the rest.

        Each is such a tree, without the layers that it has nothing of.
        """
        if not self.layers:
            return tree, {}
        return self._select(tree, False, ()), self._select(tree, True, ())

    def switch(self, model: nnx.Module) -> None:
        """Have the layers of a model in training compute as in an evaluation."""
        if self.layers:
            for path, module in nnx.iter_modules(model):
                if "/".join(map(str, path)) in self.layers:
                    module.eval()

    def _select(self, tree: Any, frozen: bool, path: tuple[str, ...]) -> Any:
        if "/".join(path) in self.layers:
            return tree if frozen else {}
        chosen = {}
        for name, node in tree.items():
            if isinstance(node, dict):
                part = self._select(node, frozen, (*path, str(name)))
                chosen |= {name: part} if part else {}
            elif not frozen:
                chosen[name] = node
        return chosen


# What a run has frozen that trains all of its layers.
NOTHING = Frozen()


def merge(one: Any, other: Any) -> Any:
    """Put together two trees that `part` has made of one."""
    if not isinstance(one, dict):
        return one
    merged = {**other, **one}
    for name in one.keys() & other.keys():
        merged[name] = merge(one[name], other[name])
    return merged
