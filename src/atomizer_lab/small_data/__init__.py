"""Seven small real tasks with one recipe for all, beside a forest and a regression of single pixels or places."""
