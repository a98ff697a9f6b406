"""A simulated fleet to run against: engines in virtual time or over real HTTP, a real Envoy, real clients."""
