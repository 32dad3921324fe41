"""Backbones at several strides, and the U-Net over them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain import own
from jaxtrain.errors import UserError
from jaxtrain.models import CLASSIFIERS
from jaxtrain.models.base import Model
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.segmentation.dense import DenseModel, doubled, resized
from jaxtrain.training import precision
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path
from tests.helpers.by_means import by_means
from tests.helpers.map_models import CLASSES, blueprint, outputs_of
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned

HERE = "tests.plugins.segmentation.test_dense"
own.allow([f"{HERE}:Flat", f"{HERE}:Striding", f"{HERE}:nothing"])
# Of each kind of stem one; the others are left to the slow half.
QUICK = ["lenet", "convnet", "resnet18", "vgg11", "whitened_cnn"]


class Flat(Model):
    """A classifier that looks at no rows and columns."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        head = Head(int(np.prod(image_shape)), num_outputs, 0.0, layers=layers)
        self.add_piece(_flat, head=head)


def _flat(head: Head, x: jax.Array, rngs: Any) -> jax.Array:
    return head(x.reshape(len(x), -1), rngs)


class Striding(Model):
    """A third of the image, and then two."""

    stride = 6

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        conv = layers.conv(image_shape[2], 4, 3, stride=3)
        self.add_piece(_conv, thirds=conv)
        self.add_piece(_conv, halves=layers.conv(4, 6, 3, stride=2))
        self.add_piece(mean_head, head=Head(6, num_outputs, 0.0, layers=layers))


def _conv(conv: nnx.Conv, x: jax.Array, rngs: Any) -> jax.Array:
    return conv(x)


nothing = 3


def shapes_of(model: Model) -> dict[str, tuple[int, ...]]:
    return {p: x.shape for p, x in by_path(split_model(model)[1:]).items()}


def check_over(name: str) -> None:
    size = max(33, CLASSIFIERS[name].min_size)
    made = blueprint(size, backbone=name)
    model = made.abstract()
    assert outputs_of(made, model).shape == (2, size, size + 2, CLASSES)
    # The arrays of the classifier, but for those of the pieces that end it.
    backbone = made.backbone
    assert backbone is not None and backbone.config.name == name
    classifier = backbone.abstract()
    found, whole = shapes_of(model), shapes_of(classifier)
    own = {p: x for p, x in found.items() if p.split("/")[1] in model.backbone_layers}
    assert own and all(whole[path] == shape for path, shape in own.items())
    left_out = {path.split("/")[1] for path in whole.keys() - own.keys()}
    known = ("head", "head_norm", "dense", "dense1", "dense2", "linear", "aux")
    assert all(name.startswith(known) for name in left_out)
    # The last block of the decoder has the size of the image.
    assert model.pieces[-2].names == ("up1",)
    assert (model.stride, model.min_size) == (classifier.stride, classifier.min_size)


@pytest.mark.slow
@each_row("name", QUICK)
def test_a_unet_over_a_classifier(name: str):
    check_over(name)


@pytest.mark.parametrize(
    "name", thinned(16, [name for name in CLASSIFIERS if name not in QUICK])
)
def test_a_unet_over_any_classifier(name: str):
    check_over(name)


class Levels(DenseModel):
    """What it is given of a backbone."""

    def __init__(self, name: str, size: int, **options: Any):
        layers = Layers(policy=precision.parse("fp32"), rngs=nnx.Rngs(0))
        self.levels = self.add_backbone(name, (size, size, 3), layers, **options)


# Stride and channels of each level: of a ResNet, the inputs of the blocks that stride.
LEVELS = {
    "resnet18": [(4, 64), (8, 128), (16, 256), (32, 512)],
    # The joined features of all layers of a block; the last norm follows them.
    "densenet121": [(4, 256), (8, 512), (16, 1024), (32, 1024)],
    # Convolutions without padding make no level, though they leave out rows.
    "inception_v3": [(2, 32), (4, 80), (8, 288), (16, 768), (32, 2048)],
    "convnext_tiny": [(4, 96), (8, 192), (16, 384), (32, 768)],
}


@pytest.mark.slow
@each_row("name", LEVELS)
def test_levels(name: str):
    model = nnx.eval_shape(lambda: Levels(name, 80 if name == "inception_v3" else 64))
    assert [tuple(level) for level in model.levels] == LEVELS[name]


def test_features_of_a_small_stem_begin_at_the_size_of_the_image():
    model = nnx.eval_shape(lambda: Levels("resnet18", 32, stem="cifar"))
    assert [tuple(x) for x in model.levels] == [(1, 64), (2, 128), (4, 256), (8, 512)]
    wanted = {"stage3_block1"}
    model = nnx.eval_shape(lambda: Levels("resnet18", 32, keep=wanted))
    assert [tuple(level) for level in model.levels] == [(8, 128), (32, 512)]


def test_what_a_model_consists_of_does_not_depend_on_the_image():
    """Of a few pixels a stride leaves nothing to see."""
    small, large = (shapes_of(blueprint(size).abstract()) for size in (2, 129))
    assert small == large


@each_row(
    ("options", "message"),
    [
        ({"backbone": "resnet_18"}, "model.backbone = 'resnet_18'.*resnet18"),
        ({"backbone": f"{HERE}:Flat"}, "Flat' has no spatial features"),
        ({"backbone": f"{HERE}:nothing"}, "is 3: expected a subclass of"),
        (
            {"backbone": "lenet", "width": 0.5},
            "model.width = 0.5 has no effect on model.backbone = 'lenet'",
        ),
        ({"padding": "same"}, "model.padding = 'same' has no effect on .* 'resnet18'"),
    ],
)
def test_what_cannot_be_a_backbone_is_refused(options: Any, message: str):
    with pytest.raises(UserError, match=message):
        blueprint(**options).abstract()


def test_strides_may_be_any():
    made = blueprint(23, backbone=f"{HERE}:Striding")
    model = made.abstract()
    assert outputs_of(made, model).shape == (2, 23, 25, CLASSES)
    assert [p.names for p in model.pieces[2:]] == [("up3",), ("up1",), ("head",)]


@each_row("size", [(6, 8), (5, 7), (5, 8), (9, 3)])
def test_doubled(size: tuple[int, int]):
    """As PyTorch's nearest neighbours; of what does not fit, linear means."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 2)).astype(np.float32)
    rows, columns = (np.arange(n) * m // n for n, m in zip(size, (3, 4), strict=True))
    expected = x[:, rows][:, :, columns]
    if size == (9, 3):
        expected = by_means(np.repeat(np.repeat(x, 2, 1), 2, 2), size)
    np.testing.assert_allclose(doubled(jnp.asarray(x), size), expected, atol=1e-6)


@each_row("size", [(7, 9), (2, 11), (3, 4)])
def test_resized(size: tuple[int, int]):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 2)).astype(np.float32)
    found = resized(jnp.asarray(x), size)
    np.testing.assert_allclose(found, by_means(x, size), atol=1e-6)


def test_the_model_of_the_page(tmp_path: Path):
    """It puts out maps, and begins with a classifier that an option names."""
    page = (ROOT / "docs" / "segmentation-models.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    path = tmp_path / "my_maps.py"
    path.write_text(code)
    name = f"{path}:Joined"
    own.allow([name])
    made = blueprint(name=name, backbone="convnet", width=0.1)
    assert (
        made.backbone is not None and made.backbone.config.arguments()["width"] == 0.1
    )
    assert outputs_of(made, made.abstract()).shape == (2, 33, 35, CLASSES)
