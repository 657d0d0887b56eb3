"""`python -m hierbench`."""

from hierbench.cli import main

if __name__ == "__main__":
    main()
