"""Relatives of the ResNet: widths, stochastic depth, and what options change."""

from typing import Any

import jax
import jmp
import numpy as np
import pytest
from flax import nnx

from jaxtrain.models import MODELS
from jaxtrain.models.layers import Layers
from jaxtrain.models.preact_resnet import WideBlock, WideResNet
from jaxtrain.models.regnet import RegNet
from jaxtrain.models.residual import ResidualBlock
from jaxtrain.models.resnet import ResNet

FP32 = jmp.get_policy("params=float32,compute=float32,output=float32")


class Wide(WideResNet):
    depth, widening = 16, 8


class Short(RegNet):
    depth, w_0, w_a, w_m = 4, 16, 8.0, 2.0
    group_width = 24


def create(model: type[ResNet], size: int = 32, **options: Any) -> Any:
    def make() -> ResNet:
        layers = Layers(policy=FP32, rngs=nnx.Rngs(0))
        return model((size, size, 3), 10, layers=layers, **options)

    return nnx.eval_shape(make)


def blocks(model: Any) -> list[Any]:
    layers = [getattr(model, piece.names[0]) for piece in model.pieces]
    return [layer for layer in layers if isinstance(layer, ResidualBlock)]


@pytest.mark.parametrize("model", [MODELS["resnet18"], Wide])
def test_drop_path_rises_from_0_to_its_rate(model: type[ResNet]) -> None:
    rates = [b.drop_path.rate for b in blocks(create(model, drop_path=0.3))]
    np.testing.assert_allclose(rates, np.linspace(0, 0.3, len(rates)), atol=1e-12)
    assert {b.drop_path.rate for b in blocks(create(model))} == {0}


def test_wide_resnet_drops_between_the_convolutions() -> None:
    model = create(Wide, dropout=0.3)
    assert {block.dropout.rate for block in blocks(model)} == {0.3}
    assert all(isinstance(block, WideBlock) for block in blocks(model))
    assert model.head.dropout.rate == 0
    # 11.0 million of WRN-16-8 in table 5 of the paper.
    params = jax.tree.leaves(nnx.state(model, nnx.Param))
    assert round(sum(x.size for x in params) / 1e6, 1) == 11.0


def test_groups_and_multiples_survive_any_width() -> None:
    for width in (0.01, 1.7):
        for block in blocks(create(Short, width=width)):
            conv = block.conv2
            assert conv.out_features % conv.feature_group_count == 0
            per_group = conv.out_features // conv.feature_group_count
            assert per_group == min(24, conv.out_features)
