"""Computes a saved ML Program: its specification and weights go in, tensors come out.

Written from the documentation of the MIL operator set and independent of the converter, so that
an error of either shows. Nothing here imports the converter; only the protobuf classes are its.

`package.py` finds the files, `program.py` reads the specification, `blob.py` the weights,
`interpreter.py` runs functions and blocks, `table.py` names the function of each operator;
the others hold the operators, one file a family.
"""
