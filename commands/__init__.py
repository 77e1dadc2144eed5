"""The parts of the command line: options that commands share, and the commands that check.

Arguments of click go in; calls of the API, text and exit codes come out. `cli.py` puts them
together.
"""
