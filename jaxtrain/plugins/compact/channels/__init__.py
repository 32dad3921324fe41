"""Which channels of a model belong together, and models with fewer of them."""
