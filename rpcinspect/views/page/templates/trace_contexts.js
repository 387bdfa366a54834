// The tab of autograd contexts: a list, and the graph of the one that is chosen: workers as lanes, time going
// down, edges and gradients as arrows; then what its duration consists of.

const PATH_KINDS = {
  request: "request on the wire", answer: "answer on the wire", busy: "works", pause: "works, between calls", unanswered: "never answers",
  outlasting: "works on, the context was left",
};
const MAX_SEGMENTS = 300;

class Contexts {
  constructor(run, store) {
    Object.assign(this, { run, store, chosen: -1 });
    this.host = document.getElementById("graph");
    this.bad = document.getElementById("only-bad");
    this.bad.addEventListener("change", () => this.list());
    this.rows = new Rows(document.getElementById("context-rows"), {
      height: () => 46, label: "autograd contexts", make: (n) => this.row(this.listed[n]), pick: (n) => { location.hash = `c${this.listed[n]}`; },
    });
    document.getElementById("graph-rows").addEventListener("click", (event) => this.follow(event));
    this.events = new Rows(document.getElementById("graph-rows"), {
      height: () => 26, label: "messages of the context", make: (n) => this.eventRow(this.shown[n]), pick: (n) => { location.hash = `m${this.shown[n].message}`; },
    });
    this.list();
  }

  list() {
    this.listed = [...this.run.contexts.keys()].filter((n) => !this.bad.checked || isBad(this.run.contexts[n]));
    this.rows.reset(this.listed.length, this.listed.indexOf(this.chosen));
    document.getElementById("context-status").textContent = counted(this.listed.length, "context");
  }

  row(n) {
    const context = this.run.contexts[n];
    const words = [context.words, context.zero && `${context.zero} of zeros`, context.failed && `${context.failed} failed`, !context.cleanup && "no cleanup seen"];
    return el("div", { class: `context${isBad(context) ? " bad" : ""}` },
      el("p", {}, el("b", {}, context.name), ` by ${this.run.lanes[context.creator] ?? "?"}`, el("span", { class: "n soft" }, duration(context.duration_ns))),
      el("p", { class: "soft" }, `${counted(context.edges, "edge")}, ${words.filter(Boolean).join(", ")}`));
  }

  follow(event) {
    const link = event.target.closest("a");
    if (link) event.stopPropagation();
  }

  /** Draws the first context of the list, if none is drawn yet. */
  first() {
    if (this.chosen < 0 && this.listed.length) this.show(this.listed[0]);
  }

  /** Draws the graph of a context. */
  async show(n) {
    if (!this.run.contexts[n]) return;
    this.chosen = n;
    this.rows.select(this.listed.indexOf(n));
    const [context, ...rest] = await this.store.get(n);
    if (this.chosen !== n) return;
    this.workers = context.workers;
    this.begin = this.run.since(context.begin_ns);
    this.shown = eventsOf(context, rest.filter((one) => one.kind === "passing")).filter((one) => this.run.placeOf(one.message) >= 0);
    document.getElementById("graph-title").replaceChildren(...this.title(n, context));
    document.getElementById("graph-head").replaceChildren(this.laneHead());
    document.getElementById("graph-path").replaceChildren(...this.path(rest.filter((one) => one.kind === "segment"), context));
    this.host.hidden = false;
    this.events.reset(this.shown.length);
  }

  title(n, context) {
    const { name, words, nbytes, edges: count } = this.run.contexts[n];
    const edges = `${counted(count, "edge")}, ${words}, ${amount(nbytes)}`;
    const cleanup = context.cleanup.flatMap((index, at) => [at ? ", " : "", messageLink(this.run, index)]);
    return [
      el("h2", {}, `Context ${name}`, el("span", { class: "soft" }, ` ${context.context_id}`)),
      el("p", {}, `made by ${printable(context.creator)}, ${duration(context.duration_ns)}: ${edges}; `, ...(cleanup.length ? ["cleanup ", ...cleanup] : ["no cleanup seen"])),
      el("p", {}, el("button", { type: "button", on: { click: () => { location.hash = `q=ctx == ${name}`; } } }, "Its messages in the sequence diagram")),
    ];
  }

  // --- lanes ----------------------------------------------------------------------------------------------

