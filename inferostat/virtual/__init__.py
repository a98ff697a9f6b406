"""The unchanged agent in virtual time: its bodies and its levers are those of the simulated fleet, nothing else is."""

from inferostat.virtual.agent import POLICY, VirtualAgent, play, play_agent

__all__ = ["POLICY", "VirtualAgent", "play", "play_agent"]
