"""Selection of layers and parameters by path pattern, such as `stage1_block*`."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from flax import nnx

from jaxtrain.errors import UserError, nearest
from jaxtrain.models.base import Model

# Pattern for the layers of the backbone. In classifiers these are all layers except the
# head: the last piece, or the last linear layer of a plain Flax module.
BACKBONE = "backbone"


def layer_paths(model: Model) -> list[str]:
    """Paths of all layers, such as `stage1_block2/conv1`.

    Paths are in the order of the pieces, with each layer before its sublayers.
    """
    order = {name: i for i, piece in enumerate(model.pieces) for name in piece.names}
    modules = {tuple(map(str, path)) for path, _ in nnx.iter_modules(model)}
    # Layers of Linen modules appear as dicts of parameters.
    params = nnx.to_flat_state(nnx.state(model, nnx.Param))
    dicts = {tuple(map(str, path[:n])) for path, _ in params for n in range(len(path))}
    paths = [path for path in modules | dicts if path and path[0] in order]
    return ["/".join(path) for path in sorted(paths, key=lambda p: (order[p[0]], p))]


def find_layers(model: Model, field: str, pattern: str) -> frozenset[str]:
    """Return the paths of layers that match a pattern, and of their sublayers.

    Args:
      field: Config field of the pattern, for messages.
      pattern: `backbone`, or a shell-style pattern, in which `*` also matches `/`.

    Raises:
      UserError: No layer with parameters matches.
    """
    paths = layer_paths(model)
    if pattern == BACKBONE:
        try:
            backbone = frozenset(model.backbone_layers)
        except UserError as error:
            raise UserError(f"{field} = {pattern!r}: {error}") from None
        found = [path for path in paths if not backbone.isdisjoint(_within(path))]
    else:
        found = [p for p in paths if any(fnmatchcase(q, pattern) for q in _within(p))]
    params = nnx.to_flat_state(nnx.state(model, nnx.Param))
    if not any("/".join(map(str, path[:-1])) in found for path, _ in params):
        tops = [path for path in paths if "/" not in path]
        tops.append(BACKBONE)
        raise UserError(
            f"{field}: {pattern!r} matches no layer with parameters; set a pattern "
            f"that matches {', '.join(tops)}, or sublayers, such as "
            f"{_example(paths)}{nearest(pattern, [*tops, *paths], num=3)}"
        )
    return frozenset(found)


def find_params(model: Model, field: str, pattern: str) -> list[str]:
    """Return the paths of parameters that match a pattern or are in a matching layer.

    Args:
      field: Config field of the pattern, for messages.
      pattern: Pattern of layers, as in `find_layers`, or of full parameter paths,
        such as `*/bias`.

    Raises:
      UserError: No parameter matches.
    """
    params = nnx.to_flat_state(nnx.state(model, nnx.Param))
    names = ["/".join(map(str, path)) for path, _ in params]
    found = [n for n in names if any(fnmatchcase(q, pattern) for q in _within(n))]
    if found:
        return found
    layers = find_layers(model, field, pattern)
    return [name for name in names if name.rpartition("/")[0] in layers]


def _within(path: str) -> Iterable[str]:
    """Yield the parents of a path, outermost first, then the path itself."""
    parts = path.split("/")
    return ("/".join(parts[:n]) for n in range(1, len(parts) + 1))


def _example(paths: list[str]) -> str:
    return next((path for path in paths if "/" in path), paths[0])
