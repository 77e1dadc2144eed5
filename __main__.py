"""`python -m isomorph`."""

from .cli import main

main()
