"""Bar charts as SVG."""


def pairs(title, rows):
    """A grey bar for the peer and a blue one for Holdfast per row (name, peer, ours)."""
    if not rows:
        return ""
    scale = 420 / max(max(peer, ours) for _, peer, ours in rows)
    height = 30 + 34 * len(rows)
    svg = ['<svg xmlns="http://www.w3.org/2000/svg" width="780" height="%d" font-family="sans-serif" font-size="12">' % height,
           '<rect width="100%" height="100%" fill="#fff"/>', '<text x="8" y="18">%s</text>' % title]
    for i, (name, peer, ours) in enumerate(rows):
        y = 30 + 34 * i
        svg.append('<text x="8" y="%d">%s</text>' % (y + 18, name))
        for value, colour, dy in ((peer, "#999", 0), (ours, "#2b6cb0", 14)):
            svg.append('<rect x="290" y="%d" width="%.1f" height="12" fill="%s"/><text x="%.1f" y="%d">%.1f</text>' % (
                y + dy, value * scale, colour, 296 + value * scale, y + dy + 11, value))
    return "\n".join(svg + ["</svg>"]) + "\n"


COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#4a5568")


def lines(title, unit, series, marks=(), across="s"):
    """A line for each (name, [(x, y)…]), and a dashed one across for each mark (name, y)."""
    width, height, left, top = 780, 300, 70, 34
    right, bottom = width - 200, height - 36
    points = [point for _, line in series for point in line]
    if not points:
        return ""
    most_x = max(x for x, _ in points) or 1
    most_y = 1.08 * (max([y for _, y in points] + [y for _, y in marks]) or 1)
    at = lambda x, y: "%.1f,%.1f" % (left + (right - left) * x / most_x, bottom - (bottom - top) * y / most_y)
    svg = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (width, height),
           '<rect width="100%" height="100%" fill="#fff"/>', '<text x="8" y="18">%s</text>' % title]
    for tick in range(5):
        y = bottom - (bottom - top) * tick / 4
        svg.append('<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>' % (
            left, y, right, left - 6, y + 4, most_y * tick / 4))
        x = left + (right - left) * tick / 4
        svg.append('<text x="%.1f" y="%d" text-anchor="middle">%.0f %s</text>' % (x, bottom + 18, most_x * tick / 4, across))
    svg.append('<text x="8" y="%d">%s</text>' % (height - 6, unit))
    for name, y in marks:
        svg.append('<polyline points="%s %s" fill="none" stroke="#e53e3e" stroke-dasharray="5 4"/>' % (at(0, y), at(most_x, y)))
        svg.append('<text x="%d" y="%s" fill="#e53e3e">%s</text>' % (right + 8, at(0, y).split(",")[1], name))
    for number, (name, line) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        svg.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>' % (" ".join(at(x, y) for x, y in line), colour))
        y = top + 18 * number
        svg.append('<rect x="%d" y="%d" width="12" height="4" fill="%s"/><text x="%d" y="%d">%s</text>' % (
            right + 8, y + 50, colour, right + 26, y + 56, name))
    return "\n".join(svg + ["</svg>"]) + "\n"
