"""What must hold for every network: each check takes a case, and raises where it does not hold."""
