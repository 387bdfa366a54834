// One message in full, beside whatever is open: what `decode --message` and `--format jsonl` say of it.

class Detail {
  constructor(run, store) {
    Object.assign(this, { run, store });
    this.panel = document.getElementById("detail");
    this.body = document.getElementById("detail-body");
    this.title = document.getElementById("detail-title");
  }

  /** Shows a message; gives its place, or -1 where there is no such message. */
  async show(index) {
    const place = this.run.placeOf(index);
    if (place < 0) return -1;
    this.wanted = index;
    const said = await this.store.get(place);
    if (this.wanted !== index) return place; // another one was asked for meanwhile
    this.title.textContent = `#${index} ${this.run.types[this.run.type[place]]}`;
    this.body.replaceChildren(...this.parts(place, said).filter(Boolean));
    this.body.scrollTop = 0;
    this.panel.hidden = false;
    return place;
  }

  hide() {
    this.wanted = null;
    this.panel.hidden = true;
  }

  parts(place, said) {
    return [
      this.head(place), this.exchange(place, said.failure), this.found(place), problems(said.problems), body(said.body),
      ...said.envelopes.map(envelope), tensors(said), whereabouts(said.location, `rpcinspect decode ${this.run.captures} --message ${this.run.index[place]}`), raw(said),
    ];
  }

  head(place) {
    const { run } = this, context = run.contextOf(place);
    const at = Number(run.startNs / 1000n) / 1000 + run.begin[place] / 1e6; // milliseconds since 1970
    return section(null,
      el("p", { class: "ends" }, `${run.lanes[run.src[place]]} → ${run.lanes[run.dst[place]]}`),
      el("p", { class: "said" }, run.texts[run.text[place]]),
      fields([
        ["time", `${(run.begin[place] / 1e6).toFixed(3)} ms, ${moment(at)}`],
        ["size", `${amount(run.nbytes[place])}, captured in ${duration(run.took[place])}`],
        context && ["context", el("a", { href: `#c${run.context[place] - 1}` }, context.name)],
      ]));
  }

  /** The request or the answer that it belongs to, what it was made for, what was made for it. */
  exchange(place, failure) {
    const { run } = this, partner = run.partnerOf(place), parent = run.parentOf(place), doubt = run.doubtOf(place);
    const children = run.is(place, REQUEST) ? this.children(place) : [];
    const links = children.slice(0, 20).flatMap((one) => [messageLink(run, run.index[one], run.functionOf(one) ?? ""), " "]);
    if (children.length > 20) links.push(`and ${(children.length - 20).toLocaleString("en")} more`);
    return section("exchange",
      fields([
        run.is(place, REQUEST)
          ? ["answer", partner === null ? (run.is(place, OPEN) ? "none was captured" : "none") : messageLink(run, partner)]
          : ["answers", partner === null ? "a request that was not captured" : messageLink(run, partner, run.functionOf(place) ?? "")],
        partner !== null && this.answerText(place),
        failure && ["given up", gaveUp(failure, run, place)],
        parent !== null && ["made while serving", messageLink(run, parent)],
        doubt && ["made while serving", this.ambiguous(doubt)],
        children.length > 0 && ["calls made for it", links],
      ]), this.times(place));
  }

  /** All that a request may have been sent for. */
  ambiguous([own, unseen, count, ...parents]) {
    const { run } = this, links = parents.flatMap((one) => [messageLink(run, one, run.functionOf(run.placeOf(one)) ?? ""), " "]);
    const others = [unseen && "for a request that was not captured", own && "by its sender's own program"].filter(Boolean).join(", or ");
    return ["ambiguous: ", parents.length > 1 ? "one of " : "", ...links, count > parents.length ? `and ${counted(count - parents.length, "other")} ` : "", parents.length && others ? "or " : "", others];
  }

  answerText(place) {
    const { run } = this, answer = run.is(place, REQUEST) ? run.partnerPlace(place) : -1;
    return answer >= 0 && run.shortOf(answer) && ["result", el("span", { class: `said${run.is(answer, FAILED) ? " error" : ""}` }, run.shortOf(answer))];
  }

