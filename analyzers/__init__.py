"""Analyze: pure functions from history and the newest frame to findings and measures."""
