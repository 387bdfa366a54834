// Regular expressions as RE2 reads them, in those of the browser: the same pattern finds the same texts.
// In: a pattern. Out: a search. What the two do not share is refused, so that no pattern means another thing here.

const CLASSES = { d: "0-9", w: "0-9A-Za-z_", s: "\\t\\n\\f\\r " };
const KEPT = "nrtfvbB", NO_CASE = /^\(\?([ims]+)\)/;

/** Whether a text has a match anywhere. */
function searchOf(pattern) {
  const flags = NO_CASE.exec(pattern)?.[1] ?? "";
  const translator = new Translator(pattern.slice(flags && flags.length + 3), flags.includes("s"));
  let compiled;
  try {
    compiled = new RegExp(translator.all(), `u${flags.includes("i") ? "i" : ""}${flags.includes("m") ? "m" : ""}`);
  } catch (error) {
    throw error instanceof Mistake ? error : new Mistake("not a regular expression of RE2");
  }
  return (text) => compiled.test(text);
}

class Translator {
  constructor(pattern, dotAll) { Object.assign(this, { rest: pattern, dotAll }); }

  /** Takes what a pattern matches from the beginning of what is left. */
  take(pattern) {
    const found = pattern.exec(this.rest);
    if (found) this.rest = this.rest.slice(found[0].length);
    return found;
  }

  all() {
    let out = "";
    while (this.rest) out += this.piece();
    return out;
  }

  piece() {
    if (this.take(/^\(\?P?<[A-Za-z_]\w*>/)) return "(";
    if (this.take(/^\(\?:/)) return "(?:";
    if (/^\(\?/.test(this.rest)) this.refuse(this.rest.slice(0, 4));
    if (this.take(/^\./)) return this.dotAll ? "[^]" : "[^\\n]";
    if (this.take(/^\[/)) return this.set();
    if (this.rest[0] === "\\") return this.escape(false);
    const count = this.take(/^\{(\d+)(?:,(\d*))?\}/);
    if (count) return Number(count[1]) > 1000 || Number(count[2] ?? 0) > 1000 ? this.refuse(count[0]) : count[0];
    const [character] = this.take(/^[^]/u);
    return "{}]".includes(character) ? `\\${character}` : character;
  }

  /** A set of characters. */
  set() {
    let out = `[${this.take(/^\^/) ? "^" : ""}`;
    if (this.take(/^\]/)) out += "\\]";
    while (this.rest && this.rest[0] !== "]") {
      if (/^\[:/.test(this.rest)) this.refuse("[:…:]");
      out += this.rest[0] === "\\" ? this.escape(true) : this.take(/^\[/) ? "\\[" : this.take(/^[^]/u)[0];
    }
    if (!this.take(/^\]/)) this.refuse("[ without ]");
    return `${out}]`;
  }

  escape(inSet) {
    const [whole, letter] = this.take(/^\\([^]?)/u);
    const simple = letter.toLowerCase();
    if (Object.hasOwn(CLASSES, simple) && letter === simple) return inSet ? CLASSES[letter] : `[${CLASSES[letter]}]`;
    if (Object.hasOwn(CLASSES, simple) && !inSet) return `[^${CLASSES[simple]}]`;
    if (KEPT.includes(letter) && !(inSet && simple === "b")) return whole;
    if (letter === "a") return "\\x07";
    if (letter === "A" && !inSet) return "(?<![^])";
    if (letter === "z" && !inSet) return "(?![^])";
    if (letter === "x") {
      const code = this.take(/^([0-9A-Fa-f]{2})|^\{([0-9A-Fa-f]{1,6})\}/);
      if (code) return `\\u{${code[1] ?? code[2]}}`;
    }
    if (simple === "p") {
      const name = this.take(/^(?:([A-Z])|\{(\^?)([A-Za-z_]+)\})/);
      if (name && !name[2]) return `\\${letter}{${name[1] ?? (name[3].length < 3 ? name[3] : `Script=${name[3]}`)}}`;
    }
    if (letter && letter.codePointAt(0) < 128 && !/[0-9A-Za-z]/.test(letter)) return `\\u{${letter.codePointAt(0).toString(16)}}`;
    return this.refuse(whole);
  }

  refuse(what) {
    throw new Mistake(`this page does not know ${printable(what)} in a regular expression; decode -f may`);
  }
}
