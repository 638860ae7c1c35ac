"""How often small models' calls are right, and what each rung of the guard adds to that."""
