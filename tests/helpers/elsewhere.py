"""The layout of devices that are not CPUs, for what holds on GPUs."""

from jaxtrain.parallel.layout import Layout


class ElsewhereLayout(Layout):
    """Layout of devices that compute each gradient in one operation, as JAX does."""

    @property
    def cpus(self) -> None:
        return None
