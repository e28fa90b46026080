"""How a scorer is specified: its parameters, the registry of types, and building one from a specification."""
