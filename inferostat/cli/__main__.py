"""`python -m inferostat.cli`: the command line without its console script."""

from inferostat.cli.main import main

if __name__ == "__main__":
    main()
