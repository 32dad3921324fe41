"""The classes of Pascal VOC, in the order of torchvision's weights for COCO."""

LABELS = (
    *("__background__", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus"),
    *("car", "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike"),
    *("person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
