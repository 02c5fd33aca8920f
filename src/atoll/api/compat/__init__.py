"""Façades: the APIs of other vendors, spoken over the same control."""
