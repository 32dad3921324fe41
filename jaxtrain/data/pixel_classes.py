"""Facts of masks, which hold the class of each pixel of an image."""

# What a task finds the names of the classes under, among the facts of a set.
PIXEL_CLASSES = "pixel_classes"
# Value of pixels that are of no class: they count neither in a loss nor in a metric.
IGNORED = 255
# Largest value of a pixel of a mask.
MAX_VALUE = 255
