"""`python -m logagent`: the same as `logagent`."""

from logagent.cli.main import main

if __name__ == "__main__":
    main()
