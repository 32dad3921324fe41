"""A trained model as a file that runs without jaxtrain."""

from typing import Literal

# Of the numbers that a file computes with; of kernels alone, which are turned back into
# float32.
Precision = Literal[
    "fp32", "bf16", "fp16", "int8", "int8_weights", "fp8_weights", "int4_weights"
]
