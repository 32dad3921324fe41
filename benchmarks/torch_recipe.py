"""A recipe of the speed runs in plain PyTorch, from its start to its test: the peer.

    python torch_recipe.py REQUEST

REQUEST is a JSON file with the arguments of `train`, and `data`, the place of the
arrays `train_images`, `train_labels`, `test_images` and `test_labels`: uint8
(N, rows, columns, channels), and classes. One JSON object goes to stdout.

It has what makes such loops fast: images in memory, mirrored once an epoch, channels
last, operations over lists of tensors, and no word of the device before the end.
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from plain_torch import MODELS
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

# Of the Newton-Schulz iteration (github.com/KellerJordan/Muon), and of Adam.
QUINTIC, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
B1, B2, EPS = 0.9, 0.999, 1e-8
# Standard deviation of a normal distribution that is cut off at two of its own.
TRUNCATED_STD = 0.87962566103423978
WHITENING_PIXELS, WHITENING_EPSILON = 5000 * 32 * 32, 5e-4


class Muon:
    """Muon for kernels, Adam with Nesterov's momentum for vectors, as optax has them.

    Args:
      params: What is trained.
      momentum: Decay of the first moment of the kernels.
      weight_decay: Weight decay of the kernels, decoupled.
    """

    def __init__(self, params: list[Any], momentum: float, weight_decay: float):
        self.kernels = [p for p in params if p.ndim > 1]
        self.vectors = [p for p in params if p.ndim == 1]
        self.momentum, self.weight_decay, self.count = momentum, weight_decay, 0
        self.first = [torch.zeros_like(p) for p in self.kernels]
        self.moments = [[torch.zeros_like(p) for p in self.vectors] for _ in range(2)]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        self.count += 1
        grads = [p.grad for p in self.kernels]
        steps = [orthogonal(x) for x in self._ahead(self.first, grads, self.momentum)]
        torch._foreach_mul_(self.kernels, 1 - rate * self.weight_decay)
        torch._foreach_add_(self.kernels, steps, alpha=-rate)
        first, second = self.moments
        grads = [p.grad for p in self.vectors]
        ahead = self._ahead(first, grads, B1)
        torch._foreach_mul_(second, B2)
        torch._foreach_addcmul_(second, grads, grads, 1 - B2)
        roots = torch._foreach_sqrt(torch._foreach_div(second, 1 - B2**self.count))
        torch._foreach_add_(roots, EPS)
        torch._foreach_addcdiv_(self.vectors, ahead, roots, -rate)

    def _ahead(self, moments: list[Any], grads: list[Any], decay: float) -> list[Any]:
        """Update first moments; return them a step ahead, without their bias."""
        torch._foreach_lerp_(moments, grads, 1 - decay)
        ahead = torch._foreach_mul(moments, decay / (1 - decay ** (self.count + 1)))
        now = (1 - decay) / (1 - decay**self.count)
        torch._foreach_add_(ahead, grads, alpha=now)
        return ahead


def orthogonal(update: Any) -> Any:
    """Return a kernel's update, (outputs, ...), with singular values near 1."""
    x = update.flatten(1)
    outputs, inputs = x.shape
    x = x if outputs <= inputs else x.T
    x = x / (x.norm() + 1e-8)
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        square = x @ x.T
        x = torch.addmm(
            x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a
        )
    x = x if outputs <= inputs else x.T
    return x.reshape(update.shape) * max(1, outputs / inputs) ** 0.5


