"""`python -m phonograd`."""

from phonograd.cli import main

main()
