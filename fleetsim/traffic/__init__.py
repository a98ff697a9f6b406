"""Traffic: what arrives when, from trace files or from generators calibrated to them."""
