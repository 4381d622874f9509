"""What the machine of a run is able to do, measured there: rates and costs that savings are computed from."""
