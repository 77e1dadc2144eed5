"""What parity tries: named generators of inputs, and how many of their cases there is time for."""
