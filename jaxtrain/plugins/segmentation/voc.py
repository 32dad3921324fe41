"""Classes of Pascal VOC, in the order of torchvision's COCO weights."""

LABELS = (
    *("__background__", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus"),
    *("car", "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike"),
    *("person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
