"""A `Graph` goes in, files come out; files go in, a `Session` comes out. One folder per format."""
