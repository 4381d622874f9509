"""The built-in rules: one module, one rule. Found through the entry point group `advisor.rules`, like anybody's."""
