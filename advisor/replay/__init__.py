"""The dependency graph of a trace, played again: what a step would take without some of its work or waits."""
