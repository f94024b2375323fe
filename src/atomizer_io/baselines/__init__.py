"""Rivals to compare with."""
