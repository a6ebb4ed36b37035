"""`python -m mail.cli`."""

from mail.cli import main

main()
