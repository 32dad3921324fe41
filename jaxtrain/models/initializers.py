"""Initial weights that keep the variance from layer to layer behind ReLUs.

He et al. 2015, arXiv:1502.01852: normal, of the variance 2 / n. They do not cut the
normal distribution, as PyTorch's `kaiming_normal_` does not; Flax's `he_normal` does.
"""

from flax import nnx

# Of the gradients (equation 14): n counts pixels of the kernel times output channels.
he_fan_out = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")
# Of the activations (equation 10): n counts pixels of the kernel times input channels,
# those of a group.
he_fan_in = nnx.initializers.variance_scaling(2.0, "fan_in", "normal")
