"""What coding agents and other programs use: schemas of our files, the MCP server, the skill and its set-up."""
