"""The simulated fleet in virtual time."""
