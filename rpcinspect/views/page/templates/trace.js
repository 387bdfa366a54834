// The page comes to life: data is unpacked, tabs and links work. What is open stands in the address:
// #calls and other tabs, #m12 a message, #c3 a context, #f0 a finding, #q=EXPR a filter.

class Page {
  constructor(run) {
    this.tabs = [...document.querySelectorAll("main > section")];
    this.links = [...document.querySelectorAll("nav a")];
    const store = new Store("messages");
    this.detail = new Detail(run, store);
    this.messages = new Messages(run, new Filters(run, store), (index) => { location.hash = `m${index}`; });
    this.contexts = new Contexts(run, new Store("contexts"));
    document.getElementById("detail-close").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.follow());
    document.querySelectorAll("main table:has(thead)").forEach(makeSortable);
    this.tab(run.count ? "calls" : "overview");
    this.follow(true);
  }

  /** Shows one tab; calls and messages are two lists of one. */
  tab(id) {
    const section = id === "calls" ? "messages" : id;
    if (!this.tabs.some((tab) => tab.id === section)) return false;
    this.tabs.forEach((tab) => tab.classList.toggle("off", tab.id !== section));
    this.links.forEach((link) => {
      if (link.hash === `#${id}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    document.body.dataset.tab = id;
    if (section === "messages") this.messages.list(id === "calls");
    if (id === "contexts") this.contexts.first();
    return true;
  }

  /** Goes where the address says. */
  async follow(first = false) {
    const words = decoded(location.hash.slice(1));
    const [, kind, number] = /^([mcf])(\d+)$/.exec(words) ?? [];
    if (kind === "m") await this.message(Number(number), first);
    else if (kind === "c") await this.context(Number(number));
    else if (kind === "f") this.finding(number);
    else if (words.startsWith("q=")) this.tab("messages") && await this.messages.ask(words.slice(2));
    else if (this.tab(words)) scrollTo(0, 0);
    else this.section(words);
  }

  async context(n) {
    const shown = this.contexts.show(n);
    this.tab("contexts");
    await shown;
  }

  /** Opens a message beside what is open: the list of messages, where the page begins with it. */
  async message(index, first) {
    if (first) this.tab("messages");
    const place = await this.detail.show(index);
    document.body.classList.toggle("with-detail", !this.detail.panel.hidden);
    if (place >= 0) this.messages.mark(place);
  }

  finding(number) {
    this.tab("findings");
    document.getElementById(`f${number}`)?.scrollIntoView({ block: "center" });
  }

  /** A part of a tab. */
  section(id) {
    const target = id && document.getElementById(id);
    const tab = target && target.closest("main > section");
    if (!tab) return;
    this.tab(tab.id);
    target.scrollIntoView();
  }

  close() {
    this.detail.hide();
    document.body.classList.remove("with-detail");
    history.replaceState(null, "", `#${document.body.dataset.tab}`);
  }

  key(event) {
    if (event.key === "Escape" && !this.detail.panel.hidden) this.close();
    if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      if (!["calls", "messages"].includes(document.body.dataset.tab)) this.tab("calls");
      this.messages.input.focus();
    }
  }
}

/** The words of an address; as they are where they are not well formed. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function start() {
  document.body.classList.add("alive");
  const [element] = elementsOf("data");
  new Page(new Run(await unpack(element)));
  document.body.dataset.ready = "yes";
}

start().catch((error) => {
  document.getElementById("broken").textContent = `The page could not be unpacked: ${error.message}. It needs a browser of 2023 or later.`;
  throw error;
});
