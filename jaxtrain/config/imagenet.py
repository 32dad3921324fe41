"""ImageNet as the recipes take it: TFDS's, the last 2 % of training for validation."""

from typing import Any

from jaxtrain.config.data import DataConfig

# Of the training images, as everybody takes them.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def imagenet(**fields: Any) -> DataConfig:
    """Return the section `data` of a recipe for ImageNet, 224x224 in colour.

    The test is on the 50,000 images of TFDS's validation split.

    Args:
      **fields: the recipe's own, in place of those here too.
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
