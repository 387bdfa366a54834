// Where words beside arrows find room: never over a lane, another arrow or other words.
// A box is [left, top, right, bottom].

const COLUMN = 24; // pixels; arrows are looked for by the columns that they pass
const SPOTS = [0.5, 0.3, 0.7, 0.15, 0.85];

class Labels {
  /** `lines` of all that is drawn, heights of `lanes`, the ends of the room. */
  constructor(lines, lanes, left, right) {
    Object.assign(this, { lanes, left, right, columns: new Map() });
    lines.forEach(([x1, y1, x2, y2]) => {
      if (y1 === y2) this.add([x1, y1 - 20, x2 + 10, y1], { box: [x1 - 2, y1 - 18, x2 + 12, y1] });
      else this.add([Math.min(x1, x2), 0, Math.max(x1, x2), 0], { line: [x1, y1, x2, y2] });
    });
  }

  /** Puts what takes room where it will be looked for. */
  add([left, , right], taken) {
    const last = Math.min(right, this.right) / COLUMN;
    for (let column = Math.floor(Math.max(left, this.left) / COLUMN); column <= last; column += 1) {
      if (!this.columns.has(column)) this.columns.set(column, []);
      this.columns.get(column).push(taken);
    }
  }

  take(box) { this.add(box, { box }); }

  /** The place of words of this width beside a line: [x, y] of their base line; null where there is no room. */
  place([x1, y1, x2, y2], width) {
    for (const share of y1 === y2 ? [0] : SPOTS) {
      const y = y1 === y2 ? y1 - 22 : y1 + share * (y2 - y1) + 4, at = (height) => (y1 === y2 ? x1 : x1 + ((height - y1) / (y2 - y1)) * (x2 - x1));
      const ends = [at(y - 10), at(y + 4)];
      for (const x of [Math.max(...ends) + 5, Math.min(...ends) - width - 5]) {
        const box = [x - 2, y - 10, x + width + 2, y + 4];
        if (!this.isFree(box)) continue;
        this.take(box);
        return [x, y];
      }
    }
    return null;
  }

  isFree(box) {
    const [left, top, right, bottom] = box;
    if (left < this.left || right > this.right || top < 20 || this.lanes.some((lane) => lane > top - 5 && lane < bottom + 5)) return false;
    for (let column = Math.floor(left / COLUMN); column <= right / COLUMN; column += 1) {
      if ((this.columns.get(column) ?? []).some((taken) => (taken.box ? meet(taken.box, box) : crosses(taken.line, box)))) return false;
    }
    return true;
  }
}

const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

/** Whether a line passes through a box. */
function crosses([x1, y1, x2, y2], [left, top, right, bottom]) {
  const low = Math.max(top, Math.min(y1, y2)), high = Math.min(bottom, Math.max(y1, y2));
  if (low > high) return false;
  const ends = [low, high].map((y) => x1 + ((y - y1) / (y2 - y1)) * (x2 - x1));
  return Math.max(...ends) > left && Math.min(...ends) < right;
}
