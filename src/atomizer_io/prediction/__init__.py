"""Predictions as files of the field."""
