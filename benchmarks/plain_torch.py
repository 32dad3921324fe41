"""Plain PyTorch models and their training, as its examples write them: the peer.

The layers have the names that ours have, with dots, so that weights can be copied.
"""

import contextlib
from collections import OrderedDict
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

# Name -> arguments of `torch.compile`; None runs as it is written.
VARIANTS = {
    "eager": None,
    "compile": {},
    "max-autotune": {"mode": "max-autotune"},
}


class LeNet(nn.Module):
    def __init__(self, image_shape: list[int], num_classes: int):
        super().__init__()
        rows, columns, channels = image_shape
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        flat = ((rows // 2 - 4) // 2) * ((columns // 2 - 4) // 2) * 16
        self.linear1, self.linear2 = nn.Linear(flat, 120), nn.Linear(120, 84)
        self.head = nn.Linear(84, num_classes)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.head(F.relu(self.linear2(F.relu(self.linear1(x)))))


class ConvNet(nn.Module):
    def __init__(self, image_shape: list[int], num_classes: int):
        super().__init__()
        rows, columns, channels = image_shape
        self.conv1, self.norm1 = conv(channels, 64, 3), nn.BatchNorm2d(64)
        self.conv2, self.norm2 = conv(64, 64, 3), nn.BatchNorm2d(64)
        self.head = nn.Linear((rows // 4) * (columns // 4) * 64, num_classes)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


class WhitenedCNN(nn.Module):
    """The network of the fast recipes: patches of 2x2, then groups with a pool."""

    def __init__(self, image_shape: list[int], num_classes: int, channels: list[int]):
        super().__init__()
        rows, columns, inputs = image_shape
        components = 4 * inputs
        self.whiten = nn.Conv2d(inputs, components, 2, 2, bias=False)
        rows, columns, inputs = rows // 2, columns // 2, 2 * components
        self.num = len(channels)
        for number, outputs in enumerate(channels, start=1):
            for index, before in enumerate((inputs, outputs), start=1):
                name = f"group{number}_"
                self.add_module(f"{name}conv{index}", conv(before, outputs, 3))
                self.add_module(f"{name}norm{index}", nn.BatchNorm2d(outputs))
            rows, columns, inputs = rows // 2, columns // 2, outputs
        self.head = nn.Linear(rows * columns * inputs, num_classes)

    def forward(self, x: Any) -> Any:
        x = self.whiten(x)
        x = F.relu(torch.cat([x, -x], 1))
        for number in range(1, self.num + 1):
            for index in (1, 2):
                x = getattr(self, f"group{number}_conv{index}")(x)
                x = F.max_pool2d(x, 2) if index == 1 else x
                x = F.relu(getattr(self, f"group{number}_norm{index}")(x))
        return self.head(x.flatten(1))


class Block(nn.Module):
    """A residual block: convolutions of these sizes, channels and strides."""

    def __init__(self, inputs: int, layers: list[tuple[int, int, int]]):
        super().__init__()
        channels = inputs
        for number, (size, outputs, stride) in enumerate(layers, start=1):
            self.add_module(f"conv{number}", conv(channels, outputs, size, stride))
            self.add_module(f"norm{number}", nn.BatchNorm2d(outputs))
            channels = outputs
        self.num, stride = len(layers), max(stride for *_, stride in layers)
        self.projects = stride > 1 or inputs != channels
        if self.projects:
            self.shortcut_conv = conv(inputs, channels, 1, stride)
            self.shortcut_norm = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        y = x
        for number in range(1, self.num + 1):
            y = getattr(self, f"norm{number}")(getattr(self, f"conv{number}")(y))
            y = F.relu(y) if number < self.num else y
        return F.relu(
            y + (self.shortcut_norm(self.shortcut_conv(x)) if self.projects else x)
        )


class ResNet(nn.Module):
    """Stages of residual blocks, behind one of two stems or none."""

    def __init__(
        self,
        image_shape: list[int],
        num_classes: int,
        depths: list[int],
        bottleneck: bool,
        stem: str | None,
    ):
        super().__init__()
        self.stem, inputs = stem, 64
        if stem is not None:
            size, stride = (7, 2) if stem == "imagenet" else (3, 1)
            self.stem_conv = conv(image_shape[2], 64, size, stride)
            self.stem_norm = nn.BatchNorm2d(64)
        for stage, depth in enumerate(depths, start=1):
            width = 64 * 2 ** (stage - 1)
            for index in range(1, depth + 1):
                stride = 2 if stage > 1 and index == 1 else 1
                layers = [(3, width, stride), (3, width, 1)]
                if bottleneck:
                    layers = [(1, width, 1), (3, width, stride), (1, 4 * width, 1)]
                block = Block(inputs, layers)
                self.add_module(f"stage{stage}_block{index}", block)
                inputs = layers[-1][1]
        self.head = nn.Linear(inputs, num_classes)

    def forward(self, x: Any) -> Any:
        if self.stem is not None:
            x = F.relu(self.stem_norm(self.stem_conv(x)))
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for name, block in self.named_children():
            if name.startswith("stage"):
                x = block(x)
        return self.head(x.mean((2, 3)))


class InvertedResiduals(nn.Module):
    """Two blocks of MobileNetV2: one with a shortcut, one with a stride."""

    def __init__(self, image_shape: list[int], num_classes: int):
        super().__init__()
        channels = image_shape[2]
        self.block1 = inverted(channels, channels, 1)
        self.block2 = inverted(channels, 2 * channels, 2)
        self.head = nn.Linear(2 * channels, num_classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.block2(x + self.block1(x)).mean((2, 3)))


def inverted(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    hidden = 6 * inputs
    return nn.Sequential(
        OrderedDict(
            expand=conv_norm(conv(inputs, hidden, 1), nn.ReLU6()),
            depthwise=conv_norm(conv(hidden, hidden, 3, stride, hidden), nn.ReLU6()),
            project=conv_norm(conv(hidden, outputs, 1), nn.Identity()),
        )
    )


def conv_norm(layer: nn.Conv2d, activation: nn.Module) -> nn.Sequential:
    norm = nn.BatchNorm2d(layer.out_channels)
    return nn.Sequential(OrderedDict(conv=layer, norm=norm, activation=activation))


def conv(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    return nn.Conv2d(
        inputs, outputs, size, stride, size // 2, groups=groups, bias=False
    )


MODELS = {
    "lenet": LeNet,
    "convnet": ConvNet,
    "whitened_cnn": WhitenedCNN,
    "resnet": ResNet,
    "inverted_residuals": InvertedResiduals,
}


class Training:
    """A model in training: SGD with momentum, channels last, on one batch.

    Args:
      model: Name and arguments of the model, as JSON.
      arrays: Weights by their names, and the batch: `images` (N, C, H, W), `labels`.
      device: cpu or cuda.
      policy: fp32, tf32, or bf16 for `torch.autocast`.
      variant: How it is compiled, a name of `VARIANTS`.
      rate: Learning rate.
    """

    def __init__(
        self,
        model: dict[str, Any],
        arrays: dict[str, Any],
        device: str,
        policy: str,
        variant: str,
        rate: float,
    ):
        arrays = {name: torch.from_numpy(array) for name, array in arrays.items()}
        images, self.labels = arrays.pop("images"), arrays.pop("labels").to(device)
        form: Any = torch.channels_last
        self.images = images.to(device, memory_format=form)
        made = MODELS[model["name"]](**model["arguments"])
        missing, unknown = made.load_state_dict(arrays, strict=False)
        assert not unknown, unknown
        assert all(name.endswith("num_batches_tracked") for name in missing), missing
        self.module = made.to(device, memory_format=form).train()
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), rate, momentum=0.9, fused=True
        )
        options = VARIANTS[variant]
        self.model = (
            self.module if options is None else torch.compile(self.module, **options)
        )
        self.casts = contextlib.nullcontext
        if policy == "bf16":
            self.casts = lambda: torch.autocast(device, torch.bfloat16)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = policy != "fp32"
        torch.backends.cuda.matmul.allow_tf32 = policy != "fp32"

    def step(self) -> Any:
        """Take a step; return the loss before it."""
        self.optimizer.zero_grad()
        with self.casts():
            logits = self.model(self.images)
        loss = F.cross_entropy(logits.float(), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def grad_norm(self) -> float:
        """Return the norm of the gradients of the last step."""
        grads = [p.grad for p in self.module.parameters()]
        return float(torch.nn.utils.get_total_norm(grads))
