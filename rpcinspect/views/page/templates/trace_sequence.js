// The sequence diagram: workers as lanes, time to the right, messages as lines from lane to lane.
// In: a run, a canvas, the places to show. Out: drawing; zoom, pan and picking by pointer and keyboard.

const DETAILED = 1500; // so many messages in sight get arrow heads and busy times
const LABELLED = 500;
const THICK = { forward: 1.6, backward: 1.6, call: 1.4, housekeeping: 1 };

class Sequence {
  static TALLEST = 8000; // pixels; browsers draw no canvas that is much taller

  /** `pick(place)` is called when a message is chosen, `moved(from, to)` with times when the view changes. */
  constructor(run, { host, canvas, overview, pick, moved }) {
    Object.assign(this, { run, host, canvas, pick, moved, selected: -1, hover: -1, frame: 0 });
    this.places = new Int32Array(0);
    this.axis = AXES.time(run, this.places);
    this.setLanes();
    this.from = 0;
    this.to = 1;
    this.map = new Overview(this, overview);
    new Pointer(this);
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(host);
    host.addEventListener("scroll", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Shows other messages, or the same on another axis; keeps the times in sight where it can. */
  show(places, mode) {
    const whole = this.from <= 0 && this.to >= this.axis.length;
    const times = [this.axis.back(this.from), this.axis.back(this.to)];
    Object.assign(this, { places, axis: AXES[mode](this.run, places) });
    this.setLanes();
    this.longest = places.reduce((most, place) => Math.max(most, this.run.took[place]), 0);
    this.map.count();
    if (whole) this.look(0, this.axis.length);
    else this.look(this.axis.at(times[0]), this.axis.at(times[1]));
  }

  /** Workers that send or receive something have lanes; of nothing all have. */
  setLanes() {
    const used = new Set();
    this.places.forEach((place) => used.add(this.run.src[place]).add(this.run.dst[place]));
    this.lanes = [...this.run.lanes.keys()].filter((worker) => !used.size || used.has(worker));
    this.laneOf = new Map(this.lanes.map((worker, lane) => [worker, lane]));
  }

  /** Moves the view to a range of units. */
  look(from, to) {
    const margin = 0.02 * this.axis.length;
    const width = Math.min(Math.max(to - from, this.smallest), this.axis.length + 2 * margin);
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(middle - width / 2, -margin), this.axis.length + margin - width);
    this.to = this.from + width;
    this.moved(this.axis.back(this.from), this.axis.back(this.to));
    this.draw();
  }

  get smallest() { return this.axis.order ? 3 : Math.min(this.axis.length, 2000); } // messages; nanoseconds
  fit() { this.look(0, this.axis.length); }

  /** Makes everything `factor` times as large around a share of the width. */
  zoom(factor, share = 0.5) {
    const width = (this.to - this.from) / factor, fixed = this.from + share * (this.to - this.from);
    this.look(fixed - share * width, fixed + (1 - share) * width);
  }

  pan(share) {
    const by = share * (this.to - this.from);
    this.look(this.from + by, this.to + by);
  }

  /** Brings a message into sight, near enough to be told from its neighbours. */
  reveal(place) {
    this.selected = place;
    this.revealLanes(place);
    const at = this.axis.at(this.run.begin[place]);
    const inSight = at >= this.from && at <= this.to && this.inSight().length <= LABELLED;
    if (inSight) return this.draw();
    const partner = this.run.partnerPlace(place);
    const span = partner < 0 ? 0 : Math.abs(this.axis.at(this.run.begin[partner]) - at);
    const width = Math.max(3 * span, 40 * (this.axis.length / Math.max(1, this.places.length)));
    return this.look(at - width / 2, at + width / 2);
  }

  /** Scrolls to the lane of the receiver, if there are so many that it is out of sight. */
  revealLanes(place) {
    if (place < 0 || !this.lane) return;
    const y = this.y(this.run.dst[place]), top = this.host.scrollTop, room = this.host.clientHeight;
    if (y < top + 30 || y > top + room - 20) this.host.scrollTop = y - room / 2;
  }

  /** Places of which a part can be seen. */
  inSight() {
    const { run, places } = this;
    const from = this.axis.back(this.from), to = this.axis.back(this.to);
    let low = 0, high = places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (run.begin[places[middle]] < from - this.longest) low = middle + 1;
      else high = middle;
    }
    let end = low;
    while (end < places.length && run.begin[places[end]] <= to) end += 1;
    return places.subarray(low, end);
  }

