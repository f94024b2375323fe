"""Points of airborne LiDAR on terrain, sensors and densities that training did not have."""
