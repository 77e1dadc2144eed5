"""A checkpoint goes in, a `Graph` comes out (and `pipeline.export` drives the rest)."""
