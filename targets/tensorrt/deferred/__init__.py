"""A package that builds an engine on its device: a `Graph` goes in, a folder comes out."""
