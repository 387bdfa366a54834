// Which messages are shown: words that a row must have, kinds, errors.
// In: what was typed. Out: a list of places.

/** One word → a test of a message. A leading minus turns it around. */
function termOf(word, run) {
  const negated = word.length > 1 && word.startsWith("-");
  const positive = negated ? word.slice(1) : word;
  const colon = positive.indexOf(":");
  const name = positive.slice(0, Math.max(colon, 0));
  const special = Object.hasOwn(TERMS, name) ? TERMS[name] : undefined;
  const test = special ? special(positive.slice(colon + 1), run) : slower(positive, run) ?? anywhere(positive, run);
  return negated ? (place) => !test(place) : test;
}

const SLOWER = /^>(\d+(?:\.\d+)?)(ns|us|µs|ms|s)$/;
const NS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 };

/** `>5ms`: exchanges that took longer. */
function slower(word, run) {
  const found = SLOWER.exec(word);
  if (!found) return undefined;
  const limit = Number(found[1]) * NS[found[2]];
  return (place) => (run.latency(place) ?? -1) > limit;
}

/** Which strings of a table hold a word, told once for each string. */
function holding(table, word) {
  return table.map((text) => text.toLowerCase().includes(word));
}

/** The word is somewhere in the row. */
function anywhere(word, run) {
  if (/^#\d+$/.test(word)) return (place) => run.index[place] === Number(word.slice(1));
  const [texts, types, lanes] = [run.texts, run.types, run.lanes].map((table) => holding(table, word));
  const functions = holding(run.functions, word);
  return (place) => texts[run.text[place]] || types[run.type[place]] || lanes[run.src[place]] || lanes[run.dst[place]]
    || (run.function[place] > 0 && functions[run.function[place] - 1]);
}

const STATES = {
  error: (place, run) => run.is(place, FAILED),
  problem: (place, run) => run.is(place, PROBLEM),
  request: (place, run) => run.is(place, REQUEST),
  answer: (place, run) => !run.is(place, REQUEST),
  open: (place, run) => run.is(place, OPEN),
  found: (place, run) => run.findingsOf.has(run.index[place]),
};

/** What stands before a colon → a test, given what stands behind it. */
const TERMS = {
  src: (word, run) => { const lanes = holding(run.lanes, word); return (place) => lanes[run.src[place]]; },
  dst: (word, run) => { const lanes = holding(run.lanes, word); return (place) => lanes[run.dst[place]]; },
  worker: (word, run) => { const lanes = holding(run.lanes, word); return (place) => lanes[run.src[place]] || lanes[run.dst[place]]; },
  type: (word, run) => { const types = holding(run.types, word); return (place) => types[run.type[place]] || types[run.body[place]]; },
  fn: (word, run) => {
    const functions = holding(run.functions, word);
    return (place) => run.function[place] > 0 && functions[run.function[place] - 1];
  },
  ctx: (word, run) => {
    const contexts = run.contexts.map((context) => context.name === word || context.context_id === word);
    return (place) => run.context[place] > 0 && contexts[run.context[place] - 1];
  },
  is: (word, run) => (Object.hasOwn(STATES, word) ? (place) => STATES[word](place, run) : () => false),
  finding: (word, run) => {
    const wanted = new Set(run.findings.flatMap((one, number) => (String(number) === word || one.code === word ? one.messages : [])));
    return (place) => wanted.has(run.index[place]);
  },
};

/** The places of all messages that fit: every word, a kind that is switched on, an error where only those are wanted. */
function placesOf(run, { text, kinds, errors }) {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => termOf(word, run));
  if (errors) terms.push((place) => (run.flags[place] & (FAILED | PROBLEM | OPEN)) !== 0);
  const places = [];
  for (let place = 0; place < run.count; place += 1) {
    if (kinds[run.kind[place]] && terms.every((test) => test(place))) places.push(place);
  }
  return Int32Array.from(places);
}
