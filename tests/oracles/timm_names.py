"""Write the names and shapes of timm's weights, which ours are compared with.

Run it in an environment of its own, with timm 1.0 and PyTorch:

    python tests/oracles/timm_names.py > tests/data/timm_names.json
"""

import json

import timm  # pyright: ignore[reportMissingImports]

NAMES = ("resnet18", "resnet50")


def names_and_shapes(name: str) -> dict[str, list[int]]:
    model = timm.create_model(name, num_classes=10)
    return {
        key: list(array.shape)
        for key, array in model.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }


print("{")
rows = [f"{json.dumps(n)}: {json.dumps(names_and_shapes(n))}" for n in NAMES]
print(",\n".join(rows))
print("}")
