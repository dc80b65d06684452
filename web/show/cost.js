// cost.js - the cost formula with its numbers, and the tuner's predictions beside it. The
// coefficients and the predictions are data; here they are multiplied, added and looked up.

const TERMS = [
  {key: 'alpha', sign: 'α', word: 'latency of a message', unit: 's'},
  {key: 'overhead', sign: 'o', word: 'handling a message', unit: 's'},
  {key: 'beta', sign: 'β', word: 'a byte on its way', unit: 's/B'},
  {key: 'gamma', sign: 'γ', word: 'a byte folded', unit: 's/B'},
];

// What the measured machine has, for ranks that sit like this.
function machineCosts(machine, placement) {
  const link = placement === 'one_host' ? machine.memory : machine.tcp;
  return {alpha: link.alpha_s, overhead: link.overhead_s, beta: link.beta_s, gamma: machine.gamma_s};
}

// Seconds of each term of the formula.
function termSeconds(measure, costs, bytes) {
  const share = (chunks) => measure.parts === 0 ? 0 : chunks / measure.parts;
  return {
    alpha: measure.chain * costs.alpha,
    overhead: measure.messages * costs.overhead,
    beta: share(measure.moved) * bytes * costs.beta,
    gamma: share(measure.folded) * bytes * costs.gamma,
  };
}

function sum(terms) { return Object.values(terms).reduce((total, term) => total + term, 0); }

// Empty where nothing is sent and nothing is folded.
function formulaParts(measure) {
  const times = (count, sign) => count === 1 ? sign : `${count}·${sign}`;
  const parts = [];
  if (measure.messages > 0) parts.push(times(measure.chain, 'α'), times(measure.messages, 'o'));
  if (measure.moved > 0 && measure.parts > 0) parts.push(`${shareWord(measure.moved, measure.parts)}S·β`);
  if (measure.folded > 0 && measure.parts > 0) parts.push(`${shareWord(measure.folded, measure.parts)}S·γ`);
  return parts;
}

// Between two sizes that were predicted: straight on logarithmic scales.
function interpolate(sizes, values, bytes) {
  if (!values) return null;
  const at = Math.max(1, sizes.findIndex((size) => size >= bytes));
  const [low, high] = [sizes[at - 1], sizes[at]];
  const way = clamp(Math.log(bytes / low) / Math.log(high / low), 0, 1);
  return 1e-9 * Math.exp(Math.log(Math.max(values[at - 1], 1)) * (1 - way) + Math.log(Math.max(values[at], 1)) * way);
}

// Predicted seconds of every algorithm, and which one the tuner takes at the nearest size.
function predictionsFor(data, size, placement, bytes) {
  const table = (data.predictions[size] || {})[placement];
  if (!table) return {seconds: {}, choice: null};
  const seconds = {};
  for (const [name, values] of Object.entries(table))
    if (name !== 'choice') seconds[name] = interpolate(data.sizes, values, bytes);
  let nearest = 0;
  data.sizes.forEach((each, i) => {
    if (Math.abs(Math.log(each / bytes)) < Math.abs(Math.log(data.sizes[nearest] / bytes))) nearest = i;
  });
  return {seconds, choice: table.choice ? table.choice[nearest] : null};
}
