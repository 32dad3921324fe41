"""Channel pruning: conversion of trained models to smaller dense models."""

from jaxtrain.plugin import Plugin

PLUGIN = Plugin(
    name="compact",
    subject="changing a trained model",
    requires=("onnx",),  # `compact` compares the latency of models in ONNX Runtime.
    model_changes={"channels": "jaxtrain.plugins.compact.channels.cut:with_channels"},
    commands={"compact": "jaxtrain.plugins.compact.command"},
)
