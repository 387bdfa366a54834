// How messages are drawn: styles, lines, tips of arrows, text that fits; and how near a point is to a line.
// A line is [x, y, x, y].

const STYLES = ["housekeeping answer", "housekeeping", "call answer", "call", "forward answer", "forward",
  "backward answer", "backward", "error answer", "error"]; // from the bottom up

/** A line from lane to lane; what stays on its lane goes around. */
function trace(path, [x1, y1, x2, y2]) {
  path.moveTo(x1, y1);
  if (y1 === y2) path.bezierCurveTo(x1, y1 - 20, x2 + 10, y1 - 20, x2 + 10, y1);
  else path.lineTo(x2, y2);
}

/** The tip of an arrow. */
function head(path, [x1, y1, x2, y2]) {
  const loop = y1 === y2;
  const [x, y] = loop ? [x2 + 10, y2] : [x2, y2];
  const angle = loop ? Math.PI / 2 : Math.atan2(y2 - y1, x2 - x1);
  for (const side of [-1, 1]) {
    path.moveTo(x, y);
    path.lineTo(x - 8 * Math.cos(angle + side * 0.42), y - 8 * Math.sin(angle + side * 0.42));
    if (side < 0) path.lineTo(x - 8 * Math.cos(angle - side * 0.42), y - 8 * Math.sin(angle - side * 0.42));
  }
}

/** How far a point is from a line. */
function distance([x1, y1, x2, y2], x, y) {
  if (y1 === y2) return Math.hypot(x - x1 - 5, y - y1 + 8);
  const [dx, dy] = [x2 - x1, y2 - y1];
  const share = Math.min(1, Math.max(0, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy)));
  return Math.hypot(x - x1 - share * dx, y - y1 - share * dy);
}

/** Text that is cut to a width. */
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}

/** The colours of the page, as its style has them now. */
function inks(element) {
  const style = getComputedStyle(element), read = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ink", "soft", "line", "card", "gap", "lane", "chosen", "call", "forward", "backward", "housekeeping", "error"];
  return Object.fromEntries(names.map((name) => [name, read(name)]));
}
