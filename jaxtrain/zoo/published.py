"""Image size and published results of each model.

Results are single-crop accuracies in percent on the 50,000 validation images of
ImageNet, or the test images of CIFAR-10. Results of segmentation models are mean IoU.
"""

from typing import NamedTuple

TORCHVISION = "https://github.com/pytorch/vision"
SCRIPTS = f"{TORCHVISION}/tree/main/references/classification"
SEGMENTATION = f"{TORCHVISION}/tree/main/references/segmentation"
NEW_RECIPES = f"{TORCHVISION}/issues/3995"


class Result(NamedTuple):
    """A published result.

    Attributes:
      top1: Top-1 accuracy in percent.
      of: Name of the weights, or of the paper.
      source: URL or reference of the result.
      mean_iou: Mean IoU in percent, which segmentation models have instead of `top1`.
    """

    top1: float | None
    of: str
    source: str
    mean_iou: float | None = None

    @property
    def figure(self) -> str:
        """Format the result with its unit."""
        if self.top1 is not None:
            return f"{self.top1:g} %"
        return f"{self.mean_iou:g} % mean IoU"


class Published(NamedTuple):
    """Image shape, outputs and published results of a model.

    Attributes:
      image_shape: Image shape (H, W, C) in the published evaluation.
      num_outputs: Number of classes of the data set.
      results: Published results, the main result first.
      has_maps: Whether the model outputs a class per pixel.
      has_boxes: Whether the model outputs boxes.
    """

    image_shape: tuple[int, int, int]
    num_outputs: int
    results: tuple[Result, ...] = ()
    has_maps: bool = False
    has_boxes: bool = False


def _imagenet(*results: Result, size: int = 224) -> Published:
    return Published((size, size, 3), 1000, results)


def _v1(top1: float, source: str = SCRIPTS) -> Result:
    return Result(top1, "torchvision V1", source)


def _v2(top1: float) -> Result:
    return Result(top1, "torchvision V2", NEW_RECIPES)


def _paper(top1: float, number: str) -> Result:
    return Result(top1, f"arXiv:{number}", f"https://arxiv.org/abs/{number}")


def _maps(*results: Result, size: int) -> Published:
    """Describe a segmentation model for the 20 Pascal VOC classes and background."""
    return Published((size, size, 3), 21, results, has_maps=True)


def _coco(mean_iou: float) -> Result:
    """Result on the COCO validation images, for the Pascal VOC classes."""
    return Result(None, "torchvision, COCO with VOC's labels", SEGMENTATION, mean_iou)


RSB = "2110.00476"

PUBLISHED: dict[str, Published] = {
    "lenet": Published((28, 28, 1), 10),
    "convnet": Published((32, 32, 3), 10),
    "cnn4": _imagenet(),
    "resnet18": _imagenet(_v1(69.758)),
    "resnet34": _imagenet(_v1(73.314)),
    "resnet50": _imagenet(_v1(76.130), _v2(80.858), _paper(80.4, RSB)),
    "resnet101": _imagenet(_v1(77.374), _v2(81.886)),
    "resnet152": _imagenet(_v1(78.312), _v2(82.284)),
    "resnet18d": _imagenet(),
    "resnet50d": _imagenet(_paper(77.16, "1812.01187")),
    "seresnet18": _imagenet(),
    "seresnet50": _imagenet(_paper(76.71, "1709.01507")),
    "preact_resnet18": _imagenet(),
    "preact_resnet50": _imagenet(),
    "wide_resnet28_10": Published(
        (32, 32, 3), 10, (_paper(96.00, "1605.07146"), _paper(96.92, "1708.04552"))
    ),
    "wide_resnet50_2": _imagenet(_v1(78.468, f"{TORCHVISION}/pull/912"), _v2(81.602)),
    "resnext50_32x4d": _imagenet(_v1(77.618), _v2(81.198)),
    "vgg11": _imagenet(_v1(69.020)),
    "vgg13": _imagenet(_v1(69.928)),
    "vgg16": _imagenet(_v1(71.592)),
    "vgg19": _imagenet(_v1(72.376)),
    "vgg11_bn": _imagenet(_v1(70.370)),
    "vgg13_bn": _imagenet(_v1(71.586)),
    "vgg16_bn": _imagenet(_v1(73.360)),
    "vgg19_bn": _imagenet(_v1(74.218)),
    "googlenet": _imagenet(_v1(69.778)),
    "inception_v3": _imagenet(_v1(77.294), size=299),
    "densenet121": _imagenet(_v1(74.434, f"{TORCHVISION}/pull/116")),
    "mobilenet_v2": _imagenet(_v1(71.878), _v2(72.154)),
    "mobilenet_v3_small": _imagenet(_v1(67.668)),
    "mobilenet_v3_large": _imagenet(_v1(74.042), _v2(75.274)),
    "efficientnet_b0": _imagenet(_v1(77.692), _paper(77.1, "1905.11946")),
    "efficientnet_b1": _imagenet(_v1(78.642), _v2(79.838), size=240),
    "efficientnet_b2": _imagenet(_v1(80.608), size=288),
    "efficientnet_b3": _imagenet(_v1(82.008), size=300),
    "efficientnet_b4": _imagenet(_v1(83.384), size=380),
    "efficientnet_v2_s": _imagenet(_v1(84.228), size=384),
    "convnext_tiny": _imagenet(_v1(82.520), _paper(82.1, "2201.03545")),
    "convnext_small": _imagenet(_v1(83.616), _paper(83.1, "2201.03545")),
    "convnext_base": _imagenet(_v1(84.062), _paper(83.8, "2201.03545")),
    "regnet_y_3_2gf": _imagenet(_v1(78.948), _v2(81.982)),
    "regnet_y_4gf": _imagenet(_paper(79.4, "2003.13678")),
    "regnet_y_8gf": _imagenet(_v1(80.032), _v2(82.828)),
    # The paper's stage widths differ from torchvision's regnet_y_8gf.
    "regnet_y_8gf_paper": _imagenet(_paper(79.9, "2003.13678")),
    "whitened_cnn": Published((32, 32, 3), 10),
    "whitened_cnn_small": Published((28, 28, 1), 10),
    "unet": _maps(size=256),
    "deeplabv3_resnet50": _maps(_coco(66.4), size=520),
    "deeplabv3_resnet101": _maps(_coco(67.4), size=520),
    "fcn_resnet50": _maps(_coco(60.5), size=520),
    "fcn_resnet101": _maps(_coco(63.7), size=520),
    "fcos": Published((512, 512, 3), 80, has_boxes=True),
}
