"""Where an artifact leaves the truth.

A failed report goes in (with graph, reference and artifact), a `Localization` comes out: the stage
that is wrong, the first operator whose output leaves the noise floor while its inputs are within
it, and the way the error takes through the graph.
"""

from .finding import localize, located

__all__ = ["localize", "located"]
