"""`python -m atoll`: the command line, without a script on PATH."""

from atoll.cli.main import main

if __name__ == "__main__":
    main()
