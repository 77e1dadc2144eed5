"""Rules for linear algebra, order statistics and distances, which most runtimes lack.

Each is a torch function over plain operators (arithmetic, comparisons, slices, products), traced on
the node's own fake inputs. Sizes of matrices must be known and small, batch axes may be dynamic.
"""

from __future__ import annotations

import torch

from .common import Rule
from .order_statistics import ORDER_RULES
from .orthogonal import ORTHOGONAL_RULES
from .products import PRODUCT_RULES
from .scans import SCAN_RULES
from .spectral import SPECTRAL_RULES
from .statistics import STATISTICS_RULES
from .triangular import TRIANGULAR_RULES

__all__ = ["LINALG_RULES"]

LINALG_RULES: dict[torch._ops.OpOverload, Rule] = {
    **TRIANGULAR_RULES,
    **ORTHOGONAL_RULES,
    **SPECTRAL_RULES,
    **STATISTICS_RULES,
    **SCAN_RULES,
    **ORDER_RULES,
    **PRODUCT_RULES,
}
