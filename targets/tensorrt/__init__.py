"""TensorRT and TensorRT for RTX: one builder, two products."""
