"""A `Graph` goes in, a TorchScript file comes out; the file goes in, a session comes out."""
