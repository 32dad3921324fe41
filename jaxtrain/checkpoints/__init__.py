"""Checkpoints of a run."""

# Name of the directory in a workdir.
CHECKPOINTS = "checkpoints"
