"""Creation of regression losses and of readouts in the units of the data."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.regression import RegressionConfig
from jaxtrain.dtypes import widen
from jaxtrain.tasks.number_losses import (
    STD,
    GaussianLoss,
    NumberLoss,
    PointLoss,
    QuantileLoss,
)
from jaxtrain.tasks.ordinal_loss import OrdinalLoss
from jaxtrain.tasks.outputs import Readout

# Ratio of mean to standard deviation above which the mean is added to predictions in
# float64, because float32 rounding would exceed 1e-4 standard deviations.
FAR = 1e-4 * 2**24


def make_loss(
    options: RegressionConfig,
    mean: Sequence[float],
    std: Sequence[float],
    levels: Sequence[float] | None,
) -> NumberLoss:
    """Create the loss that the task options select.

    Args:
      options: Options of the task.
      mean: Mean of each column.
      std: Standard deviation of each column.
      levels: Levels of ordinal regression; None for other losses.
    """
    if options.loss == "gaussian":
        return GaussianLoss(options.of_loss("level"))
    if options.loss == "quantiles":
        return QuantileLoss(options.of_loss("quantiles"))
    if options.loss == "ordinal":
        assert levels is not None
        from_mean = np.array(levels) - np.array(mean)[:, None]
        return OrdinalLoss(from_mean / np.array(std)[:, None])
    return PointLoss(options.loss)


def make_readout(
    loss: NumberLoss, mean: Sequence[float], std: Sequence[float], names: Sequence[str]
) -> Readout:
    """Create the conversion of outputs to numbers in the units of the data.

    The prediction of each column is followed by the additional numbers of the loss,
    such as quantiles.
    """
    endings = ("", *loss.endings)
    far = any(abs(x) > FAR * y for x, y in zip(mean, std, strict=True))

    def values(outputs: jax.Array) -> jax.Array:
        outputs = widen(outputs).reshape(-1, len(names), loss.num_outputs)
        near = [0.0] * len(mean) if far else mean
        scale, shift = (jnp.asarray(x, outputs.dtype) for x in (std, near))
        found = []
        read = loss.prediction(outputs), *loss.extras(outputs)
        for ending, x in zip(endings, read, strict=True):
            x = x * scale if ending == STD else x * scale + shift
            found.append(x[..., None])
        return jnp.concatenate(found, -1).reshape(-1, len(names) * len(endings))

    columns = tuple(f"{name}{ending}" for name in names for ending in endings)
    if not far:
        return Readout("values", columns, values)
    each = [
        (x, y, ending) for x, y in zip(mean, std, strict=True) for ending in endings
    ]
    return Readout(
        "values",
        columns,
        values,
        shift=tuple(0.0 if ending == STD else x for x, _, ending in each),
        # 8 digits relative to the standard deviation; float32 has 7.
        decimals=tuple(8 - math.ceil(math.log10(y)) for _, y, _ in each),
    )
