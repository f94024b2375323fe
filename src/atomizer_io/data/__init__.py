"""What was observed and what is predicted: atoms, acquisitions, channels, grids, samples, tasks, sensors."""
