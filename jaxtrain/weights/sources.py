"""Models of timm and torchvision that are equivalent to jaxtrain models."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from jaxtrain.config import ModelConfig
from jaxtrain.config.model import MODELS as MODEL_PARTS
from jaxtrain.config.part import make_part
from jaxtrain.models import MODELS, lasting_options
from jaxtrain.plugin import Table
from jaxtrain.weights import families
from jaxtrain.weights.names import ArrayNames, Library

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class WeightsSource(NamedTuple):
    """A model of another library that is equivalent to one of ours.

    Attributes:
      library: Name of the library.
      architecture: Name of the model in the library.
      names: Names of the arrays in the library.
      options: Non-default options of our model that make it equivalent.
      auxiliary: Arguments of the library's model that enable its auxiliary heads, if
        the heads are disabled by default.
      image_size: Height and width of the training images, in pixels.
      max_size: Maximum image side for which the models are equivalent. None means any.
      crop_pct: Ratio of the centre-crop size to the shorter image side in evaluation.
      interpolation: Interpolation of resizing in evaluation.
      mean: Mean of each channel, in 0..1.
      std: Standard deviation of each channel, in 0..1.
      task: Task that the model was trained for.
      labels: Class names; unused for weight files with another number of outputs.
    """

    library: Library
    architecture: str
    names: ArrayNames
    options: Mapping[str, Any] = {}
    auxiliary: Mapping[str, object] = {}
    image_size: int = 224
    max_size: int | None = None
    crop_pct: float = 0.875
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    task: str = "classification"
    labels: tuple[str, ...] = ()

    def takes(self, image_shape: tuple[int, int, int]) -> bool:
        """Whether the model is equivalent to ours for an image shape (H, W, C)."""
        return self.max_size is None or max(image_shape[:2]) <= self.max_size


Sources = tuple[WeightsSource, ...]


_timm = partial(WeightsSource, "timm")
_torchvision = partial(WeightsSource, "torchvision")


def _both(architecture: str, names: ArrayNames) -> Sources:
    return _timm(architecture, names), _torchvision(architecture, names)


def _vgg(name: str) -> Sources:
    model: Any = MODELS[name]
    return (
        # For larger images, timm applies the dense layers as convolutions; torchvision
        # and jaxtrain pool to 7x7.
        _timm(name, families.timm_vgg(model), max_size=255),
        _torchvision(name, families.torchvision_vgg(model)),
    )


# Options, and normalization to -1..1, of weights ported from TensorFlow. torchvision
# converts from ImageNet normalization inside the model (`transform_input`).
_TF = {"padding": "same", "norm_epsilon": 1e-3}
_HALF: dict[str, Any] = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def _inverted(
    library: Library, ours: str, architecture: str, **fields: Any
) -> WeightsSource:
    model: Any = MODELS[ours]
    names = (
        families.timm_inverted if library == "timm" else families.torchvision_inverted
    )
    return WeightsSource(library, architecture, names(model), **fields)


def _mobilenet_v2() -> Sources:
    ours = "mobilenet_v2"
    widths = {"100": 1.0, "035": 0.35, "050": 0.5, "075": 0.75, "140": 1.4}
    timm = (
        _inverted("timm", ours, f"mobilenetv2_{name}", options={"width": width})
        for name, width in widths.items()
    )
    return (*timm, _inverted("torchvision", ours, ours))


def _mobilenet_v3(size: str) -> Sources:
    ours, theirs = f"mobilenet_v3_{size}", f"mobilenetv3_{size}"
    return (
        _inverted("timm", ours, f"{theirs}_100"),
        _inverted("timm", ours, f"{theirs}_075", options={"width": 0.75}),
        _inverted("timm", ours, f"tf_{theirs}_100", options=_TF),
        _inverted("timm", ours, f"tf_{theirs}_075", options={"width": 0.75, **_TF}),
        _inverted("torchvision", ours, ours, options={"norm_epsilon": 1e-3}),
    )


def _efficientnet(name: str, size: int, resize: int) -> Sources:
    fields = {"crop_pct": size / resize, "interpolation": "bicubic"}
    return (
        _inverted("timm", name, name),
        _inverted("timm", name, f"tf_{name}", options=_TF),
        _inverted("torchvision", name, name, image_size=size, **fields),
    )


def _efficientnet_v2_s() -> Sources:
    ours, theirs = "efficientnet_v2_s", "efficientnetv2_s"
    return (
        _inverted("timm", ours, theirs, options={"norm_epsilon": 1e-5}),
        _inverted("timm", ours, f"tf_{theirs}", options=_TF),
        _inverted("torchvision", ours, ours, image_size=384, crop_pct=1.0),
    )


def _convnext(name: str, resize: int) -> Sources:
    return (
        _timm(name, families.TIMM_CONVNEXT),
        _torchvision(name, families.TORCHVISION_CONVNEXT, crop_pct=224 / resize),
    )


_RESNETS = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    *("wide_resnet50_2", "resnext50_32x4d"),
)
_INCEPTION_V3: dict[str, Any] = {"image_size": 299, **_HALF}

# Preprocessing parameters are from torchvision's V1 weights, as torchvision's files
# lack them. Directories in timm's format contain the parameters.
SOURCES: dict[str, Sources] = {
    **{name: _both(name, families.RESNET) for name in _RESNETS},
    "resnet18d": (_timm("resnet18d", families.RESNET_D),),
    "resnet50d": (_timm("resnet50d", families.RESNET_D),),
    "seresnet18": (_timm("seresnet18", families.SE_RESNET),),
    "seresnet50": (_timm("seresnet50", families.SE_RESNET),),
    "preact_resnet18": (_timm("resnetv2_18", families.PREACT_RESNET),),
    "preact_resnet50": (_timm("resnetv2_50", families.PREACT_RESNET),),
    "regnet_y_3_2gf": (
        _timm("regnety_032", families.TIMM_REGNET),
        _torchvision("regnet_y_3_2gf", families.TORCHVISION_REGNET),
    ),
    "regnet_y_4gf": (_timm("regnety_040", families.TIMM_REGNET),),
    "regnet_y_8gf": (
        _timm("regnety_080_tv", families.TIMM_REGNET),
        _torchvision("regnet_y_8gf", families.TORCHVISION_REGNET),
    ),
    "regnet_y_8gf_paper": (_timm("regnety_080", families.TIMM_REGNET),),
    **{name: _vgg(name) for name in MODELS if name.startswith("vgg")},
    "googlenet": (_torchvision("googlenet", families.GOOGLENET, **_HALF),),
    "inception_v3": (
        # timm omits the auxiliary head by default.
        _timm(
            *("inception_v3", families.INCEPTION_V3),
            options={"aux_weight": 0.0},
            auxiliary={"aux_logits": True},
            interpolation="bicubic",
            **_INCEPTION_V3,
        ),
        _torchvision(
            *("inception_v3", families.INCEPTION_V3),
            crop_pct=299 / 342,
            **_INCEPTION_V3,
        ),
    ),
    "densenet121": _both("densenet121", families.DENSENET),
    "mobilenet_v2": _mobilenet_v2(),
    "mobilenet_v3_small": _mobilenet_v3("small"),
    "mobilenet_v3_large": _mobilenet_v3("large"),
    "efficientnet_b0": _efficientnet("efficientnet_b0", 224, 256),
    "efficientnet_b1": _efficientnet("efficientnet_b1", 240, 256),
    "efficientnet_b2": _efficientnet("efficientnet_b2", 288, 288),
    "efficientnet_b3": _efficientnet("efficientnet_b3", 300, 320),
    "efficientnet_b4": _efficientnet("efficientnet_b4", 380, 384),
    "efficientnet_v2_s": _efficientnet_v2_s(),
    "convnext_tiny": _convnext("convnext_tiny", 236),
    "convnext_small": _convnext("convnext_small", 230),
    "convnext_base": _convnext("convnext_base", 232),
}
# Name of a plug-in's model -> its equivalents in other libraries.
WEIGHTS: Table[Sources] = Table("weights", {})


def sources_of(model: str) -> Sources:
    """Return the equivalents of a jaxtrain model in other libraries."""
    return SOURCES.get(model) or WEIGHTS.get(model, ())


def all_sources() -> dict[str, Sources]:
    """Return the equivalents in other libraries, by jaxtrain model name."""
    return {**SOURCES, **WEIGHTS}


def find(
    library: Library, config: ModelConfig, image_shape: tuple[int, int, int]
) -> WeightsSource | None:
    """Return a library's equivalent of a model, or None.

    Args:
      library: Library to search.
      config: Architecture of our model.
      image_shape: Height, width and channels of the images.
    """
    if config.transform is not None or config.channels:
        return None
    for source in sources_of(config.name):
        equivalent = make_part(MODEL_PARTS, config.name, source.options)
        same = lasting_options(config) == lasting_options(equivalent)
        if source.library == library and same:
            return source if source.takes(image_shape) else None
    return None
