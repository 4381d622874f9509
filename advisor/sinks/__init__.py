"""Where a report goes besides files: experiment trackers and pull requests (entry points `advisor.sinks`)."""
