// host_run.js - plays a host form as the library exported it (docs/formats/schedule.md, "For drawing"):
// phases of moves and folds on cells of one's own and of others, and meetings between them.
//
// Between two meetings ranks run as they like, and nobody touches what another one writes: so all may
// be shown to do their first thing together, then their second. A fold reads one operand after the other.

const SHOW = 0, KEEP = 1, TAKE = 2, GIVE = 3, FOLD = 4;

// What a rank does in a phase, turn by turn: lists of {verb, by, from: [rank, cell], to, share}. What it
// does within its own memory is one turn.
function turnsOf(by, phase) {
  const turns = [];
  let own = null;
  const place = (where) => typeof where === 'number' ? [by, where] : where;
  const withPeer = (touch) => { own = null; turns.push([{by, share: 1, ...touch}]); };
  for (const op of phase)
    switch (op[0]) {
      case SHOW:
      case KEEP:
        if (own === null) turns.push(own = []);
        own.push({by, verb: op[0] === SHOW ? 'shows' : 'copies', from: [by, op[1]], to: [by, op[2]], share: 1});
        break;
      case TAKE: withPeer({verb: 'takes', from: [op[1], op[2]], to: [by, op[3]], share: op[4]}); break;
      case GIVE: withPeer({verb: 'gives', from: [by, op[2]], to: [op[1], op[3]], share: op[4]}); break;
      case FOLD: {
        const [, cell, , operands, targets] = op, to = [by, cell];
        const sum = {from: 0, left: operands.length, ownLeft: operands.includes(cell)};
        for (const operand of operands) withPeer({verb: 'folds', from: place(operand), to, sum});
        for (const target of targets)
          if (typeof target === 'number') turns[turns.length - 1].push({by, verb: 'keeps', from: to, to: [by, target], share: 1});
          else withPeer({verb: 'puts', from: to, to: target});
        break;
      }
      default: throw new Error(`action ${op[0]} is not known to this page`);
    }
  return turns;
}

// As play(): states[k], the memory after k steps, and steps[k], what happened in step k.
function playHost(schedule) {
  const ranks = schedule.ranks;
  const memory = atFirst(ranks);
  const everybody = bitsOf(0, ranks.length);
  let heard = ranks.map((_, rank) => (1 << rank) >>> 0);
  const copyOf = () => ({cells: memory.map((cells) => cells.map((cell) => ({...cell}))), heard: heard.slice()});
  const states = [copyOf()], steps = [];

  // A cell that taker and giver fill together is complete when both have done their part.
  function write([rank, cell], content, share) {
    const before = memory[rank][cell];
    const part = share + (before.part < 1 && before.from === content.from ? before.part : 0);
    memory[rank][cell] = part > 0.999 ? {from: content.from, extent: content.extent} : {...content, part};
  }
  function perform(touch, step) {
    const {from, to, sum} = touch;
    const content = {...memory[from[0]][from[1]]};
    if (sum) {
      sum.from = (sum.from | content.from) >>> 0;
      if (from[0] === to[0] && from[1] === to[1]) sum.ownLeft = false;
      // In place, what is not folded yet still lies where the sum will be.
      const still = sum.ownLeft ? memory[to[0]][to[1]].from : 0;
      write(to, {from: (--sum.left === 0 ? sum.from : sum.from | still) >>> 0, extent: content.extent}, 1);
      step.folds.push({rank: to[0]});
    } else {
      write(to, content, touch.share);
    }
    step.changed.push(to);
    const told = {...touch, from: from[0], to: to[0], cells: [from[1], to[1]], contents: [content], heard: heard[from[0]]};
    if (from[0] !== to[0]) step.messages.push(told);
    else if (!sum) step.own.push(told);
  }
  function add(step, act) {
    act(step);
    steps.push(step);
    states.push(copyOf());
  }
  const blank = (name) => ({name, meets: false, messages: [], own: [], changed: [], folds: []});

  for (let phase = 0; phase < ranks[0].phases.length; ++phase) {
    if (phase > 0) add({...blank(`meeting ${phase}`), meets: true}, () => { heard = heard.map(() => everybody); });
    const turns = ranks.map((rank, by) => turnsOf(by, rank.phases[phase]));
    for (let turn = 0; turn < Math.max(...turns.map((list) => list.length)); ++turn)
      add(blank(`phase ${phase}`), (step) => turns.forEach((list) => (list[turn] || []).forEach((touch) => perform(touch, step))));
  }
  return {states, steps};
}
