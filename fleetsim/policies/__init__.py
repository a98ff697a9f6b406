"""What others do about the same fleet: their policies after their documented formulas, and a bound for all of them."""
