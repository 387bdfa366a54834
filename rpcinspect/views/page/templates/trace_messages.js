// The tab of calls and messages: what is typed and ticked, the diagram, and the list below it.

/** Heads of both lists: [name, class, what sorts by it]. */
const CALL_HEADS = [["#", "n", "index"], ["answer", "n", "partner"], ["ms", "n time", "begin"], ["caller → callee", "ends", "ends"], ["took", "n took", "latency"], ["call and result", "text", "short"]];
const MESSAGE_HEADS = [["#", "n", "index"], ["ms", "n time", "begin"], ["from → to", "ends", "ends"], ["type", "type", "type"], ["took", "n took", "latency"], ["size", "n size", "nbytes"], ["what it says", "text", "text"]];
const DEEPEST = 8;

class Messages {
  /** `open(index)` shows a message in full. */
  constructor(run, filters, open) {
    Object.assign(this, { run, filters, open, calls: true, sort: ["index", false], matched: null });
    this.isJoined = Uint8Array.from(run.flags, (flags, place) => !(flags & REQUEST) && run.partnerPlace(place) >= 0);
    this.count = this.isJoined.reduce((count, joined) => count + !joined, 0);
    this.input = document.getElementById("search");
    this.mistake = document.getElementById("mistake");
    this.inView = document.getElementById("only-in-view");
    this.mode = document.getElementById("axis");
    this.status = document.getElementById("status");
    this.head = document.getElementById("row-head");
    this.kinds = this.makeKinds();
    this.countKinds();
    const narrow = matchMedia("(max-width: 720px)");
    this.rows = new Rows(document.getElementById("rows"), {
      height: () => (narrow.matches ? 46 : 26), label: "calls and messages", make: (n) => this.row(n), pick: (n) => this.choose(this.listed[n]),
    });
    this.sequence = new Sequence(run, {
      host: document.getElementById("sequence"), canvas: document.getElementById("canvas"), overview: document.getElementById("overview-strip"),
      pick: (place) => this.choose(place), moved: () => this.moved(),
    });
    this.listen();
    this.show();
  }

  /** A switch for each kind of messages that there is. */
  makeKinds() {
    const host = document.getElementById("kinds");
    this.kindCounts = this.run.kinds.map(() => el("span", { class: "soft" }));
    return this.run.kinds.map((name, kind) => {
      const count = this.run.kind.filter((one) => one === kind).length, all = count === this.run.count; // a run of nothing but housekeeping is not empty
      const box = el("input", { type: "checkbox", checked: name !== "housekeeping" || all, on: { change: () => this.show() } });
      if (count) host.append(el("label", { class: `kind ${name}` }, box, el("i", { "aria-hidden": "true" }), `${name} `, this.kindCounts[kind]));
      return box;
    });
  }

  /** Says beside each switch how many lines of the list it stands for. */
  countKinds() {
    const counts = this.run.kinds.map(() => 0);
    this.run.kind.forEach((kind, place) => { if (!this.joined(place)) counts[kind] += 1; });
    this.kindCounts.forEach((host, kind) => { host.textContent = counts[kind].toLocaleString("en"); });
  }

  listen() {
    let waiting = 0;
    this.input.addEventListener("input", () => {
      this.busy(true);
      clearTimeout(waiting);
      waiting = setTimeout(() => this.filter(), 120);
    });
    this.input.addEventListener("change", () => { // Enter; also a click elsewhere, which must find its row again
      if (this.input.value.trim() === this.applied) return;
      this.busy(true);
      clearTimeout(waiting);
      this.filter();
    });
    this.inView.addEventListener("change", () => this.fill());
    this.mode.addEventListener("change", () => this.show());
    const { sequence } = this;
    const acts = { "zoom-in": () => sequence.zoom(1.8), "zoom-out": () => sequence.zoom(1 / 1.8), "zoom-all": () => sequence.fit() };
    for (const [id, act] of Object.entries(acts)) document.getElementById(id).addEventListener("click", act);
  }

  /** Lists calls, or messages. */
  list(calls) {
    if (this.calls === calls) return this.sequence.draw();
    Object.assign(this, { calls, sort: ["index", false] });
    this.countKinds();
    return this.filter();
  }

