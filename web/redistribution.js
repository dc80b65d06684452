// The page of `tutti show redistribute`: what every rank holds before and after each step.
// Data: docs/formats/redistribution.md.

const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const PLATE = 58;      // a rank's square, and what is around it
const GAP = 14;
const HUES = 16;       // of style.css

function figure(value, units) {
  let unit = 0;
  for (; value >= 999.5 && unit + 1 < units.length; ++unit) value /= 1000;
  return `${value === 0 ? 0 : value.toPrecision(3)} ${units[unit]}`;
}
const bytes = (value) => figure(value, ['B', 'kB', 'MB', 'GB', 'TB']);
const time = (seconds) => figure(seconds * 1e9, ['ns', 'us', 'ms', 's']);
const placed = (layout) => `(${layout.placements.join(', ')})`;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.appendChild(made);
  return made;
}

function coordinates(position) {
  const at = [];
  for (let axis = data.mesh.length; axis-- > 0;) {
    at.unshift(position % data.mesh[axis].size);
    position = Math.floor(position / data.mesh[axis].size);
  }
  return at;
}

// The two dimensions that are drawn: those that are cut anywhere, then the first ones.
function drawnDimensions() {
  const cut = new Set();
  const look = (layout) => layout.placements.forEach((placement) => {
    const found = /^shard\((\d+)\)$/.exec(placement);
    if (found) cut.add(Number(found[1]));
  });
  [data.from, data.to, ...data.chain.steps.map((step) => step.after)].forEach(look);
  for (let i = 0; i < data.shape.length; ++i) cut.add(i);
  return [...cut].slice(0, 2).sort();
}
const [ROWS, COLUMNS] = drawnDimensions();

// From where to where a box reaches along a dimension, as a share of it; all of one that there is not.
function reach(box, dimension) {
  if (dimension === undefined || data.shape[dimension] === 0) return [0, box.shape.includes(0) ? 0 : 1];
  return [box.first[dimension] / data.shape[dimension], box.shape[dimension] / data.shape[dimension]];
}

function boxWords(box) {
  return `[${box.shape.map((length, i) =>
    length === 0 ? 'nothing' : `${box.first[i]}..${box.first[i] + length - 1}`).join(', ')}]`;
}

// Plates stand as the mesh does: the last axis to the right, the others downwards.
function drawState(layout) {
  const columns = data.mesh[data.mesh.length - 1].size;
  const rows = layout.boxes.length / columns;
  const width = columns * (PLATE + GAP) + GAP;
  const height = rows * (PLATE + GAP + 12) + GAP;
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('width', Math.min(width, 420));
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `what each rank holds as ${placed(layout)}`);
  const pattern = element('pattern', {id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse',
                                      patternTransform: 'rotate(45)'}, element('defs', {}, svg));
  element('rect', {class: 'stripe', width: 2.5, height: 6}, pattern);
  const partial = layout.placements.some((placement) => placement.startsWith('partial'));
  const hues = new Map();
  layout.boxes.forEach((box, position) => {
    const x = GAP + (position % columns) * (PLATE + GAP);
    const y = GAP + Math.floor(position / columns) * (PLATE + GAP + 12);
    const rank = data.rank_at[position];
    const group = element('g', {class: 'rank', 'data-rank': rank, 'data-box': boxWords(box)}, svg);
    element('rect', {class: 'frame', x: x - 5, y: y - 5, width: PLATE + 10, height: PLATE + 22, rx: 6}, group);
    element('rect', {class: 'plate', x, y, width: PLATE, height: PLATE}, group);
    const [top, tall] = reach(box, ROWS);
    const [left, wide] = reach(box, COLUMNS);
    const key = boxWords(box);
    if (!hues.has(key)) hues.set(key, hues.size % HUES);
    const hue = `var(--c${hues.get(key)})`;
    const place = {x: x + left * PLATE, y: y + top * PLATE, width: wide * PLATE, height: tall * PLATE};
    element('rect', {class: 'held', style: `--hue: ${hue}`, ...place}, group);
    if (partial) element('rect', {class: 'stripes', ...place}, group);
    const name = element('text', {class: 'rank-name', x: x + PLATE / 2, y: y + PLATE + 12}, group);
    name.textContent = `${rank} · host ${data.hosts[position]}`;
    const where = coordinates(position).map((c, axis) => `${data.mesh[axis].name} ${c}`).join(', ');
    element('title', {}, group).textContent = `rank ${rank} (${where}), host ${data.hosts[position]}: ${key}`;
  });
  const state = document.createElement('figure');
  state.className = 'state';
  state.style.margin = 0;
  state.appendChild(svg);
  const caption = document.createElement('figcaption');
  caption.textContent = placed(layout);
  state.appendChild(caption);
  return state;
}

