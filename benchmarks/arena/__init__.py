"""The arena: all policies on all scenarios of the library, on the same traffic. `python -m benchmarks.arena`."""
