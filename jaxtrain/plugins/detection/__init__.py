"""Object detection: boxes and classes of the objects in an image."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="detection",
    requires=("segmentation",),  # For backbones, and the EXIF orientation of boxes.
    subject="tasks",
    predictions={"boxes": "jaxtrain.plugins.detection.box_part:Boxes"},
    models={"fcos": "jaxtrain.plugins.detection.model:FCOS"},
    sources={
        "coco:FILE_OR_DIR": "jaxtrain.plugins.detection.coco:open_coco",
        "yolo:DIR_OR_FILE.yaml": "jaxtrain.plugins.detection.yolo:open_yolo",
    },
    layouts={
        "coco": "jaxtrain.plugins.detection.layouts:CocoLayout",
        "yolo": "jaxtrain.plugins.detection.layouts:YoloLayout",
    },
    report_sections={
        "detection": "jaxtrain.plugins.detection.box_sections:box_sections"
    },
    tasks={"detection": "jaxtrain.plugins.detection.task:Detection"},
)
