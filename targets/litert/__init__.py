"""LiteRT (TensorFlow Lite): a Graph goes in, `NAME.tflite` and a session on it come out.

`target` is the contract and imports nothing heavy; `prepare` makes the program ready,
`convert` lowers it through litert_torch, `halves` stores weights as float16,
`schema` reads files, `session` runs them on ai_edge_litert.
"""
