"""Problems of a valid config that appear only when a run starts."""

import dataclasses
from typing import Any

from jaxtrain.config import Config, ParallelConfig
from jaxtrain.parallel import devices
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.trainer.setup import build_setup


def start_problems(config: Config, platform: Any = "auto") -> list[Problem]:
    """Return the problems that a run would report at its start on this machine.

    Args:
      config: Config that passed the config checks.
      platform: Platform of the run, a value of `--platform`.
    """
    parallel, collected = config.parallel, ProblemList()
    flags, cpus = parallel.xla_flags, parallel.cpu_devices
    devices.start(platform, flags=flags, profiles=False, cpus=cpus)
    collected.build(build_setup, config)
    return collected.found


def problems_without_mesh(config: Config) -> list[Problem]:
    """Return the problems of a config that do not depend on the devices.

    Data, model, task and optimizer are checked, but not `parallel`.
    """
    return start_problems(dataclasses.replace(config, parallel=ParallelConfig()), "cpu")
