"""Splits and models that only one paper uses; `partition` and `models` have their names."""
