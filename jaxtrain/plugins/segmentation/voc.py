"""Pascal VOC classes, in the order of torchvision's segmentation weights."""

LABELS = (
    *("__background__", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus"),
    *("car", "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike"),
    *("person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