  get laneWidth() { return Math.max(56, Math.min(100, 400 / this.workers.length)); }
  laneX(worker) { return (this.workers.indexOf(worker) + 0.5) * this.laneWidth; }

  laneHead() {
    const names = this.workers.map((worker) => {
      const name = el("span", { title: printable(worker) }, printable(worker));
      name.style.width = `${this.laneWidth}px`;
      return name;
    });
    return el("div", { class: "event head" }, el("span", { class: "n" }, "ms"), el("span", { class: "names" }, names), el("span", {}, "message"));
  }

  eventRow(event) {
    return el("div", { class: `event ${event.style}` },
      el("span", { class: "n" }, ((this.run.since(event.begin_ns) - this.begin) / 1e6).toFixed(3)),
      this.arrow(event),
      el("span", { class: "text", title: printable(event.words) }, el("b", {}, `#${event.message} `), event.lead,
        event.links.map(([words, index]) => [el("span", { class: "tag" }, words, index === null ? null : messageLink(this.run, index)), " "]).flat(), printable(event.words)));
  }

  /** A row's arrow: whole for edges, dotted for gradients, thin for what makes no edge. */
  arrow({ src, dst, line }) {
    const [a, b] = [this.laneX(src), this.laneX(dst)], width = this.workers.length * this.laneWidth;
    const svg = svgEl("svg", { width, height: 26, "aria-hidden": "true" });
    for (const worker of this.workers) svg.append(svgEl("line", { x1: this.laneX(worker), x2: this.laneX(worker), y1: 0, y2: 26, class: "lane" }));
    const way = Math.sign(b - a);
    if (!way) svg.append(svgEl("path", { d: `M${a} 7 q14 6 0 12`, class: line }), svgEl("path", { d: `M${a + 7} 16 L${a} 19 L${a + 6} 23`, class: "tip" }));
    else svg.append(svgEl("line", { x1: a, x2: b - 6 * way, y1: 13, y2: 13, class: line }), svgEl("path", { d: `M${b} 13 l${-8 * way} -4 v8 z`, class: "tip" }));
    svg.append(svgEl("circle", { cx: a, cy: 13, r: 2.5, class: "tip" }));
    return svg;
  }

  // --- the critical path ----------------------------------------------------------------------------------

  /** With a filter there may be gaps between its parts. */
  path(segments, context) {
    if (!segments.length) return [];
    const parts = segments.map((one) => ({ ...one, from: this.run.since(one.begin_ns) - this.begin, to: this.run.since(one.end_ns) - this.begin }));
    parts.forEach((part) => { part.took = part.to - part.from; });
    const total = context.duration_ns || 1, whole = parts.reduce((sum, { took }) => sum + took, 0) === context.duration_ns;
    const bar = el("div", { class: "bar", role: "img", "aria-label": `critical path of ${duration(total)}` });
    let at = 0;
    for (const part of parts) {
      if (part.from > at) bar.append(share(el("i"), (part.from - at) / total));
      bar.append(share(el("span", { class: this.pathClass(part), title: this.pathWords(part) }), part.took / total));
      at = part.to;
    }
    if (at < total) bar.append(share(el("i"), (total - at) / total));
    return [
      el("h3", {}, `${whole ? "Critical path," : "Parts of the critical path of"} ${duration(total)}`), bar, el("p", { class: "times" }, this.sums(parts, total)),
      el("details", {}, el("summary", {}, counted(parts.length, "part")), this.segmentList(parts)),
    ];
  }

  pathClass({ does, worker }) {
    return does === "request" || does === "answer" ? "wire" : `w${this.workers.indexOf(worker) % 8}`;
  }

