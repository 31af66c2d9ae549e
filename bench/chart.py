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
