"""Results as files: maps, pages."""
