"""A `Report` goes in, JSON or terminal text comes out."""
