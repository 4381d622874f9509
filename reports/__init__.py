"""The built-in reporters: each is a `render(report) -> str`, found through the entry point group `advisor.reports`."""