  pathWords(part) {
    const { worker, request, what, took } = part;
    return printable(`${worker} ${this.doubt(part)}, ${duration(took)}${request === null ? "" : `, #${request} ${what}`}`);
  }

  /** What it does, and what of that is not certain. */
  doubt({ does, if_idle, or_waits_for }) {
    const waits = or_waits_for.length ? `, or waits for ${or_waits_for.map((index) => `#${index}`).join(", ")}` : "";
    return `${PATH_KINDS[does] ?? does}${waits}${if_idle.length ? ` (if ${if_idle.map(printable).join(", ")} idle)` : ""}`;
  }

  /** How much of it was whose. */
  sums(parts, total) {
    const sums = new Map();
    for (const part of parts) {
      const kind = this.pathClass(part), name = kind === "wire" ? "on the wire" : printable(part.worker);
      sums.set(name, [kind, (sums.get(name)?.[1] ?? 0) + part.took]);
    }
    const ordered = [...sums].sort((a, b) => b[1][1] - a[1][1]);
    return ordered.map(([name, [kind, took]]) => el("span", { class: `part ${kind}` }, `${name} ${duration(took)} (${Math.round((100 * took) / total)} %)`));
  }

  segmentList(parts) {
    const rows = parts.slice(0, MAX_SEGMENTS).map((part) => el("li", { class: this.pathClass(part) },
      el("span", { class: "n" }, duration(part.took)), ` ${printable(part.worker)} ${this.doubt(part)} `,
      part.request === null ? "" : messageLink(this.run, part.request, printable(part.what ?? ""))));
    if (parts.length > MAX_SEGMENTS) rows.push(el("li", {}, `and ${counted(parts.length - MAX_SEGMENTS, "more part")}`));
    return el("ol", { class: "segments" }, rows);
  }
}

/** Makes an element take its share of a bar. */
function share(element, part) {
  element.style.flexGrow = part;
  return element;
}

const isBad = (context) => context.missing > 0 || context.failed > 0;

/** What happened in a context, in the order of messages. */
function eventsOf(context, passing) {
  const events = context.edges.flatMap((edge) => [edgeEvent(edge, context), ...edge.gradients.map((one) => gradientEvent(edge, one))]);
  for (const one of passing) {
    if (one.type === "BACKWARD_AUTOGRAD_RESP" || one.type === "CLEANUP_AUTOGRAD_CONTEXT_RESP") continue; // they say no more than that a request was taken
    events.push({ ...one, line: "thin", style: one.failed ? "bad" : "quiet", lead: "", words: passingWords(one), links: [] });
  }
  return events.sort((a, b) => a.message - b.message);
}

function edgeEvent(edge, context) {
  const lacks = !edge.gradients.length && context.backward_ns !== null && BigInt(edge.begin_ns) < BigInt(context.backward_ns);
  const what = edge.answers === null ? edge.what : `#${edge.answers} returns`;
  const links = edge.gradients.map((one) => ["gradient ", one.message]);
  if (!links.length) links.push([lacks ? "its gradient never came" : "no gradient", null]);
  return {
    message: edge.forward, begin_ns: edge.begin_ns, src: edge.sender, dst: edge.receiver, line: "edge", style: lacks ? "bad edge" : "edge", links,
    lead: `edge ${shortId(edge.autograd_message_id)} `,
    words: `${what}  ${shapes(edge.tensors.filter((one) => one.requires_grad))}, ${amount(edge.nbytes)}`,
  };
}

function gradientEvent(edge, one) {
  const zeros = one.tensors.filter((tensor) => tensor.zero).length;
  const remarks = [zeros && (zeros === one.tensors.length ? "all zeros" : `${zeros} of ${one.tensors.length} all zeros`), one.retain_graph && "retain graph", one.failed && "✗ answered by an error"];
  return {
    message: one.message, begin_ns: one.begin_ns, src: edge.receiver, dst: edge.sender, line: "gradient", links: [["edge ", edge.forward]],
    style: one.failed ? "bad gradient" : zeros ? "odd gradient" : "gradient",
    lead: `gradient of ${shortId(edge.autograd_message_id)} `,
    words: [`${shapes(one.tensors)}, ${amount(one.nbytes)}`, ...remarks.filter(Boolean)].join("  "),
  };
}

function passingWords({ type, request, answers, failed, what }) {
  if (!request) return `${answers === null ? "" : `#${answers} `}${failed ? "✗ answered by an error" : "returns, no edge"}`;
  return what === type ? type : `${what}, no edge`;
}

function shapes(tensors) {
  const shown = tensors.slice(0, 4).map(({ dtype, shape, layout }) => `${dtype}[${shape.join(",")}]${layout === "strided" ? "" : ` ${layout}`}`);
  return shown.join(", ") + (tensors.length > 4 ? ` and ${tensors.length - 4} more` : "");
}

/** A 64-bit id, which comes as text, as creator:counter. */
function shortId(text) {
  const value = BigInt.asUintN(64, BigInt(text));
  return `${value >> 48n}:${value & 0xffffffffffffn}`;
}

/** An element of a drawing. */
function svgEl(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
