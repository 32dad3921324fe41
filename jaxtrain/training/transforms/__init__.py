"""Step transforms: hooks around the optimizer update, such as weight averaging."""