def whitening(images: Any, patch: int) -> Any:
    """Return the kernel that whitens the patches of images (N, C, H, W)."""
    num = max(1, WHITENING_PIXELS // (images.shape[2] * images.shape[3]))
    some = images[:: max(1, len(images) // num)][:num].double()
    patches = some.unfold(2, patch, 1).unfold(3, patch, 1)
    patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(0, 2)
    rows = patches.flatten(1)
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    kernel = vectors / (values.clamp(min=0) + WHITENING_EPSILON).sqrt()
    return kernel.T.flip(0).reshape(-1, *patches.shape[1:]).float()


def initialize(model: Any, images: Any) -> None:
    """Whiten, begin with identities, and have batch norms keep the last statistics."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
        elif name == "whiten":
            layer.weight.data = whitening(images, layer.kernel_size[0])
            layer.weight.requires_grad_(False)
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            weight = layer.weight.data
            std = (weight.shape[0] / weight.numel()) ** 0.5 / TRUNCATED_STD
            nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
            if isinstance(layer, nn.Conv2d):
                same = min(weight.shape[:2])
                nn.init.dirac_(weight[:same])
            else:
                nn.init.zeros_(layer.bias)


def rate_at(step: int, total: int, peak: float, warmup: int) -> float:
    """Return the learning rate: a linear rise, and a linear decay to 0."""
    rise = step / warmup if warmup else 1.0
    return peak * min(rise, (total - step) / (total - warmup))


class Average:
    """Moving averages of parameters, and of the statistics of the batches."""

    def __init__(self, model: Any, decay: float):
        self.values = [*model.parameters()]
        self.values += [b for b in model.buffers() if b.is_floating_point()]
        self.averages = [v.detach().clone() for v in self.values]
        self.decay = decay

    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        values = [v.detach() for v in self.values]
        torch._foreach_lerp_(self.averages, values, 1 - decay)

    def take(self) -> None:
        for value, average in zip(self.values, self.averages, strict=True):
            value.data.copy_(average)


def train(
    data: dict[str, Any],
    *,
    model: tuple[str, dict[str, Any]],
    seed: int,
    batch_size: int,
    eval_batch_size: int,
    steps: int,
    warmup_steps: int,
    rate: float,
    momentum: float,
    weight_decay: float,
    label_smoothing: float,
    ema_decay: float,
    mirrored_test: bool,
) -> dict[str, Any]:
    """Train, and test the averaged weights; return the accuracy and the seconds.

    Args:
      data: Arrays as above.
      model: Name and arguments of the network.
      seed: Seed of weights, order and flips.
      batch_size: Images of a step.
      eval_batch_size: Images of a batch of the test.
      steps: Length of the run.
      warmup_steps: Steps in which the learning rate rises.
      rate: Peak learning rate.
      momentum: Momentum of Muon.
      weight_decay: Weight decay of the kernels.
      label_smoothing: Share of the targets that is spread over all classes.
      ema_decay: Decay of the averages.
      mirrored_test: Whether the probabilities of the mirror image are averaged in.
    """
    torch.manual_seed(seed)
    form: Any = torch.channels_last
    pixels = torch.from_numpy(data["train_images"])
    mean, std = _statistics(pixels)
    images, tests = (
        _normalized(torch.from_numpy(data[name]), mean, std)
        for name in ("train_images", "test_images")
    )
    labels = torch.from_numpy(data["train_labels"].astype(np.int64))
    name, arguments = model
    net = MODELS[name](**arguments)
    initialize(net, images)
    net = net.to(memory_format=form).train()
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer, average = Muon(trained, momentum, weight_decay), Average(net, ema_decay)
    a_flip = torch.rand(len(images)) < 0.5
    images = torch.where(a_flip[:, None, None, None], images.flip(3), images)
    images = images.contiguous(memory_format=form)
    start, order, place = time.perf_counter(), torch.empty(0), len(images)
    for step in range(steps):
        if place + batch_size > len(images):
            if step:
                images = images.flip(3).contiguous(memory_format=form)
            order, place = torch.randperm(len(images)), 0
        indices = order[place : place + batch_size]
        place += batch_size
        logits = net(images[indices])
        loss = F.cross_entropy(logits, labels[indices], label_smoothing=label_smoothing)
        loss.backward()
        optimizer.step(rate_at(step, steps, rate, warmup_steps))
        net.zero_grad()
        average.update(step)
    train_seconds = time.perf_counter() - start
    average.take()
    net.eval()
    correct = 0
    with torch.inference_mode():
        for first in range(0, len(tests), eval_batch_size):
            batch = tests[first : first + eval_batch_size]
            found = net(batch).softmax(1)
            if mirrored_test:
                found = found + net(batch.flip(3)).softmax(1)
            right = data["test_labels"][first : first + eval_batch_size]
            correct += int((found.argmax(1).numpy() == right).sum())
    return {"accuracy": correct / len(tests), "train_seconds": train_seconds}


def _statistics(pixels: Any) -> tuple[Any, Any]:
    scaled = pixels.flatten(0, 2).float() / 255
    return scaled.mean(0), scaled.std(0)


def _normalized(pixels: Any, mean: Any, std: Any) -> Any:
    """Return images (N, C, H, W), channels last."""
    return ((pixels.float() / 255 - mean) / std).permute(0, 3, 1, 2)


def main() -> None:
    with open(sys.argv[1]) as file:
        request = json.load(file)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with np.load(request.pop("data")) as stored:
        data = dict(stored)
    found = train(data, **request)
    about = {"torch": torch.__version__, "num_threads": torch.get_num_threads()}
    print(json.dumps({**found, **about}))


if __name__ == "__main__":
    main()
