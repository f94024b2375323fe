"""From labels to a map: training, prediction, accuracy, prediction sets and a report, in one call."""