  busy(is) { this.rows.host.setAttribute("aria-busy", is); }

  /** Applies what is typed; a mistake leaves what is shown, and is told. */
  async filter() {
    const asked = this.asked = Symbol("the filter that was asked for last");
    const text = this.input.value.trim();
    let matched = null, mistake = "";
    try {
      if (text) matched = await this.filters.picked(text, this.calls);
    } catch (error) {
      if (!(error instanceof Mistake)) throw error;
      [mistake, matched] = [error.message, this.matched];
    }
    if (this.asked !== asked) return;
    Object.assign(this, { matched, applied: text });
    this.mistake.textContent = mistake;
    this.input.setAttribute("aria-invalid", mistake !== "");
    this.show();
    this.busy(false);
  }

  /** Types something for the user: only what concerns a context or a finding. */
  async ask(text) {
    this.input.value = text;
    this.kinds.forEach((box) => { box.checked = true; });
    await this.filter();
    this.sequence.fit();
  }

  /** Whether an answer stands in the line of its request. */
  joined(place) { return this.calls && this.isJoined[place] === 1; }

  /** Shows what is typed and ticked. */
  show() {
    const { run } = this, places = [], hidden = [];
    for (let place = 0; place < run.count; place += 1) {
      if (this.matched && !this.matched[place]) continue;
      if (this.kinds[run.kind[place]].checked) places.push(place);
      else if (!this.joined(place)) hidden.push(place);
    }
    this.hidden = hidden.length;
    this.places = Int32Array.from(places);
    this.sequence.show(this.places, this.mode.value);
    this.fill();
  }

  moved() {
    if (this.inView?.checked) this.fill();
  }

  /** Fills the list. */
  fill() {
    const { run } = this, shown = this.inView.checked ? this.sequence.inSight() : this.places;
    const listed = shown.filter((place) => !this.joined(place));
    [this.listed, this.depths] = this.calls && this.sort[0] === "index" && !this.sort[1] ? nested(run, listed) : [this.sorted(listed), null];
    this.at = new Map();
    this.listed.forEach((place, n) => this.at.set(place, n));
    this.drawHead();
    this.rows.reset(this.listed.length, this.rowOf(this.sequence.selected));
    const all = this.calls ? this.count : run.count, what = counted(all, this.calls ? "call" : "message"), count = this.listed.length;
    const more = this.hidden && (this.matched || count === 0) ? `; ${this.hidden.toLocaleString("en")} more of kinds that are switched off` : "";
    this.status.textContent = (count === all ? what : `${count.toLocaleString("en")} of ${what}`) + more;
  }

  rowOf(place) {
    return this.at.get(this.joined(place) ? this.run.partnerPlace(place) : place) ?? -1;
  }

