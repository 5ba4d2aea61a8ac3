"""Topics as their followers see them: texts of events, ranges, channels, the seam of history and live. Sans-I/O."""
