"""ExecuTorch: a program for phones and smaller, run on its Python runtime."""
