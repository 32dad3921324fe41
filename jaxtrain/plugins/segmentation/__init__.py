"""Segmentation: the class of each pixel of an image."""

from jaxtrain.plugin import Plugin

_DEEPLAB = "jaxtrain.plugins.segmentation.deeplab"
PLUGIN = Plugin(
    name="segmentation",
    subject="tasks",
    models={
        "unet": "jaxtrain.plugins.segmentation.unet:UNet",
        "deeplabv3_resnet50": f"{_DEEPLAB}:DeepLabV3",
        "deeplabv3_resnet101": f"{_DEEPLAB}:DeepLabV3ResNet101",
        "fcn_resnet50": f"{_DEEPLAB}:FCN",
        "fcn_resnet101": f"{_DEEPLAB}:FCNResNet101",
    },
    tasks={"segmentation": "jaxtrain.plugins.segmentation.task:Segmentation"},
)