  /** The places in the order of a column; what has no value comes last. */
  sorted(places) {
    const [column, down] = this.sort, { run } = this, turn = down ? -1 : 1;
    if (column === "index") return down ? places.slice().reverse() : places;
    const of = {
      begin: (place) => run.begin[place], nbytes: (place) => run.nbytes[place], latency: (place) => run.latency(place), partner: (place) => run.partnerOf(place),
      ends: (place) => this.ends(place), type: (place) => run.types[run.type[place]], text: (place) => run.texts[run.text[place]], short: (place) => run.shortOf(place),
    }[column];
    const keys = new Map();
    places.forEach((place) => keys.set(place, of(place)));
    return places.slice().sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return Number(x === null) - Number(y === null);
      return (x < y ? -turn : x > y ? turn : 0) || a - b;
    });
  }

  drawHead() {
    const heads = (this.calls ? CALL_HEADS : MESSAGE_HEADS).map(([name, style, column]) => {
      const [sorted, down] = this.sort, act = () => {
        this.sort = [column, sorted === column ? !down : ["latency", "nbytes"].includes(column)];
        this.fill();
      };
      return el("span", { class: style, "data-sorted": sorted === column ? (down ? "down" : "up") : null }, sorter(name, act));
    });
    this.head.className = `row head${this.calls ? " of-calls" : ""}`;
    this.head.replaceChildren(...heads);
  }

  choose(place) { this.open(this.run.index[place]); }

  /** Marks a message that was opened, here or elsewhere. */
  mark(place) {
    this.sequence.reveal(place);
    this.rows.select(this.rowOf(place));
  }

  ends(place) { return `${this.run.lanes[this.run.src[place]]} → ${this.run.lanes[this.run.dst[place]]}`; }

  row(n) {
    const place = this.listed[n];
    return this.calls ? this.callRow(place, this.depths?.[n] ?? 0) : this.messageRow(place);
  }

  callRow(place, depth) {
    const { run } = this, request = run.is(place, REQUEST), answer = request ? run.partnerPlace(place) : place, latency = run.latency(place);
    const failed = run.is(place, PROBLEM) || (answer >= 0 && run.is(answer, FAILED | PROBLEM)), doubt = run.doubtOf(place);
    const indent = depth ? `${"  ".repeat(Math.min(depth, DEEPEST) - 1)}└ ` : "";
    const outcome = answer >= 0 ? run.shortOf(answer) : "";
    return el("div", { class: `row of-calls ${run.kindOf(place)}${failed || run.is(place, OPEN) ? " bad" : ""}` },
      el("span", { class: "n" }, request ? run.index[place] : ""),
      el("span", { class: "n answer" }, request ? run.partnerOf(place) ?? "" : run.index[place]),
      el("span", { class: "n time" }, (run.begin[place] / 1e6).toFixed(3)),
      el("span", { class: "ends" }, this.ends(place)),
      el("span", { class: "n took" }, latency === null ? "no answer" : duration(latency)),
      el("span", { class: "text" }, el("i", { "aria-hidden": "true" }), indent, request ? run.shortOf(place) : "", " ", el("span", { class: failed ? "error" : "soft" }, outcome),
        doubt && el("span", { class: "soft" }, `  ${doubtWords(doubt)}`)));
  }

  messageRow(place) {
    const { run } = this, failed = run.is(place, FAILED | PROBLEM);
    const request = run.is(place, REQUEST), partner = run.partnerOf(place), latency = run.latency(place);
    const took = !request && latency !== null ? duration(latency) : run.is(place, OPEN) ? "no answer" : "";
    return el("div", { class: `row ${run.kindOf(place)}${failed || run.is(place, OPEN) ? " bad" : ""}` },
      el("span", { class: "n" }, `#${run.index[place]}`),
      el("span", { class: "n time" }, (run.begin[place] / 1e6).toFixed(3)),
      el("span", { class: "ends" }, this.ends(place)),
      el("span", { class: "type" }, el("i", { "aria-hidden": "true" }), run.types[run.type[place]]),
      el("span", { class: "n took" }, took),
      el("span", { class: "n size" }, amount(run.nbytes[place])),
      el("span", { class: "text" }, !request && partner !== null ? `#${partner} ` : "", run.texts[run.text[place]]));
  }
}

/** Calls, each below the one that it was certainly sent for, with how deep they are. */
function nested(run, places) {
  const there = new Uint8Array(run.count), below = new Map(), order = [], depths = [];
  places.forEach((place) => { there[place] = 1; });
  for (const place of places) {
    const parent = run.parent[place] ? run.placeOf(run.parentOf(place)) : -1;
    if (parent < 0 || !there[parent]) continue;
    there[place] = 2;
    if (below.has(parent)) below.get(parent).push(place);
    else below.set(parent, [place]);
  }
  for (const first of places) {
    const waiting = there[first] === 1 ? [[first, 0]] : [];
    while (waiting.length) {
      const [place, depth] = waiting.pop();
      order.push(place);
      depths.push(depth);
      for (const child of (below.get(place) ?? []).toReversed()) waiting.push([child, depth + 1]);
    }
  }
  return [Int32Array.from(order), depths];
}

/** What a call may have been sent for, as `decode --calls` says it. */
function doubtWords([own, unseen, count, ...parents]) {
  if (!parents.length) return "maybe for a request that was not captured";
  const shown = parents.map((parent) => `#${parent}`), others = [unseen && "one that was not captured", own && "none"].filter(Boolean).join(" or ");
  const told = count > 4 ? `${shown.slice(0, 4).join(", ")} and ${(count - 4).toLocaleString("en")} more` : shown.join(" or ");
  return `for ${told}${others && `, or for ${others}`}`;
}
