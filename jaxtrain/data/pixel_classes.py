"""Constants of segmentation masks."""

# Key of the class names in `Store.facts`.
PIXEL_CLASSES = "pixel_classes"
# Value of pixels without a class, which losses and metrics ignore.
IGNORED = 255
# Largest pixel value of a mask.
MAX_VALUE = 255
