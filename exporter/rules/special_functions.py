"""Rules for special functions: what runtimes lack, or compute by formulas that lose digits.

Each is a formula of plain ATen operators (`formulas.py`) that keeps about 1e-6 relative accuracy in
float32, where its docstring says no less, and torch's values at poles, at infinity and beyond the
domain. There are no loops that depend on values: every series has a fixed length.
"""

from __future__ import annotations

from typing import Any

from .bessel import BESSEL_RULES
from .common import Rule
from .comparisons import COMPARISON_RULES
from .elementary import ELEMENTARY_RULES
from .error_functions import ERROR_RULES
from .gamma import GAMMA_RULES
from .incomplete_gamma import INCOMPLETE_GAMMA_RULES
from .modified_bessel import MODIFIED_BESSEL_RULES
from .polynomials import POLYNOMIAL_RULES

__all__ = ["SPECIAL_RULES"]

SPECIAL_RULES: dict[Any, Rule] = {
    **ELEMENTARY_RULES,
    **ERROR_RULES,
    **GAMMA_RULES,
    **INCOMPLETE_GAMMA_RULES,
    **BESSEL_RULES,
    **MODIFIED_BESSEL_RULES,
    **POLYNOMIAL_RULES,
    **COMPARISON_RULES,
}
