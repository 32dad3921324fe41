"""Robustness evaluation: attacks, corruptions, out-of-distribution images."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="robustness",
    subject="watching and comparing",
    requires=("adversarial",),
    evaluations={
        "out_of_distribution": "jaxtrain.plugins.robustness.outliers_part:Outliers",
        "adversarial": "jaxtrain.plugins.robustness.attacked_part:Attacked",
        "corruptions": "jaxtrain.plugins.robustness.corrupted_part:Corrupted",
    },
)
