"""Computes a parsed TensorRT network layer by layer, without a GPU."""
