"""A `Graph`, the eager model and a `Session` go in, a `Report` with a verdict comes out."""