  children(place) {
    const { run } = this, found = [], index = run.index[place];
    for (let one = 0; one < run.count; one += 1) if (run.parent[one] && run.index[one] + run.parent[one] === index) found.push(one);
    return found;
  }

  /** Where the time of the exchange went. */
  times(place) {
    const { run } = this, partner = run.partnerPlace(place);
    if (partner < 0) return null;
    const [request, answer] = run.is(place, REQUEST) ? [place, partner] : [partner, place];
    const busy = Math.max(0, run.begin[answer] - run.end(request)), nested = Math.min(busy, run.nested[request]);
    const parts = [["request on the wire", run.took[request], "wire"], ["callee works", busy - nested, "own"],
      ["own calls under way", nested, "nested"], ["answer on the wire", run.took[answer], "wire"]];
    return stacked(parts.filter(([, ns]) => ns > 0), `${duration(run.latency(place))} in all`);
  }

  /** Findings that name the message. */
  found(place) {
    const numbers = this.run.findingsOf.get(this.run.index[place]) ?? [];
    if (!numbers.length) return null;
    return section("findings", el("ul", {}, numbers.map((number) => {
      const { code, severity } = this.run.findings[number];
      return el("li", {}, el("a", { href: `#f${number}`, class: severity }, code));
    })));
  }
}

/** A part of the panel. */
const section = (title, ...children) => el("section", {}, title && el("h3", {}, title), ...children.filter((child) => child != null));

/** Names with values; what is false is left out. */
function fields(pairs) {
  return el("dl", {}, pairs.filter(Boolean).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, ...[value].flat())]));
}

