"""Checkpoints of a run."""

# Name of the folder in a workdir.
CHECKPOINTS = "checkpoints"
