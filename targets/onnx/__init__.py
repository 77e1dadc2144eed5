"""A `Graph` goes in, an ONNX file comes out; the file goes in, a runtime session comes out."""