/** Times beside each other, as shares of a bar. */
function stacked(parts, words) {
  const total = parts.reduce((sum, [, ns]) => sum + ns, 0) || 1;
  const bar = el("div", { class: "bar", role: "img", "aria-label": parts.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ") });
  for (const [name, ns, kind] of parts) {
    bar.append(share(el("span", { class: kind, title: `${name}: ${duration(ns)}` }), ns / total));
  }
  return el("div", { class: "times" }, bar, el("p", {}, el("b", {}, words), parts.map(([name, ns, kind]) => el("span", { class: `part ${kind}` }, `${name} ${duration(ns)}`))));
}

/** Why the caller of a request stopped waiting for its answer. */
function gaveUp({ reason, time_ns, text }, run, place) {
  const waited = duration(Number(BigInt(time_ns) - run.startNs) - run.begin[place]);
  return printable(`${reason} after ${waited}${text && ": "}${text}`);
}

function problems(list) {
  if (!list.length) return null;
  return section("problems", el("ul", { class: "error" }, list.map(({ layer, reason }) => el("li", {}, printable(`${layer}: ${reason}`)))));
}

/** The command: what it is, then its fields by name. */
function body(said) {
  const { type, ...rest } = said;
  return section(type, fields(Object.entries(rest).flatMap(([name, value]) => bodyField(name, value))));
}

function bodyField(name, value) {
  if (value === null) return [];
  if (name === "error") return [["error", el("pre", { class: "error" }, printable(value.text))]];
  if (name === "args") return value.map((one, number) => [`args[${number}]`, code(one)]);
  if (name === "kwargs") return Object.entries(value).map(([key, one]) => [`${printable(key)}=`, code(one)]);
  if (name === "payload_hex") return [["not understood", code(value.length < 1024 ? value : `${value} …`)]]; // cut when the page was made
  if (name.endsWith("_id") && Array.isArray(value)) return [[name, code(value.join(":"))]];
  if (name === "context_id" || name === "autograd_message_id") return [[name, id64(value)]];
  return [[name, code(typeof value === "object" ? JSON.stringify(value) : value)]];
}

const code = (value) => el("code", {}, printable(value));

/** A 64-bit id, which comes as text: creator:counter, and in full. */
function id64(text) {
  const value = BigInt.asUintN(64, BigInt(text));
  return code(`${value >> 48n}:${value & 0xffffffffffffn} (${text})`);
}

function envelope(said) {
  const { type, wrapped_type: wrapped, events, device_map: map, ...rest } = said;
  const pairs = Object.entries(rest).flatMap(([name, value]) => bodyField(name, value));
  if (map) pairs.push(["device_map", code(Object.entries(map).map(([a, b]) => `${a} → ${b}`).join(", ") || "empty")]);
  pairs.push(["wraps", code(wrapped)]);
  if (events) pairs.push(["events", eventList(events)]);
  return section(`envelope ${type}`, fields(pairs));
}

/** What the callee's profiler sent back. */
function eventList(events) {
  const rows = events.slice(0, 300).map(({ kind, name, thread_id: thread, cpu_ns: cpu }) => `${kind.padEnd(5)} ${String(thread).padStart(3)} ${String(cpu).padStart(19)} ${name}`);
  if (events.length > 300) rows.push(`and ${(events.length - 300).toLocaleString("en")} more`);
  return el("details", {}, el("summary", {}, counted(events.length, "event")), el("pre", {}, printable(rows.join("\n"))));
}

function tensors({ tensors: list, values, norms }) {
  if (!list.length) return null;
  return section(counted(list.length, "tensor"), ...list.map((tensor, number) => {
    const flags = ["requires_grad", "parameter", "conj", "neg"].filter((name) => tensor[name]).map((name) => el("span", { class: "tag" }, name));
    const device = tensor.target_device && tensor.target_device !== tensor.device ? `${tensor.device} → ${tensor.target_device}` : tensor.device;
    const strange = tensor.missing_bytes || tensor.placement !== "certain";
    return el("div", { class: "tensor" },
      el("p", {}, el("b", {}, `#${number} `), code(`${tensor.dtype}[${tensor.shape.join(", ")}]`), " ", ...flags),
      fields([
        values?.[number] && ["values", code(values[number])],
        norms?.[number] && ["elements", elements(norms[number])],
        ["device", code(device)],
        ["stride, offset", code(`[${tensor.stride.join(", ")}], ${tensor.offset}`)],
        tensor.layout !== "strided" && ["layout", code(`${tensor.layout} ${JSON.stringify(tensor.parts)}`)],
        tensor.quantizer && ["quantizer", code(JSON.stringify(tensor.quantizer))],
        tensor.storage !== null && ["storage", `${tensor.storage}${tensor.storage_nbytes === null ? "" : `, ${amount(tensor.storage_nbytes)}`}`],
        strange && ["captured", el("span", { class: "error" }, `${tensor.placement}${tensor.missing_bytes ? `, ${amount(tensor.missing_bytes)} missing` : ""}`)],
        tensor.sha256 && ["sha256", code(tensor.sha256)],
      ]));
  }));
}

/** The norm of the finite ones, and how many are not finite. */
function elements({ norm, nan, infinite }) {
  const strange = [[nan, "NaN"], [infinite, "infinite"]].filter(([count]) => count).map(([count, name]) => el("b", { class: "error" }, `, ${count.toLocaleString("en")} ${name}`));
  return [norm === null ? "none is finite" : `norm ${Number(norm.toPrecision(6))}`, ...(strange.length ? strange : [", no NaN"])];
}

function whereabouts(place, command) {
  if (!place) return null;
  return section("place in the capture", fields([
    ["to see its bytes", code(command)],
    ["capture", String(place.capture)], ["packet", code(`frame.number == ${place.packet}`)], ["flow", code(place.flow)], ["offset", String(place.offset)],
  ]));
}

/** The line of `--format jsonl`, from `envelopes` on. */
function raw(said) {
  const text = el("pre", {});
  return el("details", { on: { toggle: () => { text.textContent = printable(JSON.stringify(said, null, 1)); } } }, el("summary", {}, "as JSON"), text);
}

/** Milliseconds since 1970 → a time of the day, UTC. */
function moment(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? "" : `${date.toISOString().replace("T", " ").replace("Z", "")} UTC`;
}
