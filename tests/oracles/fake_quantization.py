"""Write what PyTorch's fake quantisation makes of some numbers, and its gradients.

Run it in an environment of its own, with PyTorch:

    python -m tests.oracles.fake_quantization

`tests/stored/fake_quantization.json` then has activations with their ranges, and
kernels (output channels last), each with what they are rounded to and the gradient of
the sum of squares.
"""

import json
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]

FILE = Path(__file__).parents[1] / "stored" / "fake_quantization.json"
RANGES = ((-1.0, 2.0), (0.0, 6.0), (-0.37, 0.11), (-3.0, 0.0))


def main() -> None:
    torch.manual_seed(0)
    activations, kernels = [], []
    for low, high in RANGES:
        x = (1.5 * max(-low, high) * torch.randn(64)).requires_grad_()
        scale = torch.tensor((high - low) / 255)
        zero = torch.round(-low / scale).to(torch.int32)
        y = torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)
        (y**2).sum().backward()
        row = {"x": x, "y": y, "gradient": x.grad}
        row = {name: array.tolist() for name, array in row.items()}
        activations.append({"low": low, "high": high, **row})
    for shape in ((3, 3, 2, 5), (7, 4)):
        kernel = torch.randn(shape).requires_grad_()
        scale = kernel.detach().abs().amax(tuple(range(len(shape) - 1))) / 127
        zeros = torch.zeros(shape[-1], dtype=torch.int32)
        y = torch.fake_quantize_per_channel_affine(
            kernel, scale, zeros, len(shape) - 1, -127, 127
        )
        (y**2).sum().backward()
        row = {"x": kernel, "y": y, "gradient": kernel.grad}
        kernels.append({name: array.tolist() for name, array in row.items()})
    FILE.write_text(json.dumps({"activations": activations, "kernels": kernels}))


if __name__ == "__main__":
    main()