  // --- the layout -----------------------------------------------------------------------------------------

  measure() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.host.clientWidth;
    const lanes = this.lanes.length;
    this.gutter = width > 640 ? 132 : 0;
    this.lane = Math.max(26, Math.min(150, (this.host.clientHeight - 44) / Math.max(1, lanes)));
    this.lane = Math.min(this.lane, Sequence.TALLEST / Math.max(1, lanes));
    this.top = 34;
    const height = Math.max(this.host.clientHeight, this.top + lanes * this.lane);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    Object.assign(this, { width, height });
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return pen;
  }

  x(time) { return this.xOf(this.axis.at(time)); }
  xOf(unit) { return this.gutter + ((unit - this.from) / (this.to - this.from)) * (this.width - this.gutter - 12); }
  y(worker) { return this.top + ((this.laneOf.get(worker) ?? 0) + 0.5) * this.lane; }

  // --- drawing --------------------------------------------------------------------------------------------

  draw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.paint(); });
  }

  paint() {
    if (!this.host.clientWidth) return; // another tab is open
    const pen = this.measure(), ink = inks(this.canvas);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = "11px system-ui, sans-serif";
    const places = this.inSight();
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.width - this.gutter, this.height);
    pen.clip();
    const ticks = this.drawAxis(pen, ink);
    this.drawLanes(pen, ink);
    if (places.length <= DETAILED) this.drawBusy(pen, ink, places);
    this.drawLines(pen, ink, places);
    if (places.length <= LABELLED) this.drawLabels(pen, ink, places);
    this.drawChosen(pen, ink);
    this.drawTimes(pen, ink, ticks);
    pen.restore();
    this.drawNames(pen, ink);
    this.map.draw(ink);
    Object.assign(this.canvas.dataset, { inSight: places.length, lanes: this.lanes.length });
  }

  drawAxis(pen, ink) {
    const gap = (110 * (this.to - this.from)) / (this.width - this.gutter);
    const ticks = ticksOf(this.axis, this.from, this.to, gap);
    pen.strokeStyle = ink.line;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const [unit] of ticks) {
      const x = Math.round(this.xOf(unit)) + 0.5;
      pen.moveTo(x, 20);
      pen.lineTo(x, this.height);
    }
    pen.stroke();
    this.axis.breaks.forEach(([a, b]) => this.drawBreak(pen, ink, a, b));
    return ticks;
  }

  /** The times stay in sight where there are more lanes than there is room for. */
  drawTimes(pen, ink, ticks) {
    const top = this.host.scrollTop;
    pen.fillStyle = ink.card;
    pen.fillRect(this.gutter, top, this.width, 19);
    pen.fillStyle = ink.soft;
    pen.font = "11px system-ui, sans-serif";
    for (const [unit, words] of ticks) pen.fillText(words, Math.round(this.xOf(unit)) + 4, top + 14);
  }

  /** A pause that was made short: hatched, with its length. */
  drawBreak(pen, ink, a, b) {
    const left = this.x(a), right = this.x(b);
    if (right < this.gutter || left > this.width) return;
    pen.save();
    pen.beginPath();
    pen.rect(left, 20, right - left, this.height);
    pen.fillStyle = ink.gap;
    pen.fill();
    pen.clip();
    pen.strokeStyle = ink.line;
    pen.beginPath();
    for (let y = 20 - (right - left); y < this.height; y += 8) {
      pen.moveTo(left, y);
      pen.lineTo(right, y + (right - left));
    }
    pen.stroke();
    pen.restore();
    if (right - left < 14) return;
    const words = duration(b - a);
    pen.save();
    pen.translate((left + right) / 2 + 4, Math.min(this.height - 8, this.host.scrollTop + this.host.clientHeight - 12));
    pen.rotate(-Math.PI / 2);
    pen.fillStyle = ink.gap;
    pen.fillRect(-3, -10, pen.measureText(words).width + 6, 13);
    pen.fillStyle = ink.soft;
    pen.fillText(words, 0, 0);
    pen.restore();
  }

  drawLanes(pen, ink) {
    pen.strokeStyle = ink.lane;
    pen.lineWidth = 1;
    pen.beginPath();
    this.lanes.forEach((worker) => {
      const y = Math.round(this.y(worker)) + 0.5;
      pen.moveTo(this.gutter, y);
      pen.lineTo(this.width, y);
    });
    pen.stroke();
  }

  /** The workers' names: beside the lanes, on narrow screens above them. */
  drawNames(pen, ink) {
    pen.font = "600 12px system-ui, sans-serif";
    this.lanes.forEach((worker) => {
      const y = this.y(worker);
      const cut = fitted(pen, this.run.lanes[worker], this.gutter ? this.gutter - 14 : this.width / 2);
      if (this.gutter) {
        pen.fillStyle = ink.ink;
        pen.fillText(cut, 8, y + 4);
        return;
      }
      pen.fillStyle = ink.card;
      pen.globalAlpha = 0.8;
      pen.fillRect(2, y - 17, pen.measureText(cut).width + 8, 15);
      pen.globalAlpha = 1;
      pen.fillStyle = ink.ink;
      pen.fillText(cut, 6, y - 6);
    });
  }

  /** How long callees were busy with requests. */
  drawBusy(pen, ink, places) {
    const { run } = this;
    pen.globalAlpha = 0.28;
    for (const place of places) {
      const answer = run.is(place, REQUEST) ? run.partnerPlace(place) : -1;
      if (answer < 0) continue;
      const left = this.x(run.end(place)), right = this.x(run.begin[answer]);
      pen.fillStyle = run.is(answer, FAILED) ? ink.error : ink[run.kindOf(place)];
      pen.fillRect(left, this.y(run.dst[place]) - 4, Math.max(1, right - left), 8);
    }
    pen.globalAlpha = 1;
  }

  /** All lines of a colour and a dash at once; where many fall on the same pixels, one of them. */
  drawLines(pen, ink, places) {
    const paths = new Map(), heads = new Map(), dense = places.length > DETAILED;
    const drawn = dense ? this.thinned(places) : places;
    for (const place of drawn) {
      const style = this.styleOf(place), line = this.lineOf(place);
      if (!paths.has(style)) paths.set(style, new Path2D());
      if (!heads.has(style)) heads.set(style, new Path2D());
      trace(paths.get(style), line);
      if (!dense) head(heads.get(style), line);
    }
    const alpha = dense ? Math.max(0.15, Math.min(0.8, 2000 / drawn.length)) : 0.95;
    for (const style of STYLES) {
      if (!paths.has(style)) continue;
      const answer = style.endsWith(" answer"), name = style.split(" ")[0];
      pen.globalAlpha = name === "error" ? 1 : alpha;
      pen.strokeStyle = pen.fillStyle = ink[name];
      pen.lineWidth = dense ? 1 : THICK[name] ?? 1.8;
      pen.setLineDash(answer && !dense ? [4, 3] : []);
      pen.stroke(paths.get(style));
      pen.setLineDash([]);
      if (answer) pen.stroke(heads.get(style));
      else pen.fill(heads.get(style));
    }
    pen.globalAlpha = 1;
    if (!dense) places.forEach((place) => this.drawMark(pen, ink, place));
  }

  /** At most one message for each column of pixels and pair of lanes: an error where there is one, of the others
      another in each column, so that their colours mix as the messages do. */
  thinned(places) {
    const found = new Map(), { run } = this, lanes = run.lanes.length;
    for (const place of places) {
      const [a, b] = run.src[place] < run.dst[place] ? [run.src[place], run.dst[place]] : [run.dst[place], run.src[place]];
      const column = Math.round(this.x(run.begin[place])), key = (column * lanes + a) * lanes + b;
      const there = found.get(key);
      if (!there) found.set(key, [place]);
      else if (run.is(place, FAILED | PROBLEM)) there.unshift(place);
      else there.push(place);
    }
    return [...found].map(([key, there]) => (run.is(there[0], FAILED | PROBLEM) ? there[0] : there[(key * 7919) % there.length]));
  }

  /** What a line of a message is drawn in. */
  styleOf(place) {
    const { run } = this;
    const name = run.is(place, FAILED | PROBLEM) ? "error" : run.kindOf(place);
    return run.is(place, REQUEST) ? name : `${name} answer`;
  }

  /** [x, y, x, y] */
  lineOf(place) {
    const { run } = this, left = this.x(run.begin[place]);
    return [left, this.y(run.src[place]), Math.max(left, this.x(run.end(place))), this.y(run.dst[place])];
  }

  /** A cross at an error, a ring at a request that nobody answered. */
  drawMark(pen, ink, place) {
    const { run } = this;
    if (!run.is(place, FAILED | PROBLEM | OPEN)) return;
    const [, , x, y] = this.lineOf(place);
    pen.strokeStyle = ink.error;
    pen.lineWidth = 2;
    pen.beginPath();
    if (run.is(place, OPEN)) pen.arc(x, y, 5, 0, 7);
    else {
      pen.moveTo(x - 4, y - 4);
      pen.lineTo(x + 4, y + 4);
      pen.moveTo(x + 4, y - 4);
      pen.lineTo(x - 4, y + 4);
    }
    pen.stroke();
  }

  /** Numbers and names beside lines, where there is room for them: errors first, then requests. */
  drawLabels(pen, ink, places) {
    const { run } = this, rank = (place) => (run.is(place, FAILED | PROBLEM | OPEN) ? 0 : run.is(place, REQUEST) ? 1 : 2);
    const labels = new Labels([...places].map((place) => this.lineOf(place)), this.lanes.map((worker) => this.y(worker)), this.gutter, this.width);
    pen.font = "11px system-ui, sans-serif";
    if (!this.gutter) this.lanes.forEach((worker) => labels.take([0, this.y(worker) - 18, this.width / 2, this.y(worker)]));
    for (const place of [...places].sort((a, b) => rank(a) - rank(b) || a - b)) {
      const line = this.lineOf(place);
      for (const words of new Set([this.labelOf(place), `#${run.index[place]}`])) {
        const text = fitted(pen, words, 190), width = pen.measureText(text).width, spot = labels.place(line, width);
        if (!spot) continue;
        pen.fillStyle = ink.card;
        pen.globalAlpha = 0.8;
        pen.fillRect(spot[0] - 1, spot[1] - 10, width + 2, 13);
        pen.globalAlpha = 1;
        pen.fillStyle = run.is(place, FAILED | PROBLEM) ? ink.error : ink.ink;
        pen.fillText(text, ...spot);
        break;
      }
    }
  }

  labelOf(place) {
    const { run } = this, name = run.functionOf(place);
    if (!run.is(place, REQUEST)) return `#${run.index[place]}`;
    const short = name?.includes("::") ? name : name?.split(".").at(-1); // an operator's overload is no name: aten::add.Tensor
    return `#${run.index[place]} ${short ?? run.types[run.type[place]]}`;
  }

  /** The message that is chosen, or below the pointer, with the one that belongs to it. */
  drawChosen(pen, ink) {
    for (const [place, colour] of [[this.hover, ink.soft], [this.selected, ink.chosen]]) {
      if (place < 0) continue;
      for (const one of [place, this.run.partnerPlace(place)]) {
        if (one < 0) continue;
        const line = this.lineOf(one), path = new Path2D();
        trace(path, line);
        head(path, line);
        pen.strokeStyle = pen.fillStyle = colour;
        pen.lineWidth = one === place ? 3 : 1.5;
        pen.stroke(path);
      }
    }
  }

  // --- picking and keys -----------------------------------------------------------------------------------

  /** The message whose line is nearest to a point; -1 if none is near. */
  near(x, y) {
    let best = -1, least = 9;
    for (const place of this.inSight()) {
      const away = distance(this.lineOf(place), x, y);
      if (away < least) [best, least] = [place, away];
    }
    return best;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      "+": () => this.zoom(1.6), "=": () => this.zoom(1.6), "-": () => this.zoom(1 / 1.6), 0: () => this.fit(),
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), PageUp: () => this.pan(-0.9), PageDown: () => this.pan(0.9),
      Home: () => this.look(0, this.to - this.from), End: () => this.look(this.axis.length - (this.to - this.from), this.axis.length),
      n: () => this.step(1), p: () => this.step(-1),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  /** The next or the one before the chosen one. */
  step(by) {
    const at = lastAtMost(this.places, this.selected);
    const next = this.selected < 0 ? this.inSight()[0] : this.places[Math.min(Math.max(at + by, 0), this.places.length - 1)];
    if (next !== undefined) this.pick(next);
  }
}
