"""`python -m lazygumbel` is the command `lazygumbel`."""

from lazygumbel.cli import main

if __name__ == "__main__":
    main()
