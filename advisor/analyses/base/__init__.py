"""What every other analysis needs: steps, names, the call tree, the links of launches, the scale."""
