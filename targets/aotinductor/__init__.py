"""AOTInductor: a package of machine code, run through torch's own loader."""
