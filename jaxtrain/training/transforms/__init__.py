"""Step transforms: changes of a step other than loss, gradients and optimizer."""
