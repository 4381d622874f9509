"""A board of curves in one HTML file, for those who watch a run in a browser."""

from pathlib import Path


class Board:
    """Keeps the points of every curve."""

    def __init__(self, path):
        self.path = Path(path)
        self.curves = {}

    def add(self, step, **values):
        """One point for each curve."""
        for name, value in values.items():
            self.curves.setdefault(name, []).append((step, value))

    def draw(self):
        """Writes all curves, smoothed, as polylines."""
        parts = []
        for name, points in self.curves.items():
            top = max(value for _, value in points) or 1.0
            smooth, line = points[0][1], []
            for step, value in points:
                smooth = 0.9 * smooth + 0.1 * value
                line.append(f"{step:.1f},{200 - 180 * smooth / top:.2f}")
            parts.append(f"<h3>{name}</h3><svg><polyline points='{' '.join(line)}'/></svg>")
        self.path.write_text("<html>" + "".join(parts) + "</html>")
