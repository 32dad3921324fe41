"""Semantic segmentation: one class per pixel."""

from jaxtrain.plugin import Plugin

_DEEPLAB = "jaxtrain.plugins.segmentation.deeplab"
_WEIGHTS = "jaxtrain.plugins.segmentation.weights"
PLUGIN = Plugin(
    name="segmentation",
    requires=("distillation",),
    subject="tasks",
    predictions={"masks": "jaxtrain.plugins.segmentation.mask_part:PredictedMasks"},
    models={
        "unet": "jaxtrain.plugins.segmentation.unet:UNet",
        "deeplabv3_resnet50": f"{_DEEPLAB}:DeepLabV3",
        "deeplabv3_resnet101": f"{_DEEPLAB}:DeepLabV3ResNet101",
        "fcn_resnet50": f"{_DEEPLAB}:FCN",
        "fcn_resnet101": f"{_DEEPLAB}:FCNResNet101",
    },
    weights={
        "deeplabv3_resnet50": f"{_WEIGHTS}:DEEPLAB_V3_RESNET50",
        "deeplabv3_resnet101": f"{_WEIGHTS}:DEEPLAB_V3_RESNET101",
        "fcn_resnet50": f"{_WEIGHTS}:FCN_RESNET50",
        "fcn_resnet101": f"{_WEIGHTS}:FCN_RESNET101",
    },
    sources={"masks:DIR": "jaxtrain.plugins.segmentation.mask_files:open_masks"},
    layouts={"masks": "jaxtrain.plugins.segmentation.layout:MaskLayout"},
    target_images={"masks": "jaxtrain.plugins.segmentation.masks:MaskTargets"},
    report_sections={
        "segmentation": "jaxtrain.plugins.segmentation.pixel_sections:pixel_sections"
    },
    tasks={"segmentation": "jaxtrain.plugins.segmentation.task:Segmentation"},
)
