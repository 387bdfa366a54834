"""`python -m rpcinspect`."""

from rpcinspect.cli import main

main()
