"""`main.py models`: a list of the models, read from tables without building models."""

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from jaxtrain.config.metadata import field
from jaxtrain.console import require_output
from jaxtrain.processes.signals import StopSignals
from jaxtrain.zoo import listing

EXAMPLE = "resnet50"


@dataclass(frozen=True, kw_only=True)
class ModelsArguments:
    """List the models: parameters, FLOPs, memory, published results, weights."""

    name: Annotated[str | None, tyro.conf.Positional] = field(
        None,
        help="Name of a model to describe in full; None: list all models, one per "
        "line.",
    )
    json: bool = field(
        False,
        help="Print JSON.",
    )


def run(arguments: ModelsArguments, signals: StopSignals) -> None:
    """Print the models."""
    require_output()
    name = arguments.name
    if name is None:
        every = [listing.to_dict(model) for model in listing.models()]
        text = json.dumps(every, indent=2) if arguments.json else listing.table()
    else:
        model = listing.find(name)
        values = listing.to_dict(model)
        text = (
            json.dumps(values, indent=2) if arguments.json else listing.details(model)
        )
    print(text.rstrip("\n"))
