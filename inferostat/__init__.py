"""The agent: sense, analyze, decide, act."""

VERSION = "0.1.0"
