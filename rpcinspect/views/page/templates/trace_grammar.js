// The language of `rpcinspect decode -f`: the same grammar, the same kinds of values.
// In: what was typed, and the fields that there are. Out: a tree, its comparisons in order; a Mistake says in one
// line why there is none.

class Mistake extends Error {}

const MAX_FILTER = 10000, MAX_LEVELS = 64, MAX_DIGITS = 40;
const TOKEN = /\s+|(==|!=|<=|>=|<|>|~)|(\|\||&&|[!(){},])|("(?:[^"\\]|\\[^])*"|'[^']*')|(\[[^\[\]]*\])|([^\s()\[\]{}"',=!<>~&|]+)/y;
const SIGNS = { "||": "or", "&&": "and", "!": "not" }, RESERVED = ["and", "or", "not", "in"];
const ALSO_ORDER = ["number", "bytes", "time"], TEXTUAL = ["text", "type"], QUOTABLE = TEXTUAL;

function tokensOf(text) {
  if (!text.trim()) throw new Mistake("the filter is empty");
  if (text.length > MAX_FILTER) throw new Mistake(`longer than ${MAX_FILTER} characters`);
  const tokens = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex, found = TOKEN.exec(text);
    if (!found) throw new Mistake(text[at] === '"' || text[at] === "'" ? "the text in quotes has no end" : `${printable(text[at])} is not part of the language`);
    const [, operator, sign, quoted, shape, word] = found;
    if (operator) tokens.push({ kind: "operator", text: operator });
    else if (sign) tokens.push({ kind: SIGNS[sign] ?? sign, text: sign });
    else if (quoted) tokens.push({ kind: "quoted", text: unquoted(quoted) });
    else if (shape) tokens.push({ kind: "shape", text: shape });
    else if (word) tokens.push({ kind: RESERVED.includes(word) ? word : "word", text: word });
  }
  return tokens;
}

