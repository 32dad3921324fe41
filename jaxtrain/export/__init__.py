"""Export of trained models to files that run without jaxtrain."""

from typing import Literal

# Compute precision of an exported file. The `*_weights` precisions quantize only
# kernels, which are dequantized to float32.
Precision = Literal[
    "fp32", "bf16", "fp16", "int8", "int8_weights", "fp8_weights", "int4_weights"
]
