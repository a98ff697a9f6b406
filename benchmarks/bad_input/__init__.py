"""Every bad input, really produced, and what the user sees of it: `python -m benchmarks.bad_input`."""
