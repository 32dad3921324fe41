"""The 15 corruptions of ImageNet-C and CIFAR-10-C, by their published formulas.

Hendrycks and Dietterich 2019, arXiv:1903.12261. A corruption takes images in 0..1,
float64 (N, H, W, C), the numbers of its severity, and a generator for each image.
"""
