// The data of the page: base64 of gzip of JSON, in elements that the browser itself does not look at.
// Out: a Run (the messages as columns) and Stores (what is unpacked when it is looked at).

const [REQUEST, FAILED, PROBLEM, OPEN, ASKS, ERROR, CONTROL, NAMED] = Array.from({ length: 8 }, (_, bit) => 1 << bit); // of a message's flags

/** The JSON that an element holds. */
async function unpack(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const elementsOf = (name) => [...document.querySelectorAll(`script[data-of="${name}"]`)];

/** Objects in chunks; the last few chunks that were looked at stay unpacked. */
class Store {
  static KEPT = 12;

  constructor(name) {
    this.elements = elementsOf(name);
    this.starts = [0];
    for (const element of this.elements) this.starts.push(this.starts.at(-1) + Number(element.dataset.count));
    this.unpacked = new Map();
  }

  /** The object at a place. */
  async get(place) {
    const chunk = lastAtMost(this.starts, place);
    const objects = this.unpacked.get(chunk) ?? unpack(this.elements[chunk]);
    this.unpacked.delete(chunk); // set again, it becomes the youngest
    this.unpacked.set(chunk, objects);
    if (this.unpacked.size > Store.KEPT) this.unpacked.delete(this.unpacked.keys().next().value);
    return (await objects)[place - this.starts[chunk]];
  }

  /** Shows every object to a function, in their order; keeps none. */
  async each(act) {
    for (const element of this.elements) (await unpack(element)).forEach(act);
  }
}

/** The last place of an ascending list whose value is at most `value`; -1 if there is none. */
function lastAtMost(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Every message, by place: its place among those that are shown. `index` is what people call it. */
class Run {
  constructor(data) {
    const { columns } = data;
    Object.assign(this, {
      count: data.count, lanes: data.lanes, names: data.names, jobs: data.jobs, kinds: data.kinds, texts: data.texts, types: data.types,
      rawFunctions: data.functions, functions: data.functions.map(printable), ids: data.ids, contexts: data.contexts, findings: data.findings,
      startNs: BigInt(data.start_ns), doubts: data.doubts, captures: data.captures, fields: data.fields, typeNames: data.type_names,
    });
    this.index = summed(columns.index, Int32Array);
    this.begin = summed(columns.time, Float64Array); // nanoseconds since the run's first message
    this.took = Float64Array.from(columns.took ?? []);
    this.nested = Float64Array.from(columns.nested ?? []);
    this.away = Float64Array.from(columns.latency ?? []); // where the partner is not shown
    this.nbytes = Float64Array.from(columns.nbytes ?? []);
    for (const name of ["src", "dst", "type", "body", "kind", "flags", "partner", "parent", "context", "function", "edge", "text", "short"]) {
      this[name] = Int32Array.from(columns[name] ?? []);
    }
    this.places = new Int32Array((this.count ? this.index[this.count - 1] : 0) + 1).fill(-1);
    this.index.forEach((index, place) => { this.places[index] = place; });
    this.findingsOf = new Map();
    this.findings.forEach((finding, number) => finding.messages.forEach((index) => {
      if (!this.findingsOf.has(index)) this.findingsOf.set(index, []);
      this.findingsOf.get(index).push(number);
    }));
  }

  end(place) { return this.begin[place] + this.took[place]; }
  is(place, flag) { return (this.flags[place] & flag) !== 0; }
  /** The place of a message by its index; -1 where it is not shown. */
  placeOf(index) { return this.places[index] ?? -1; }
  /** The index of the answer or the request that belongs to a message; null if there is none. */
  partnerOf(place) { return this.partner[place] ? this.index[place] + this.partner[place] : null; }
  /** The place of it; -1 if there is none, or it is not shown. */
  partnerPlace(place) { return this.partner[place] ? this.placeOf(this.index[place] + this.partner[place]) : -1; }
  parentOf(place) { return this.parent[place] ? this.index[place] + this.parent[place] : null; }
  /** What a request may have been sent for where that is uncertain: whether by its sender's own program, whether for a
      request that was not captured, then requests. */
  doubtOf(place) { return this.doubts[this.index[place]] ?? null; }
  shortOf(place) { return this.texts[this.short[place]]; }
  functionOf(place) { return this.function[place] ? this.functions[this.function[place] - 1] : null; }
  contextOf(place) { return this.context[place] ? this.contexts[this.context[place] - 1] : null; }
  kindOf(place) { return this.kinds[this.kind[place]]; }
  /** Nanoseconds since the first message of a time of the capture, which comes as text. */
  since(ns) { return Number(BigInt(ns) - this.startNs); }

  /** From the first byte of a request to the last of its answer; null where one of them is missing. */
  latency(place) {
    const partner = this.partnerPlace(place);
    if (partner < 0) return this.partner[place] ? this.away[place] : null;
    const [request, answer] = this.is(place, REQUEST) ? [place, partner] : [partner, place];
    return Math.max(0, this.end(answer) - this.begin[request]);
  }
}

/** Sums of differences, as they are stored. */
function summed(differences, List) {
  const list = new List(differences?.length ?? 0);
  let sum = 0;
  list.forEach((_, place) => { list[place] = sum += differences[place]; });
  return list;
}

// --- words ------------------------------------------------------------------------------------------------

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];

/** A time span in the unit that suits it. */
function duration(ns) {
  for (const [unit, name] of UNITS) {
    if (Math.abs(ns) >= 0.9995 * unit) return `${three(ns / unit)} ${name}`;
  }
  return `${Math.round(ns)} ns`;
}

/** Bytes in the unit that suits them. */
function amount(count) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]]) {
    if (count >= unit) return `${three(count / unit)} ${name}`;
  }
  return count === 1 ? "1 byte" : `${count} bytes`;
}

/** Three digits, as Python's `.3g`, but never with an exponent. */
const three = (value) => (Math.abs(value) >= 999.5 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3))));
const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** Text with everything escaped that is not plainly visible: what was captured may want to look like another text. */
function printable(text) {
  return String(text).replace(/[^\P{C}\n]|[\u2028\u2029]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** An element; strings become text, never markup. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** A link to a message, or its number alone where it is not shown. */
function messageLink(run, index, words = "") {
  const text = `#${index}${words ? ` ${words}` : ""}`;
  return run.placeOf(index) < 0 ? el("span", { class: "soft" }, `${text} (not shown)`) : el("a", { href: `#m${index}` }, text);
}
