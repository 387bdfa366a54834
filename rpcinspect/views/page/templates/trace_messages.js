// The tab of messages: what is typed and ticked, the diagram, and the list below it.

class Messages {
  /** `open(index)` shows a message in full. */
  constructor(run, open) {
    this.run = run;
    this.open = open;
    this.places = new Int32Array(0);
    this.input = document.getElementById("search");
    this.errors = document.getElementById("only-errors");
    this.inView = document.getElementById("only-in-view");
    this.mode = document.getElementById("axis");
    this.status = document.getElementById("status");
    this.kinds = this.makeKinds();
    const narrow = matchMedia("(max-width: 720px)");
    this.rows = new Rows(document.getElementById("rows"), {
      height: () => (narrow.matches ? 46 : 26), label: "messages", make: (n) => this.row(this.listed[n]), pick: (n) => this.choose(this.listed[n]),
    });
    this.sequence = new Sequence(run, {
      host: document.getElementById("sequence"), canvas: document.getElementById("canvas"), overview: document.getElementById("overview-strip"),
      pick: (place) => this.choose(place), moved: () => this.moved(),
    });
    this.listen();
    this.filter();
  }

  /** A switch for each kind of messages that there is. */
  makeKinds() {
    const host = document.getElementById("kinds"), counts = new Map();
    this.run.kind.forEach((kind) => counts.set(kind, (counts.get(kind) ?? 0) + 1));
    return this.run.kinds.map((name, kind) => {
      const all = counts.get(kind) === this.run.count; // a run of nothing but housekeeping is not empty
      const box = el("input", { type: "checkbox", checked: name !== "housekeeping" || all, on: { change: () => this.filter() } });
      if (counts.has(kind)) {
        host.append(el("label", { class: `kind ${name}` }, box, el("i", { "aria-hidden": "true" }), `${name} `, el("span", { class: "soft" }, counts.get(kind).toLocaleString("en"))));
      }
      return box;
    });
  }

  listen() {
    let waiting = 0;
    this.input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.filter(), 60);
    });
    this.errors.addEventListener("change", () => this.filter());
    this.inView.addEventListener("change", () => this.list());
    this.mode.addEventListener("change", () => this.filter());
    const { sequence } = this;
    const acts = { "zoom-in": () => sequence.zoom(1.8), "zoom-out": () => sequence.zoom(1 / 1.8), "zoom-all": () => sequence.fit() };
    for (const [id, act] of Object.entries(acts)) document.getElementById(id).addEventListener("click", act);
  }

  /** Applies what is typed and ticked. */
  filter() {
    this.places = placesOf(this.run, {
      text: this.input.value, kinds: this.kinds.map((box) => box.checked), errors: this.errors.checked,
    });
    this.sequence.show(this.places, this.mode.value);
    this.list();
  }

  /** Types something for the user: only what concerns a context or a finding. */
  ask(text) {
    this.input.value = text;
    this.errors.checked = false;
    this.kinds.forEach((box) => { box.checked = true; });
    this.filter();
    this.sequence.fit();
  }

  moved() {
    if (this.inView?.checked) this.list();
  }

  /** Fills the list. */
  list() {
    this.listed = this.inView.checked ? this.sequence.inSight() : this.places;
    this.rows.reset(this.listed.length, this.listed.indexOf(this.sequence.selected));
    const all = counted(this.run.count, "message");
    this.status.textContent = this.listed.length === this.run.count ? all : `${this.listed.length.toLocaleString("en")} of ${all}`;
  }

  choose(place) { this.open(this.run.index[place]); }

  /** Marks a message that was opened, here or elsewhere. */
  mark(place) {
    this.sequence.reveal(place);
    this.rows.select(this.listed.indexOf(place));
  }

  row(place) {
    const { run } = this, failed = run.is(place, FAILED | PROBLEM);
    const request = run.is(place, REQUEST), partner = run.partnerOf(place), latency = run.latency(place);
    const took = !request && latency !== null ? duration(latency) : run.is(place, OPEN) ? "no answer" : "";
    return el("div", { class: `row ${run.kindOf(place)}${failed || run.is(place, OPEN) ? " bad" : ""}` },
      el("span", { class: "n" }, `#${run.index[place]}`),
      el("span", { class: "n time" }, (run.begin[place] / 1e6).toFixed(3)),
      el("span", { class: "ends" }, `${run.lanes[run.src[place]]} → ${run.lanes[run.dst[place]]}`),
      el("span", { class: "type" }, el("i", { "aria-hidden": "true" }), run.types[run.type[place]]),
      el("span", { class: "n took" }, took),
      el("span", { class: "text" }, !request && partner !== null ? `#${partner} ` : "", run.texts[run.text[place]]));
  }
}
