"""Rewrite rules: what takes the place of an ATen operator that a target lacks or takes wrongly.

A rule gets a node and returns what stands for it (`common.Rule`). `common.py` holds what every
target uses; the other files hold families of operators, each with a table from operator to rule,
which a target merges as it needs. `formulas.py` and `traced.py` make rules from torch functions.
"""
