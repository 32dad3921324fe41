"""A trained model as a file that runs without jaxtrain."""
