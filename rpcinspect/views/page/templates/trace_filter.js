// What messages have of the fields that a filter names, and which of them it picks.
// In: a tree of the grammar. Out: a bit for each message. Most fields are columns; the others are in what is
// unpacked when it is looked at, which takes a moment the first time.

const tensorsOf = (pick) => (said) => said.tensors.map(pick);
const envelopesOf = (name) => (said) => said.envelopes.map((one) => one[name]);
const bodyOf = (name) => (said) => [said.body[name]];
const errorOf = (name) => (said) => [said.body.error?.[name]];
const askedOf = (name) => (said) => said.asked[name];

/** Field → its values from columns; null and undefined are none. */
const COLUMNS = {
  index: (run, place) => [run.index[place]],
  time: (run, place) => [run.begin[place]],
  time_ns: (run, place) => [run.startNs + BigInt(run.begin[place])],
  took: (run, place) => [run.took[place]],
  src: (run, place) => [run.names[run.src[place]]],
  dst: (run, place) => [run.names[run.dst[place]]],
  worker: (run, place) => [run.names[run.src[place]], run.names[run.dst[place]]],
  job: (run, place) => [run.jobs[run.src[place]]],
  type: (run, place) => [run.types[run.type[place]]],
  body: (run, place) => [run.types[run.body[place]]],
  request: (run, place) => [run.is(place, ASKS)],
  answers: (run, place) => [run.is(place, REQUEST) ? null : run.partnerOf(place)],
  answered: (run, place) => [run.is(place, REQUEST) ? run.partner[place] !== 0 : null],
  latency: (run, place) => [run.latency(place)],
  call: (run, place) => [run.is(place, NAMED) && run.is(place, REQUEST) ? run.rawFunctions[run.function[place] - 1] : null],
  housekeeping: (run, place) => [run.kindOf(place) === "housekeeping"],
  control: (run, place) => [run.is(place, CONTROL)],
  error: (run, place) => [run.is(place, ERROR)],
  nbytes: (run, place) => [run.nbytes[place]],
  finding: (run, place) => (run.findingsOf.get(run.index[place]) ?? []).map((number) => run.findings[number].code),
};

/** Field → its values from what a message says. */
const SAID = {
  id: askedOf("id"), pipe: askedOf("pipe"), capture: askedOf("capture"), fn: askedOf("fn"), "tensor.nbytes": askedOf("tensor.nbytes"),
  envelope: envelopesOf("type"), from_worker_id: envelopesOf("from_worker_id"), profiling_id: envelopesOf("profiling_id"),
  event: (said) => said.envelopes.flatMap(({ events }) => (events ?? []).map(({ name }) => name)),
  device_map: (said) => said.envelopes.flatMap((one) => Object.entries(one.device_map ?? {}).map(([a, b]) => `${a}->${b}`)),
  ctx: (said) => [said.body.context_id, ...envelopesOf("context_id")(said)],
  autograd_message_id: (said) => [said.body.autograd_message_id, ...envelopesOf("autograd_message_id")(said)],
  arg: (said) => said.body.args ?? [],
  kwarg: (said) => Object.entries(said.body.kwargs ?? {}).map(([name, value]) => `${name}=${value}`),
  async: bodyOf("async"), value: bodyOf("value"), retain_graph: bodyOf("retain_graph"), rref_id: bodyOf("rref_id"), fork_id: bodyOf("fork_id"),
  "error.type": errorOf("type"), "error.node_id": errorOf("node_id"), "error.text": errorOf("text"),
  tensors: (said) => [said.tensors.length],
  problem: (said) => said.problems.map(({ reason }) => reason),
  "problem.layer": (said) => said.problems.map(({ layer }) => layer),
  packet: (said) => [said.location?.packet],
  first_packet: (said) => [said.location?.first_packet], last_packet: (said) => [said.location?.last_packet],
  flow: (said) => [said.location?.flow],
  "tensor.dim": tensorsOf(({ shape }) => shape.length),
  "tensor.numel": tensorsOf(({ shape }) => shape.reduce((product, size) => product * BigInt(size), 1n)),
  "tensor.quantizer": tensorsOf(({ quantizer }) => quantizer?.scheme),
  "tensor.missing": tensorsOf((one) => one.missing_bytes > 0 || one.placement === "missing"),
};
for (const name of ["dtype", "shape", "layout", "device", "target_device", "requires_grad", "parameter", "conj", "neg", "storage_nbytes", "missing_bytes", "placement", "sha256"]) {
  SAID[`tensor.${name}`] = tensorsOf((one) => one[name]);
}

/** Filters of a run; what was unpacked for one stays for the next. */
class Filters {
  constructor(run, store) {
    Object.assign(this, { run, store, said: new Map() });
  }

  /** A bit for each message, or each call with `calls`: there what a message says may be said by request or answer. */
  async picked(text, calls) {
    const { tree, leaves } = this.parsed(text);
    for (const { field } of leaves) {
      if (!Object.hasOwn(COLUMNS, field) && !Object.hasOwn(SAID, field)) throw new Mistake(`this page does not hold ${field}: ask decode -f`);
    }
    await this.unpack(new Set(leaves.map(({ field }) => field).filter((field) => !Object.hasOwn(COLUMNS, field) && !this.said.has(field))));
    return judged(tree, leaves.map((leaf) => this.truths(leaf, calls)), this.run.count);
  }

  parsed(text) {
    try {
      return new Parser(text, this.run.fields, this.run.typeNames);
    } catch (error) {
      throw error instanceof RangeError ? new Mistake("too many parentheses inside of each other") : error;
    }
  }

  async unpack(names) {
    if (!names.size) return;
    const found = new Map([...names].map((name) => [name, []]));
    await this.store.each((said) => names.forEach((name) => found.get(name).push(SAID[name](said))));
    found.forEach((values, name) => this.said.set(name, values));
  }

  truths({ field, kind, seen, test }, calls) {
    const { run } = this, said = this.said.get(field), truths = new Uint8Array(run.count);
    const known = new Map(); // most messages have what others have
    for (let place = 0; place < run.count; place += 1) {
      const values = (said ? said[place] : COLUMNS[field](run, place)).filter((value) => value != null);
      const key = values.length === 1 && typeof values[0] === "string" ? values[0] : null;
      let truth = key === null ? undefined : known.get(key);
      if (truth === undefined) {
        truth = test(values.map(VALUE[kind]));
        if (key !== null) known.set(key, truth);
      }
      truths[place] = truth;
    }
    if (calls && !seen) this.eachCall((request, answer) => { truths[request] |= truths[answer]; });
    if (calls) this.eachCall((request, answer) => { truths[answer] = truths[request]; });
    return truths;
  }

  eachCall(act) {
    const { run } = this;
    for (let place = 0; place < run.count; place += 1) {
      const answer = run.is(place, REQUEST) ? run.partnerPlace(place) : -1;
      if (answer >= 0) act(place, answer);
    }
  }
}

/** What a tree comes to, message by message. */
function judged(tree, truths, count) {
  if (tree.kind === "leaf") return truths[tree.number];
  const items = tree.items.map((item) => judged(item, truths, count));
  const join = { not: (place) => !items[0][place], and: (place) => items.every((item) => item[place]), or: (place) => items.some((item) => item[place]) }[tree.kind];
  return Uint8Array.from({ length: count }, (_, place) => join(place));
}
