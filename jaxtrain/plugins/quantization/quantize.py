"""Post-training quantization: bias correction, and calibration of activation ranges.

The quantized model has `model.quantize = int8` (`quantized.py`), and its activation
ranges are calibrated on training images.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.plugins.quantization.fake_quantization import ActivationRange
from jaxtrain.plugins.quantization.mean_correction import with_means_of
from jaxtrain.plugins.quantization.passes import (
    named_layers,
    of_batches,
    with_values,
)
from jaxtrain.plugins.quantization.range_search import Method, Seen, choose_range
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path
from jaxtrain.weights.stored import abstract_weights

# Number of values sampled from each activation per batch.
SAMPLE = 4096


@dataclass(frozen=True, eq=False)
class Rounded:
    """A quantized model, and its deviation from the float model.

    Attributes:
      model: The quantized model.
      ranges: Activation ranges (low, high) by path.
      difference: RMS difference of the outputs relative to the RMS of the float
        outputs, on images not used for calibration.
      agreement: Fraction of these images for which both models predict the same class;
        for class maps, fraction of pixels, averaged over classes. None without classes.
    """

    model: TrainedModel
    ranges: Mapping[str, tuple[float, float]]
    difference: float
    agreement: float | None


def quantize(
    model: TrainedModel, images: np.ndarray, others: np.ndarray, method: Method
) -> Rounded:
    """Quantize a trained model.

    Args:
      model: Trained float model.
      images: Calibration images, uint8 (n, H, W, C).
      others: Images for the comparison of outputs, uint8 (m, H, W, C).
      method: Method of choosing activation ranges.

    Raises:
      UserError: The model does not support quantization.
    """
    check(model)
    about = model.description
    config = dataclasses.replace(about.model, quantize="int8")
    about = dataclasses.replace(about, model=config)
    origin = {"step": None, "run": None, "weights": None}
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), abstract_weights(about))
    state = {**by_path(zeros[1]), **by_path(model.model_state)}
    empty = make_model(
        about, model.params, with_values(zeros[1], state), origin, "the quantized model"
    )
    ranges = find_ranges(empty, images, method)
    for path, ends in ranges.items():
        state[f"{path}/low"], state[f"{path}/high"] = map(np.float32, ends)
    rounded = dataclasses.replace(empty, model_state=with_values(zeros[1], state))
    rounded = with_means_of(rounded, model, images)
    return Rounded(rounded, ranges, *compare(model, rounded, others))


def check(model: TrainedModel) -> None:
    """Check that a model supports quantization.

    Raises:
      UserError: The model does not support quantization.
    """
    about = model.description
    about.check_is_one("--workdir: this model")
    why = None
    if about.model.quantize is not None:
        why = "is already quantized; export the model"
    elif about.model.transform is not None:
        why = (
            f"was changed by model.transform = {about.model.transform!r}; give a model "
            "without model.transform"
        )
    elif model.decoder.in_units is not None:
        why = (
            "predicts numbers in units of the data, for which the 256 levels of int8 "
            "are too few; use the model in floating point"
        )
    if why is not None:
        raise UserError(f"--workdir: the model {why}")


def find_ranges(
    model: TrainedModel, images: np.ndarray, method: Method
) -> dict[str, tuple[float, float]]:
    """Calibrate the activation ranges; return path -> (low, high)."""
    graphdef, order = split_model(model.description.abstract)[0], []

    def function(x: jax.Array, weights: Any) -> dict[str, Any]:
        network = nnx.merge(graphdef, *weights, copy=True)
        network.eval()
        found: dict[str, Any] = {}

        def observe(path: str, x: jax.Array) -> None:
            chosen = np.random.default_rng(0).integers(x.size, size=SAMPLE)
            sample = x.reshape(-1)[chosen].astype(jnp.float32)
            found[path] = x.min(), x.max(), sample

        for path, layer in named_layers(network):
            if isinstance(layer, ActivationRange):
                layer.observe = functools.partial(observe, path)
        network(x)
        order[:] = found
        return found

    batches = of_batches([model], images, function)
    ranges = {}
    for path in order:
        lows, highs, samples = zip(*(batch[path] for batch in batches), strict=True)
        low, high = float(min(0, *lows)), float(max(0, *highs))
        seen = Seen(low, high, np.concatenate(samples))
        # The last range is the range of the model's outputs, whose largest values
        # matter most and are not clipped.
        ranges[path] = choose_range(seen, "minmax" if path == order[-1] else method)
    return ranges


def compare(
    model: TrainedModel, other: TrainedModel, images: np.ndarray
) -> tuple[float, float | None]:
    """Compare the outputs of a quantized model and its float model.

    Args:
      model: Float model, the reference.
      other: Quantized model to measure.
      images: Images, uint8 (n, H, W, C).

    Returns:
      `difference` and `agreement`, as in `Rounded`.
    """
    squares = [0.0, 0.0]
    outputs = [of_batches([m], images, _outputs_of(m)) for m in (model, other)]
    for ours, theirs in zip(*outputs, strict=True):
        for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
            wide = np.asarray(x, np.float64), np.asarray(y, np.float64)
            squares[0] += np.square(wide[0] - wide[1]).sum()
            squares[1] += np.square(wide[0]).sum()
    difference = float(np.sqrt(squares[0] / max(squares[1], np.finfo(float).tiny)))
    if model.class_names is None:
        return difference, None
    ours, theirs = map(np.concatenate, outputs)
    return difference, model.decoder.agreement(theirs, ours)


def _outputs_of(model: TrainedModel) -> Callable[..., Any]:
    graphdef = split_model(model.description.abstract)[0]

    def outputs(x: jax.Array, weights: tuple[Any, Any]) -> Any:
        params, state = weights
        return predict(graphdef, params, state, x)

    return outputs
