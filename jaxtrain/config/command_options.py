"""Options that several commands share."""

from typing import Any

from jaxtrain.config.metadata import field


def platform_option() -> Any:
    """Field for the option `--platform`, `Literal["auto", "cpu", "gpu", "tpu"]`."""
    return field(
        "auto",
        help="Platform to run on; auto: the default of JAX, except that the CPU is an "
        "error on a machine with an NVIDIA GPU.",
    )


def trust_option(named: str = "the directory requires") -> Any:
    """Field for the option `--trust`, bool: run the custom code named in saved files.

    Args:
      named: End of the help phrase "the custom code that ...".
    """
    return field(
        False,
        help=f"Run the custom code that {named}, after its files are shown and "
        "compared with the recorded digests.",
    )