/** In double quotes a backslash makes a quote or a backslash ordinary; in single ones nothing is special. */
const unquoted = (token) => (token[0] === "'" ? token.slice(1, -1) : token.slice(1, -1).replace(/\\(["\\])/g, "$1"));

class Parser {
  /** `fields`: name → [field, kind, whether it is asked of the request of a call]; `types`: names of all types. */
  constructor(text, fields, types) {
    Object.assign(this, { fields, types, tokens: tokensOf(text), at: 0, leaves: [] });
    this.tree = this.either();
    if (this.at < this.tokens.length) this.unexpected("and, or, the end");
  }

  next(...kinds) {
    return kinds.includes(this.tokens[this.at]?.kind) ? this.tokens[this.at++] : null;
  }

  want(kinds, words) { return this.next(...kinds) ?? this.unexpected(words); }

  unexpected(words) {
    const token = this.tokens[this.at];
    if (!token) throw new Mistake(`the filter ends too early: expected ${words}`);
    const hint = RESERVED.includes(token.text) ? " (a value that is a word of the language must be in quotes)" : "";
    throw new Mistake(`expected ${words} instead of ${printable(token.text)}${hint}`);
  }

  either() { return this.several("or", () => this.both()); }
  both() { return this.several("and", () => this.opposite()); }

  several(kind, part) {
    const items = [part()];
    while (this.next(kind)) items.push(part());
    return items.length === 1 ? items[0] : deeper({ kind, items });
  }

  opposite() {
    let turns = 0;
    while (this.next("not")) turns += 1;
    let tree = this.plain();
    for (; turns; turns -= 1) tree = deeper({ kind: "not", items: [tree] });
    return tree;
  }

  plain() {
    if (this.next("(")) {
      const tree = this.either();
      this.want([")"], ")");
      return tree;
    }
    const leaf = this.leaf(this.want(["word"], "a name, not, ("));
    this.leaves.push(leaf);
    return { kind: "leaf", number: this.leaves.length - 1, depth: 1 };
  }

  leaf({ text }) {
    if (!Object.hasOwn(this.fields, text)) throw new Mistake(`there is no field ${printable(text)}${near(text, Object.keys(this.fields))}`);
    const [field, kind, seen] = this.fields[text], leaf = { field, kind, seen, test: kind === "flag" ? (values) => values.includes(true) : (values) => values.length > 0 };
    if (this.next("in")) {
      this.want(["{"], "{");
      const tests = [];
      do tests.push(testOf(kind, "==", this.value(leaf))); while (this.next(","));
      this.want(["}"], "a comma, }");
      leaf.test = (values) => tests.some((test) => test(values));
    } else {
      const operator = this.next("operator")?.text;
      if (operator === "~" && TEXTUAL.includes(kind)) {
        const search = searchOf(this.value(leaf, true));
        leaf.test = (values) => values.some(search);
      } else if (operator) {
        if (operator === "~" || (operator !== "==" && operator !== "!=" && !ALSO_ORDER.includes(kind))) throw new Mistake(`${field} is a ${kind}, which does not know ${operator}`);
        leaf.test = testOf(kind, operator, this.value(leaf));
      }
    }
    return leaf;
  }

  value({ field, kind }, pattern = false) {
    const token = this.want(["word", "quoted", "shape"], "a value");
    if (pattern) {
      if (token.kind === "shape") throw new Mistake("a regular expression with brackets must be in quotes");
      return token.text;
    }
    if ((token.kind === "quoted" && !QUOTABLE.includes(kind)) || (token.kind === "shape") !== (kind === "shape")) throw new Mistake(`${field} is a ${kind}: ${WANTED[kind]}`);
    const value = READ[kind](token.text, this.types);
    if (value === null) throw new Mistake(`${field}: ${WANTED[kind]}`);
    return value;
  }
}

/** Counts levels as the program does, which bounds them. */
function deeper(tree) {
  tree.depth = 1 + Math.max(...tree.items.map(({ depth }) => depth));
  if (tree.depth > MAX_LEVELS) throw new Mistake(`more than ${MAX_LEVELS} levels of and, or and not inside of each other`);
  return tree;
}

function near(word, names) {
  const found = names.filter((name) => name.endsWith(`.${word}`) || name.includes(word) || (word.length > 2 && name.startsWith(word.slice(0, 3))));
  return found.length ? `; near: ${found.slice(0, 3).join(", ")}` : "; Help lists them";
}

// --- kinds of values: each is read into what can be compared with ===, < and > ------------------------------

const WANTED = {
  text: "a text, in quotes where it is more than a word", type: "a name of MessageType, or 0x…", number: "a whole number", bytes: "B KB MB GB TB (1000), KiB MiB GiB TiB (1024)",
  time: "a time with its unit: ns us ms s min", id: "3 or 0:3", flag: "true or false", shape: "[3, 4]; * is any size",
};
const DURATIONS = { ns: 1n, us: 1000n, "µs": 1000n, ms: 1000000n, s: 1000000000n, min: 60000000000n };
const SIZES = { "": 1n, B: 1n, KB: 10n ** 3n, MB: 10n ** 6n, GB: 10n ** 9n, TB: 10n ** 12n, KiB: 1n << 10n, MiB: 1n << 20n, GiB: 1n << 30n, TiB: 1n << 40n };
const COUNTER = (1n << 48n) - 1n;

const READ = {
  text: (word) => word,
  type: (word, types) => {
    const name = word.toUpperCase();
    if (types.includes(name)) return name;
    return /^0x[0-9a-f]{1,8}$/i.test(word) ? `0x${Number(word).toString(16).padStart(3, "0")}` : null;
  },
  number: (word) => (/^[+-]?[0-9]+$/.test(word) && word.length <= MAX_DIGITS ? whole(word) : null),
  bytes: (word) => scaled(word, SIZES),
  time: (word) => scaled(word, DURATIONS),
  flag: (word) => (word === "true" ? true : word === "false" ? false : null),
  shape: (word) => {
    const sizes = word.slice(1, -1).trim() ? word.slice(1, -1).split(",").map((size) => size.trim()) : [];
    return sizes.every((size) => /^(\*|[0-9]{1,39})$/.test(size)) ? sizes.map((size) => (size === "*" ? null : BigInt(size))) : null;
  },
  id: (word) => {
    const [, creator, , counter] = /^([+-]?[0-9]{1,40})(:([+-]?[0-9]{1,40}))?$/.exec(word) ?? [];
    if (creator === undefined) return null;
    if (counter !== undefined) return `${whole(creator)}:${whole(counter)}`;
    return creator[0] !== "-" && creator[0] !== "+" && whole(creator) < 1n << 63n ? id(creator) : null;
  },
};

const whole = (word) => BigInt(word.replace("+", ""));

/** A 64-bit id as creator:counter; a pair as it is. */
function id(value) {
  if (Array.isArray(value)) return value.join(":");
  const unsigned = BigInt.asUintN(64, BigInt(value));
  return `${unsigned >> 48n}:${unsigned & COUNTER}`;
}

/** A number with a unit, exactly, rounded down to the smallest; null for anything else. */
function scaled(word, units) {
  const [, number, unit] = /^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)([A-Za-zµ]*)$/.exec(word) ?? [];
  if (number === undefined || number.length > MAX_DIGITS) return null;
  const [digits, exponent = "0"] = number.split(/e/i), [before, after = ""] = digits.split(".");
  const mantissa = whole(before + after || "0");
  if (!Object.hasOwn(units, unit)) return mantissa === 0n && !unit ? 0n : null;
  const shift = Number(exponent) - after.length, scale = 10n ** BigInt(Math.abs(shift)), product = mantissa * units[unit];
  const value = shift >= 0 ? product * scale : (product - ((product % scale) + scale) % scale) / scale;
  return (value < 0n ? -value : value) >= 10n ** BigInt(MAX_DIGITS - 1) ? null : value;
}

/** What a message has of a field → what `READ` gives for the same. */
const VALUE = {
  text: String, type: String, flag: Boolean, id, number: BigInt, bytes: BigInt, time: BigInt, shape: (sizes) => sizes.map(BigInt),
};

const COMPARE = {
  "==": (a, b) => a === b, "!=": (a, b) => a !== b, "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
};

/** One value that fits is enough. */
function testOf(kind, operator, wanted) {
  if (kind === "shape") {
    const fits = (sizes) => sizes.length === wanted.length && sizes.every((size, at) => wanted[at] === null || wanted[at] === size);
    return (values) => values.some((sizes) => fits(sizes) === (operator === "=="));
  }
  return (values) => values.some((value) => COMPARE[operator](value, wanted));
}
