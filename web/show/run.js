// run.js - plays a message form as the library exported it (docs/formats/schedule.md, "For drawing"):
// four kinds of op on numbered cells, nothing else. It knows no collective and no algorithm.

const SEND = 0, RECV = 1, COPY = 2, REDUCE = 3;
const SPACES = ['input', 'output', 'scratch', 'window', 'result'];

// What a cell holds: whose contributions, as bits, and which piece of the message. 0: nothing.
function atFirst(ranks) {
  return ranks.map((rank) => rank.cells.map(([, , extent, start]) =>
    start < 0 ? {from: 0, extent} : {from: (1 << start) >>> 0, extent}));
}

function bitsOf(first, count) {
  return count >= 32 ? 0xffffffff : (((1 << count) - 1) << first) >>> 0;
}

// Cells that an op reads and writes in its own rank's memory: [first, count, writes].
function accesses(op) {
  switch (op[0]) {
    case SEND: return [[op[3], op[4], false]];
    case RECV: return [[op[3], op[4], true]];
    case COPY: return [[op[3], op[4], false], [op[2], op[4], true]];
    case REDUCE:
      return op[5].filter((source) => typeof source === 'number')
        .map((source) => [source, op[3], false]).concat([[op[2], op[3], true]]);
    default: throw new Error(`op ${op[0]} is not known to this page`);
  }
}

// For each op the earlier ones that it must wait for: same cell, and one of the two writes.
function hazardsOf(ops) {
  const touched = ops.map(accesses);
  const collide = (a, b) => a.some(([f, c, w]) => b.some(([g, d, v]) =>
    (w || v) && f < g + d && g < f + c));
  return touched.map((mine, i) => {
    const before = [];
    for (let j = 0; j < i; ++j) if (collide(mine, touched[j])) before.push(j);
    return before;
  });
}

// Returns states[k], the memory after k steps, and steps[k], what happened in step k.
function play(schedule) {
  const ranks = schedule.ranks;
  const memory = atFirst(ranks);
  const heard = ranks.map((_, rank) => (1 << rank) >>> 0);
  const hazards = ranks.map((rank) => hazardsOf(rank.ops));
  const done = ranks.map((rank) => new Array(rank.ops.length).fill(false));
  const mail = new Map();
  const numbers = [...new Set(ranks.flatMap((rank) => rank.ops.map((op) => op[1])))].sort((a, b) => a - b);
  const copyOf = () => ({cells: memory.map((cells) => cells.map((cell) => ({...cell}))), heard: heard.slice()});
  const states = [copyOf()];
  const steps = [];

  function write(rank, first, contents, step) {
    contents.forEach((content, i) => {
      memory[rank][first + i] = {...content};
      step.changed.push([rank, first + i]);
    });
  }
  function read(rank, first, count) {
    return memory[rank].slice(first, first + count).map((cell) => ({...cell}));
  }
  // Tries one op; false when what it needs is not there yet.
  function perform(rank, op, step) {
    switch (op[0]) {
      case SEND: {
        const message = {from: rank, to: op[2], first: op[3], contents: read(rank, op[3], op[4]), heard: heard[rank]};
        mail.set(`${rank} ${op[2]} ${op[1]}`, message);
        step.messages.push(message);
        return true;
      }
      case RECV: {
        const message = take(op[2], rank, op[1]);
        if (!message) return false;
        message.into = op[3];
        write(rank, op[3], message.contents, step);
        return true;
      }
      case COPY:
        write(rank, op[2], read(rank, op[3], op[4]), step);
        return true;
      case REDUCE: return reduce(rank, op, step);
      default: throw new Error(`op ${op[0]} is not known to this page`);
    }
  }
  function take(from, to, number) {
    const message = mail.get(`${from} ${to} ${number}`);
    if (message) heard[to] = (heard[to] | message.heard) >>> 0;
    return message;
  }
  function reduce(rank, [, , first, count, , sources], step) {
    const letters = sources.filter((source) => typeof source !== 'number');
    if (!letters.every(([from, number]) => mail.has(`${from} ${rank} ${number}`))) return false;
    const operands = sources.map((source) =>
      typeof source === 'number' ? read(rank, source, count) : take(source[0], rank, source[1]).contents);
    const sums = operands[0].map((content, i) => ({
      from: operands.reduce((bits, operand) => (bits | operand[i].from) >>> 0, 0), extent: content.extent}));
    write(rank, first, sums, step);
    step.folds.push({rank, first, count, operands: operands.length});
    return true;
  }

  for (const number of numbers) {
    const step = {number, messages: [], changed: [], folds: []};
    for (let moved = true; moved;) {
      moved = false;
      ranks.forEach(({ops}, rank) => ops.forEach((op, i) => {
        if (done[rank][i] || op[1] > number || hazards[rank][i].some((j) => !done[rank][j])) return;
        if (perform(rank, op, step)) moved = done[rank][i] = true;
      }));
    }
    steps.push(step);
    states.push(copyOf());
  }
  if (done.some((ops) => ops.includes(false))) throw new Error('this schedule does not come to its end');
  return {states, steps};
}

// Of what is moved in parts, a part is not enough.
function isComplete(content, goal) {
  return goal !== 0 && content.from === goal && !(content.part < 1);
}

// How many results are complete in a state, and how many there are.
function progressOf(schedule, state) {
  let complete = 0, promised = 0;
  schedule.ranks.forEach((rank, r) => rank.cells.forEach(([, , , , first, count], c) => {
    if (count === 0) return;
    ++promised;
    if (isComplete(state.cells[r][c], bitsOf(first, count))) ++complete;
  }));
  if (promised > 0) return {complete, promised};
  // Nothing is moved but the news that somebody has come.
  const everybody = bitsOf(0, schedule.size);
  return {complete: state.heard.filter((bits) => bits === everybody).length, promised: schedule.size};
}
