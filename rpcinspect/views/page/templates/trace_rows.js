// A list of any length: only the rows that can be seen are in the document.
// In: an element that scrolls, and how to make a row. Out: keyboard, selection, scrolling.

class Rows {
  static MAX_HEIGHT = 12e6; // taller elements are cut by browsers: then a pixel stands for more than one

  /** `make(place)` gives the children of a row; `pick(place)` is called when one is chosen. */
  constructor(host, { height, label, make, pick }) {
    Object.assign(this, { host, make, pick, count: 0, selected: -1, rowHeight: height });
    this.space = el("div", { class: "space" });
    this.body = el("div", { class: "window" });
    host.append(this.space, this.body);
    host.tabIndex = 0;
    host.setAttribute("role", "listbox");
    host.setAttribute("aria-label", label);
    host.addEventListener("scroll", () => this.draw());
    host.addEventListener("keydown", (event) => this.key(event));
    host.addEventListener("click", (event) => this.click(event));
    // rows that are there stay as they are, or a click would lose the row under it
    new ResizeObserver(() => this.draw(this.height !== this.drawnHeight)).observe(host);
  }

  get height() { return this.rowHeight(); }
  get total() { return this.count * this.height; }
  /** How many pixels of rows one pixel of scrolling stands for. */
  get scale() {
    const room = Math.max(1, Math.min(this.total, Rows.MAX_HEIGHT) - this.host.clientHeight);
    return Math.max(1, (this.total - this.host.clientHeight) / room);
  }

  /** Shows another number of rows, from the top. */
  reset(count, selected = -1) {
    this.count = count;
    this.selected = selected;
    this.space.style.height = `${Math.min(this.total, Rows.MAX_HEIGHT)}px`;
    this.host.scrollTop = 0;
    this.draw(true);
  }

  /** Makes the rows that can be seen, if they are not those that are there. */
  draw(again = false) {
    const height = this.height, top = this.host.scrollTop * this.scale;
    const first = Math.max(0, Math.floor(top / height) - 2);
    const last = Math.min(this.count, Math.ceil((top + this.host.clientHeight) / height) + 2);
    this.body.style.transform = `translateY(${this.host.scrollTop + first * height - top}px)`;
    if (!again && first === this.first && last === this.last) return;
    Object.assign(this, { first, last, drawnHeight: height });
    const rows = [];
    for (let place = first; place < last; place += 1) rows.push(this.row(place));
    this.body.replaceChildren(...rows);
    const active = this.selected >= first && this.selected < last;
    if (active) this.host.setAttribute("aria-activedescendant", `${this.host.id}-${this.selected}`);
    else this.host.removeAttribute("aria-activedescendant");
  }

  row(place) {
    const row = this.make(place);
    row.id = `${this.host.id}-${place}`;
    row.dataset.place = place;
    row.style.height = `${this.height}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-posinset", place + 1);
    row.setAttribute("aria-setsize", this.count);
    row.setAttribute("aria-selected", place === this.selected);
    return row;
  }

  /** Marks a row and brings it into sight. */
  select(place) {
    this.selected = place;
    if (place >= 0) this.reveal(place);
    this.draw(true);
  }

  reveal(place) {
    const height = this.height, room = this.host.clientHeight;
    const top = this.host.scrollTop * this.scale;
    if (place * height >= top && (place + 1) * height <= top + room) return;
    const wanted = place * height < top ? place * height - room / 4 : (place + 1) * height - (3 * room) / 4;
    this.host.scrollTop = Math.max(0, wanted) / this.scale;
  }

  click(event) {
    const row = event.target.closest("[data-place]");
    if (!row || event.target.closest("a, button") || String(getSelection())) return;
    this.choose(Number(row.dataset.place));
  }

  choose(place) {
    this.select(place);
    this.pick(place);
  }

  key(event) {
    if (event.target !== this.host || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.host.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || !this.count) return;
    event.preventDefault();
    this.choose(Math.min(this.count - 1, Math.max(0, this.selected + steps[event.key])));
  }
}
