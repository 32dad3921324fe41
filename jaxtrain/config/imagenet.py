"""ImageNet from TFDS, with the last 2 % of the training split for validation."""

from typing import Any

from jaxtrain.config.data import DataConfig

# Mean and standard deviation of ImageNet's training images per channel, in 0..1.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def imagenet(**fields: Any) -> DataConfig:
    """Return the section `data` of a recipe for ImageNet, 224x224 in colour.

    The test split is TFDS's validation split of 50,000 images.

    Args:
      **fields: Fields of the section, which override the defaults of this function.
    """
    shared: dict[str, Any] = {
        "source": "tfds:imagenet2012",
        "train_split": "train[:98%]",
        "validation_split": "train[98%:]",
        "test_split": "validation",
        "image_size": 224,
        "channels": 3,
        "mean": MEAN,
        "std": STD,
        "cache": "stream",
        "workers": 12,
    }
    return DataConfig(**{**shared, **fields})
