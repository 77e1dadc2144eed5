"""What an ONNX file means, computed in float64 with torch: the yardstick for the size of a fault.

Written from the ONNX operator documents alone; nothing here knows of Isomorph.
"""

from .evaluating import Model, Values

__all__ = ["Model", "Values"]