function drawMove(step) {
  const move = document.createElement('div');
  move.className = 'move';
  const name = document.createElement('strong');
  name.textContent = `${step.step} ${step.along.join(' ')}`;
  const arrow = document.createElement('span');
  arrow.className = 'arrow';
  arrow.textContent = '→';
  const price = document.createElement('span');
  price.textContent = step.ranks > 1 ? ` ${bytes(step.rank_bytes)} a rank, ${time(step.seconds)}` : ' free';
  move.append(name, arrow, price);
  return move;
}

function fillTable(chain) {
  const head = ['step', 'along', 'ranks', 'array', 'a rank', 'time', 'then'];
  const lines = chain.steps.map((step) => [step.step, step.along.join(' '), step.ranks > 1 ? step.ranks : '',
    step.ranks > 1 ? bytes(step.array_bytes) : '', bytes(step.rank_bytes), time(step.seconds), placed(step.after)]);
  lines.push(['in all', '', '', '', bytes(chain.rank_bytes), time(chain.seconds), '']);
  const table = $('table');
  table.textContent = '';
  for (const [row, line] of [head, ...lines].entries()) {
    const made = table.insertRow();
    line.forEach((text, column) => {
      const cell = document.createElement(row === 0 ? 'th' : 'td');
      cell.textContent = text;
      if (column >= 2 && column <= 5) cell.className = 'number';
      made.appendChild(cell);
    });
  }
}

function drawBars(chosen) {
  const most = Math.max(data.chain.seconds, data.naive.seconds, 1e-12);
  const bars = $('bars');
  bars.textContent = '';
  for (const [id, word] of [['chain', 'cheapest'], ['naive', 'axis by axis']]) {
    const label = document.createElement('span');
    label.textContent = word;
    const room = document.createElement('span');
    const bar = document.createElement('div');
    bar.className = id === chosen ? 'bar chosen' : 'bar';
    bar.style.width = `${100 * data[id].seconds / most}%`;
    room.appendChild(bar);
    const price = document.createElement('span');
    price.textContent = `${time(data[id].seconds)}, ${bytes(data[id].rank_bytes)} a rank`;
    bars.append(label, room, price);
  }
}

function show(chosen) {
  for (const id of ['chain', 'naive']) {
    $(id).setAttribute('aria-pressed', id === chosen);
    $(id).classList.toggle('primary', id === chosen);
  }
  const states = $('states');
  states.textContent = '';
  states.appendChild(drawState(data.from));
  for (const step of data[chosen].steps) states.append(drawMove(step), drawState(step.after));
  fillTable(data[chosen]);
  drawBars(chosen);
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

function nameTheme() {
  $('theme-word').textContent = isDark() ? 'Light' : 'Dark';
  $('theme').setAttribute('aria-pressed', isDark());
  $('theme').setAttribute('aria-label', `Switch to ${isDark() ? 'light' : 'dark'} colours`);
}

$('title').textContent = `${placed(data.from)} to ${placed(data.to)}`;
$('subtitle').textContent = `${data.shape.join(' x ') || 1} ${data.dtype} on ` +
  `${data.mesh.map((axis) => `${axis.name} ${axis.size}`).join(' x ')}, ${data.rank_at.length} ranks on ` +
  `${new Set(data.hosts).size} hosts, priced by '${data.cluster}'`;
for (const id of ['chain', 'naive']) $(id).addEventListener('click', () => show(id));
$('theme').addEventListener('click', () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  nameTheme();
});
nameTheme();
show('chain');
