"""Memory, speed and scaling of a run in advance: plan, scale and find-batch."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="plan",
    subject="data and planning",
    commands={
        "find-batch": "jaxtrain.plugins.plan.find_batch_command",
        "scale": "jaxtrain.plugins.plan.scale_command",
        "plan": "jaxtrain.plugins.plan.plan_command",
    },
    hints={
        "memory of a step": "{program} plan tells what each gives",
        "memory": "{program} plan tells what a config takes, {program} find-batch the "
        "largest batch that fits",
    },
)
