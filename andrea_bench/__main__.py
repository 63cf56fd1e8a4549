"""`python -m andrea_bench` and the console script `andrea-bench`."""

from andrea_bench.cli.main import script as main

if __name__ == "__main__":
    main()
