"""Opening of the data set selected by `data.source`."""

import os

from jaxtrain import own
from jaxtrain.config import DataConfig
from jaxtrain.data import SOURCES, forms, is_path, layouts
from jaxtrain.data.classes import may_be_one
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.data.stores import Opened
from jaxtrain.data.target_transform import transform_of
from jaxtrain.data.unlabelled import set_aside
from jaxtrain.errors import UserError, nearest
from jaxtrain.registry import call_own


def open_store(config: DataConfig, *, to_train: bool = True) -> Opened:
    """Open the store of `data.source`; return it with the indices of its splits.

    Args:
      config: Data section of the config.
      to_train: Whether a model will be trained, which needs at least two classes.

    Raises:
      UserError: The source is unknown, or cannot be opened.
    """
    if own.is_own(config.source):
        return _open_custom(config)
    kind, _, name = config.source.partition(":")
    known = forms()
    if kind not in known:
        if (meant := layouts.guess(config.source)) is not None:
            raise UserError(
                f"data.source = {config.source!r} has no source type: write {meant}"
            )
        raise _unknown(config.source, kind)
    form = known[kind]
    # The sources `synthetic` and `tfds` check `name` themselves.
    if kind not in ("synthetic", "tfds") and bool(name) != (":" in form):
        raise UserError(f"data.source = {config.source!r}: expected {form}")
    if is_path(form) and not os.path.lexists(os.path.expanduser(name)):
        raise UserError(
            f"data.source = {config.source!r} does not exist (relative to "
            f"{os.getcwd()}): correct the path"
        )
    if config.options:
        raise UserError(
            f"data.options = {config.options!r} has no effect: data.source = "
            f"{config.source!r} is not a custom source; leave data.options out"
        )
    with may_be_one(not to_train):
        opened = SOURCES[form](name, config)
    if config.classes is not None and PIXEL_CLASSES not in opened[0].facts:
        raise UserError(
            f"data.classes = {config.classes!r} has no effect: {config.source} has no "
            "masks; leave data.classes out"
        )
    if config.boxes_drawn_on is not None and transform_of(opened[0]) is None:
        raise UserError(
            f"data.boxes_drawn_on = {config.boxes_drawn_on!r} has no effect: "
            f"{config.source} has neither boxes nor masks; leave data.boxes_drawn_on "
            "out"
        )
    return set_aside(config, *opened)


def complete(text: str) -> str:
    """Prefix a path with the guessed source type, if any, as in `folder:photos`."""
    known = text.partition(":")[0] in forms() or own.is_own(text)
    return text if known else layouts.guess(text) or text


def _unknown(source: str, kind: str) -> UserError:
    near, where = nearest(kind, forms()), f"relative to {os.getcwd()}"
    named = not near and (":" not in source or os.sep in kind)
    if named and os.path.exists(os.path.expanduser(source)):
        known = ", ".join(layouts.kinds_by_ending())
        return UserError(
            f"data.source = {source!r} is not a file of a supported type ({known}): "
            "give a folder of images, or unpack the file"
        )
    ending = os.path.splitext(source)[1].lower()
    if named and (os.sep in source or ending in layouts.kinds_by_ending()):
        return UserError(
            f"data.source = {source!r} does not exist ({where}): correct the path"
        )
    there = (
        f" does not exist ({where}), and is not another source type" if named else ""
    )
    return UserError(
        f"data.source = {source!r}{there}: expected {', '.join(SOURCES)} or "
        f"{own.FORMS}{near}"
    )


def _open_custom(config: DataConfig) -> Opened:
    function = own.load("data.source", config.source)
    opened = call_own("data.source", config.source, function, **config.options)
    if not (isinstance(opened, tuple) and len(opened) == 2):
        raise UserError(
            f"data.source = {config.source!r}: the function returned "
            f"{type(opened).__name__}; return a store and the indices of the splits "
            "(docs/extending.md)"
        )
    return opened
