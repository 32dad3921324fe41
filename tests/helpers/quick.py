"""XLA's flags for tests, which compile much and compute little.

Programs compile in half to a third of the time, and compute the same to rounding.
`benchmarks/RESULTS.md` has the measurement (figures of the decisions, 122).
"""

from importlib.metadata import version

FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
# The way of XLA:CPU without MLIR, which jaxlib 0.12 has no more.
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 12):
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
