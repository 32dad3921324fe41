"""Checkpoints of a run."""

# Folder of a workdir that holds them.
CHECKPOINTS = "checkpoints"
