// What hands do to the sequence diagram: dragging, wheel, clicks, and the strip above it that shows the whole run.

/** Dragging, wheel and clicks on the diagram. */
class Pointer {
  constructor(sequence) {
    this.sequence = sequence;
    this.touches = new Map();
    const { canvas } = sequence;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.touches.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => { sequence.hover = -1; sequence.draw(); });
    canvas.addEventListener("dblclick", (event) => sequence.zoom(2.5, this.share(event)));
  }

  share(event) {
    const { gutter, width } = this.sequence;
    return Math.min(1, Math.max(0, (event.offsetX - gutter) / (width - gutter - 12)));
  }

  wheel(event) {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.sequence.pan((event.deltaX || event.deltaY) / this.sequence.width);
    } else this.sequence.zoom(Math.exp(-event.deltaY / 400), this.share(event));
  }

  down(event) {
    this.sequence.canvas.setPointerCapture(event.pointerId);
    this.touches.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.still = this.touches.size === 1;
  }

  move(event) {
    const { sequence, touches } = this, last = touches.get(event.pointerId);
    if (!last) {
      const hover = sequence.near(event.offsetX, event.offsetY);
      sequence.canvas.style.cursor = hover < 0 ? "grab" : "pointer";
      if (hover !== sequence.hover) {
        Object.assign(sequence, { hover }).draw();
        sequence.canvas.title = hover < 0 ? "" : `${sequence.labelOf(hover)}: ${sequence.run.texts[sequence.run.text[hover]]}`;
      }
      return;
    }
    const [dx, dy] = [event.offsetX - last.x, event.offsetY - last.y];
    if (this.still && Math.hypot(dx, dy) < 4) return;
    this.still = false;
    if (touches.size === 2) this.pinch(event, last);
    else {
      sequence.pan(-dx / (sequence.width - sequence.gutter));
      sequence.host.scrollTop -= dy;
    }
    touches.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  }

  /** Two fingers: their distance is the zoom. */
  pinch(event, last) {
    const other = [...this.touches].find(([id]) => id !== event.pointerId)[1];
    const before = Math.max(20, Math.abs(last.x - other.x)), after = Math.max(20, Math.abs(event.offsetX - other.x));
    this.sequence.zoom(after / before, this.share({ offsetX: (event.offsetX + other.x) / 2 }));
  }

  up(event) {
    const { sequence } = this;
    this.touches.delete(event.pointerId);
    if (!this.still) return;
    const place = sequence.near(event.offsetX, event.offsetY);
    if (place >= 0) sequence.pick(place);
  }
}

/** The whole run, small: how many messages there are where, errors in red, and what is in sight. */
class Overview {
  constructor(sequence, canvas) {
    Object.assign(this, { sequence, canvas, bins: [] });
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); this.start = event.offsetX; });
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
  }

  /** Counts again. */
  count() {
    const { run, places, axis } = this.sequence, width = 600;
    this.bins = Array.from({ length: width }, () => [0, 0]);
    places.forEach((place) => {
      const bin = Math.min(width - 1, Math.max(0, Math.floor((axis.at(run.begin[place]) / axis.length) * width)));
      this.bins[bin][run.is(place, FAILED | PROBLEM | OPEN) ? 1 : 0] += 1;
    });
  }

  draw(ink) {
    const { canvas, sequence } = this, ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const most = Math.sqrt(Math.max(1, ...this.bins.map(([a, b]) => a + b))), step = width / this.bins.length;
    this.bins.forEach(([good, bad], bin) => {
      const tall = (Math.sqrt(good + bad) / most) * (height - 4);
      pen.fillStyle = ink.forward;
      pen.globalAlpha = 0.6;
      pen.fillRect(bin * step, height - tall, Math.max(1, step), tall);
      pen.fillStyle = ink.error;
      pen.globalAlpha = 1;
      if (bad) pen.fillRect(bin * step, height - Math.max(5, (tall * bad) / (good + bad)), Math.max(1.5, step), height);
    });
    const at = (unit) => Math.min(width, Math.max(0, (unit / sequence.axis.length) * width));
    const [left, right] = [at(sequence.from), Math.max(at(sequence.to), at(sequence.from) + 3)];
    pen.globalAlpha = 0.75;
    pen.fillStyle = ink.card;
    pen.fillRect(0, 0, left, height);
    pen.fillRect(right, 0, width - right, height);
    pen.globalAlpha = 1;
    pen.strokeStyle = ink.chosen;
    pen.strokeRect(left + 0.5, 0.5, right - left - 1, height - 1);
  }

  unit(x) { return (x / this.canvas.clientWidth) * this.sequence.axis.length; }

  drag(event) {
    if (this.start === undefined || Math.abs(event.offsetX - this.start) < 4) return;
    const [a, b] = [this.start, event.offsetX].sort((x, y) => x - y);
    this.sequence.look(this.unit(a), this.unit(b));
    this.dragged = true;
  }

  release(event) {
    const { sequence } = this, half = (sequence.to - sequence.from) / 2, at = this.unit(event.offsetX);
    if (!this.dragged) sequence.look(at - half, at + half);
    this.start = undefined;
    this.dragged = false;
  }
}
