"""LiteRT (once TensorFlow Lite): a flatbuffer, run on ai-edge-litert."""
