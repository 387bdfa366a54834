// Where a time lies on the diagram's axis. An axis is a row of straight pieces, so that it can leave out idle
// times, or give every message the same room.
// In: a run and places. Out: an Axis; units of it are nanoseconds, or messages.

class Axis {
  /** `times` and `units` ascend; `breaks` are the idle times [from, to] that were made short. */
  constructor(times, units, breaks = [], order = null) {
    Object.assign(this, { times, units, breaks, order });
  }

  get length() { return this.units.at(-1); }
  /** Time → units. */
  at(time) { return bend(this.times, this.units, time); }
  /** Units → time. */
  back(unit) { return bend(this.units, this.times, unit); }
}

/** Straight between neighbours, straight on beyond both ends. */
function bend(from, to, value) {
  const place = Math.min(Math.max(lastAtMost(from, value), 0), from.length - 2);
  const width = from[place + 1] - from[place];
  const share = width ? (value - from[place]) / width : 0;
  return to[place] + share * (to[place + 1] - to[place]);
}

const AXES = {
  /** Time as it passed. */
  time(run, places) {
    const [from, to] = spanOf(run, places);
    return new Axis([from, to], [0, to - from]);
  },

  /** Time, but for what is idle for long: nothing travels, nobody waits for an answer. */
  short(run, places) {
    const [from, to] = spanOf(run, places);
    const idle = longOnes(idleTimes(run, places), to - from);
    const busy = to - from - idle.reduce((sum, [a, b]) => sum + b - a, 0);
    const room = 0.025 * busy;
    const times = [from], units = [0];
    for (const [a, b] of idle) {
      const at = units.at(-1) + a - times.at(-1);
      times.push(a, b);
      units.push(at, at + room);
    }
    units.push(units.at(-1) + to - times.at(-1));
    times.push(to);
    return new Axis(times, units, idle);
  },

  /** Every message has the same room. */
  order(run, places) {
    const times = [], units = [], order = [];
    places.forEach((place) => {
      if (run.begin[place] === times.at(-1)) return; // at the same time as the one before
      times.push(run.begin[place]);
      units.push(units.length);
      order.push(run.index[place]);
    });
    const [, to] = spanOf(run, places);
    times.push(Math.max(to, (times.at(-1) ?? 0) + 1));
    units.push(units.length);
    if (times.length < 2) return AXES.time(run, places);
    return new Axis(times, units, [], order);
  },
};

/** From the first byte to the last, never of no length. */
function spanOf(run, places) {
  if (!places.length) return [0, 1];
  const from = run.begin[places[0]];
  let to = from + 1;
  places.forEach((place) => { to = Math.max(to, run.end(place)); });
  return [from, to];
}

/** Between messages, where no call that somebody made waits for its answer. */
function idleTimes(run, places) {
  const housekeeping = run.kinds.indexOf("housekeeping"), idle = [];
  let until = places.length ? run.begin[places[0]] : 0;
  places.forEach((place) => {
    if (run.begin[place] > until) idle.push([until, run.begin[place]]);
    const answer = run.is(place, REQUEST) && run.kind[place] !== housekeeping ? run.partnerPlace(place) : -1;
    until = Math.max(until, run.end(place), answer < 0 ? 0 : run.end(answer));
  });
  return idle;
}

/** Those that are long beside all that remains; in order. */
function longOnes(idle, span) {
  const longest = [...idle].sort((a, b) => b[1] - b[0] - (a[1] - a[0]));
  let left = span, count = 0;
  while (count < longest.length && longest[count][1] - longest[count][0] > 0.06 * left) {
    left -= longest[count][1] - longest[count][0];
    count += 1;
  }
  return longest.slice(0, count).sort((a, b) => a[0] - b[0]);
}

const STEPS = [1, 2, 5];

/** Round times to write below the axis: [time, words]; at least `gap` units apart, none in a break. */
function ticksOf(axis, from, to, gap) {
  if (axis.order) return orderTicks(axis, from, to, gap);
  const step = roundUp(gap);
  const ticks = [];
  let time = Math.ceil(axis.back(from) / step) * step;
  const end = axis.back(to);
  while (time <= end && ticks.length < 200) {
    const idle = axis.breaks.find(([a, b]) => time > a && time < b);
    if (idle) {
      time = Math.ceil(idle[1] / step) * step;
      continue;
    }
    ticks.push([axis.at(time), seconds(time, step)]);
    time += step;
  }
  return ticks;
}

function orderTicks(axis, from, to, gap) {
  const step = Math.max(1, roundUp(gap)), ticks = [];
  for (let unit = Math.max(0, Math.ceil(from / step) * step); unit <= to && unit < axis.order.length; unit += step) {
    ticks.push([unit, `#${axis.order[unit]}`]);
  }
  return ticks;
}

/** The next of 1, 2, 5, 10, 20, … */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return power * (STEPS.find((one) => one * power >= value) ?? 10);
}

/** A time of the run in the unit of its step. */
function seconds(ns, step) {
  const [unit, name] = UNITS.find(([size]) => Math.max(step * 10, Math.abs(ns) / 1000) >= size) ?? [1, "ns"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return `${(ns / unit).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${name}`;
}
