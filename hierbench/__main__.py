"""`python -m hierbench`."""

from hierbench.cli.main import main

if __name__ == "__main__":
    main()
