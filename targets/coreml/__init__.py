"""Core ML: an ML Program in an `.mlpackage`, computed here by an evaluator of our own."""
