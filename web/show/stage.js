// stage.js - the drawing: a plate per rank, a cell per chunk, arrows and travelling chunks.

const SVG = 'http://www.w3.org/2000/svg';
const SPACE_WORDS = {input: 'in', output: 'out', scratch: 'tmp', window: 'window', result: 'result'};
const CALLERS = ['input', 'output', 'heard'];  // not on the way to somebody: drawn larger
const SLOTS = ['window', 'result'];
const MOST_PER_ROW = 16;
const LEAST_FONT = 10;    // pixels of the screen
const LEAST_SCALE = 0.6;  // pixels of the screen for one of the drawing: smaller, and it can only be guessed at
const GAP = {x: 18, y: 26};  // between plates in rows

function make(kind, attributes, parent) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  if (parent) parent.appendChild(element);
  return element;
}

function clamp(value, low, high) { return Math.min(high, Math.max(low, value)); }

// Draws one schedule; show(k, fraction) moves it to k completed steps and some way into the next.
class Stage {
  constructor(place, schedule, run, reduces) {
    this.schedule = schedule;
    this.run = run;
    this.reduces = reduces;
    this.size = schedule.size;
    this.room = place.clientWidth;
    this.measure();
    this.svg = make('svg', {viewBox: `0 0 ${this.width} ${this.height}`, role: 'img'});
    this.svg.classList.toggle('fine', this.cellWidth < 11);
    this.svg.style.setProperty('--label', `${this.font}px`);
    // What does not fit is scrolled, rather than drawn smaller.
    const least = this.inRows ? Math.min(1, this.room / this.width) : LEAST_SCALE;
    this.svg.style.minWidth = `${least * this.width}px`;
    this.svg.style.minHeight = `${least * this.height}px`;
    this.drawHosts();
    this.linkLayer = make('g', {'aria-hidden': 'true'}, this.svg);
    const isHost = schedule.form === 'host';
    if (!isHost) this.pastLayer = make('g', {'aria-hidden': 'true'}, this.svg);
    if (isHost) this.drawMeeting();
    else this.drawLinks();
    this.plates = schedule.ranks.map((_, rank) => this.drawRank(rank));
    // Arrows from cell to cell lie on top of the plates, others behind them.
    if (isHost) this.pastLayer = make('g', {'aria-hidden': 'true'}, this.svg);
    this.tokenLayer = make('g', {'aria-hidden': 'true'}, this.svg);
    place.replaceChildren(this.svg);
  }

  // ---- sizes

  // Rows of cells in every plate, by space; long ones are broken.
  rowsOf(rank) {
    const rows = [];
    for (const space of SPACES) {
      const cells = this.schedule.ranks[rank].cells
        .map((cell, index) => ({cell, index}))
        .filter(({cell}) => SPACES[cell[0]] === space);
      for (let at = 0; at < cells.length; at += MOST_PER_ROW)
        rows.push({space, cells: cells.slice(at, at + MOST_PER_ROW)});
    }
    return rows;
  }

  // The shape that the layout says, as long as it can be read; then plates in rows.
  measure() {
    this.rows = this.schedule.ranks.map((_, rank) => this.rowsOf(rank));
    this.isBarrier = this.schedule.measure.parts === 0;
    if (this.isBarrier) this.rows = this.rows.map(() => [{space: 'heard', cells: [{cell: null, index: -1}]}]);
    const n = this.size, room = n <= 4 ? 220 : n <= 8 ? 160 : n <= 16 ? 126 : 104;
    this.sizePlates(room, LEAST_FONT);
    this.placePlates();
    const {kind, hosts} = this.schedule.layout;
    this.inRows = n > 1 && this.scale() < LEAST_SCALE && ['ring', 'star', 'cube'].includes(kind) && hosts.length <= 1;
    if (this.inRows) {
      const half = (this.room - GAP.x) / 2 - this.margin() - this.gutter - 8;
      this.sizePlates(Math.min(room, half), LEAST_FONT);
      this.placeInRows();
    } else {
      this.sizePlates(room, LEAST_FONT / clamp(this.scale(), LEAST_SCALE, 1));
      this.placePlates();
    }
  }

  // How large the drawing is on the screen, at most its own size.
  scale() {
    return Math.min(1, this.room / this.width, Math.max(0.68 * innerHeight, 420) / this.height);
  }

  // With `room` for cells in each, and labels of this size.
  sizePlates(room, font) {
    const n = this.size;
    const longest = Math.max(1, ...this.rows.flat().map((row) => row.cells.length));
    const kinds = new Set(this.rows.flat().map((row) => row.space));
    this.font = font;
    this.cellWidth = clamp(room / longest, n <= 16 ? 7.5 : 6, 34);
    this.cellHeight = n <= 8 ? 44 : n <= 16 ? 36 : 30;
    this.named = kinds.has('input') && kinds.has('output');
    this.gutter = SLOTS.some((space) => kinds.has(space)) ? 4.3 * font : this.named || kinds.has('scratch') ? 2.6 * font : 8;
    this.plateWidth = Math.max(longest * this.cellWidth + this.gutter + 8, 68);
    this.plateHeights = this.rows.map((rows) => this.headHeight() + rows.reduce((sum, row) => sum + this.rowHeight(row), 0) + 3);
    this.plateHeight = Math.max(...this.plateHeights);
  }

  headHeight() { return 1.3 * this.font + 10; }
  cellHeightIn(row) { return CALLERS.includes(row.space) ? this.cellHeight : Math.max(13, this.font + 2); }
  rowHeight(row) { return this.cellHeightIn(row) + (CALLERS.includes(row.space) ? this.font + 6 : 6); }

  margin() { return this.schedule.layout.hosts.length === 0 ? 16 : this.inRows ? 30 : 44; }

  placePlates() {
    const {kind, x, y, hosts} = this.schedule.layout;
    const n = this.size, w = this.plateWidth, h = this.plateHeight;
    const levels = new Set(y).size, columns = new Set(x).size;
    const round = kind === 'ring' || kind === 'star';
    const margin = this.margin();
    if (round) {
      [this.width, this.height] = this.roomForCircle(x, y, margin);
    } else if (kind === 'cube') {
      const bits = Math.round(Math.log2(n));
      this.width = Math.max(720, (w + 60) * (bits <= 3 ? 3.6 : 6.2)) + 2 * margin;
      this.height = (h + 60) * (bits <= 2 ? 2 : bits <= 4 ? 3.1 : 6) + 2 * margin;
    } else {
      const tree = kind === 'tree' || kind === 'two_trees';
      const across = kind === 'two_trees' ? Math.max(2.6, (columns + 1) * 0.44) : tree ? leavesOf(y, x) : columns;
      this.width = Math.max(680, across * (w + (tree ? 16 : 46)) + 2 * margin);
      this.height = levels * (h + (tree ? 36 : hosts.length > 0 ? 84 : 66)) + 2 * margin - 20;
    }
    const wide = this.width - w - 2 * margin, high = this.height - h - 2 * margin;
    const flat = kind === 'ring' && n === 2;
    this.at = x.map((_, rank) => ({
      x: margin + w / 2 + (flat ? rank : x[rank]) * wide,
      y: margin + h / 2 + (flat ? 0.5 : y[rank]) * high,
    }));
  }

  // As many beside each other as there is room for, and two at least. Rows turn round at each end, so that
  // neighbours in a ring stay neighbours; two columns are a ring. In a cube partners stand in line.
  placeInRows() {
    const margin = this.margin(), n = this.size, w = this.plateWidth + GAP.x, h = this.plateHeight + GAP.y;
    const cube = this.schedule.layout.kind === 'cube';
    let columns = clamp(Math.floor((this.room - 2 * margin + GAP.x) / w), 2, n);
    if (cube) columns = 2 ** Math.floor(Math.log2(columns));
    const rows = Math.ceil(n / columns);
    this.width = columns * w - GAP.x + 2 * margin;
    this.height = rows * h - GAP.y + 2 * margin;
    this.at = Array.from({length: n}, (_, rank) => {
      let row = Math.floor(rank / columns), column = rank % columns;
      if (columns === 2 && !cube) [row, column] = rank < rows ? [rank, 0] : [n - 1 - rank, 1];
      else if (row % 2 === 1 && !cube) column = columns - 1 - column;
      return {x: margin + this.plateWidth / 2 + column * w, y: margin + this.plateHeight / 2 + row * h};
    });
  }

  // The smallest oval on which no two plates touch.
  roomForCircle(x, y, margin) {
    const gap = this.size <= 8 ? 1 : 0.5;
    const w = this.plateWidth + 44 * gap, h = this.plateHeight + 36 * gap;
    if (this.size <= 2) return [Math.max(560, 2 * w + 200), Math.max(260, h + 80)];
    const touch = (a, b, i, j) => Math.abs(x[i] - x[j]) * a < w && Math.abs(y[i] - y[j]) * b < h;
    let a = Math.max(2 * w, 420), b = a * 0.62;
    for (let free = false; !free; a *= 1.03, b *= 1.03)
      free = x.every((_, i) => x.every((_, j) => i === j || !touch(a, b, i, j)));
    return [a + this.plateWidth + 2 * margin, b + this.plateHeight + 2 * margin];
  }

  // ---- what does not move

  drawHosts() {
    this.schedule.layout.hosts.forEach((ranks, host) => {
      const xs = ranks.map((rank) => this.at[rank].x), ys = ranks.map((rank) => this.at[rank].y);
      const left = Math.min(...xs) - this.plateWidth / 2 - 18, top = Math.min(...ys) - this.plateHeight / 2 - 28;
      const group = make('g', {'aria-hidden': 'true'}, this.svg);
      make('rect', {class: 'host', x: left, y: top, rx: 14,
        width: Math.max(...xs) - Math.min(...xs) + this.plateWidth + 36,
        height: Math.max(...ys) - Math.min(...ys) + this.plateHeight + 44}, group);
      make('text', {class: 'host-name', x: left + 12, y: top + 18}, group)
        .textContent = this.schedule.layout.hosts.length > 1 ? `host ${host}` : 'one host';
    });
  }

  drawLinks() {
    const links = new Map();
    for (const step of this.run.steps)
      for (const message of step.messages) {
        const key = [message.from, message.to].sort((a, b) => a - b).join(' ');
        const half = (message.contents[0] || {extent: 0}).extent >= this.schedule.cut / 2;
        if (!links.has(key)) links.set(key, half);
      }
    if (links.size > 2.2 * this.size + 2) return;  // all to all: the plates say it better
    for (const [key, half] of links) {
      const [a, b] = key.split(' ').map((rank) => this.at[rank]);
      const second = half && this.schedule.layout.kind === 'two_trees';
      make('line', {class: second ? 'link second' : 'link', x1: a.x, y1: a.y, x2: b.x, y2: b.y}, this.linkLayer);
    }
  }

  // The line across all ranks, which they pass together.
  drawMeeting() {
    const xs = this.at.map(({x}) => x), ys = this.at.map(({y}) => y);
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const middle = {x: (left + right) / 2, y: (top + bottom) / 2 + (this.size > 2 ? 5 : -14)};
    if (this.inRows) {
      const [w, h] = [this.plateWidth + 16, this.plateHeight + 16];
      make('rect', {class: 'meet', x: left - w / 2, y: top - h / 2, width: right - left + w, height: bottom - top + h, rx: 12}, this.linkLayer);
      middle.y = this.height - 8;
    } else {
      make('ellipse', {class: 'meet', cx: middle.x, cy: (top + bottom) / 2, rx: (right - left) / 2, ry: (bottom - top) / 2}, this.linkLayer);
    }
    make('text', {class: 'meet-word', ...middle}, this.linkLayer).textContent = `all ${this.size} meet`;
  }

  drawRank(rank) {
    const {x, y} = this.at[rank];
    const height = this.plateHeights[rank];
    const left = x - this.plateWidth / 2, top = y - height / 2;
    const isRoot = rank === this.schedule.root && this.hasRoot();
    const group = make('g', {class: isRoot ? 'rank root' : 'rank', 'data-rank': rank}, this.svg);
    make('rect', {class: 'plate', x: left, y: top, width: this.plateWidth, height, rx: 8}, group);
    make('text', {class: 'rank-name', x: left + 8, y: top + 1.3 * this.font + 3}, group)
      .textContent = this.nameOf(rank, isRoot);
    const cells = [];
    let down = top + this.headHeight(), previous = '';
    for (const row of this.rows[rank]) {
      const high = this.cellHeightIn(row);
      if (row.space !== previous && (this.named || !CALLERS.includes(row.space)))
        make('text', {class: 'space-name', x: left + 4, y: down + Math.min(high, 20) / 2 + this.font / 3}, group)
          .textContent = SPACE_WORDS[row.space] || '';
      previous = row.space;
      const start = this.isBarrier ? x - this.cellWidth / 2 : left + this.gutter;
      row.cells.forEach(({cell, index}, i) => {
        const drawn = this.drawCell(group, rank, cell, index, start + i * this.cellWidth, down, high);
        cells[Math.max(index, 0)] = drawn;
      });
      down += this.rowHeight(row);
    }
    return {group, cells, left, top, height};
  }

  // The longest that fits; who the root is, is also told by its frame.
  nameOf(rank, isRoot) {
    const names = isRoot ? [`rank ${rank} · root`, `${rank} · root`, `${rank}`] : [`rank ${rank}`, `${rank}`];
    return names.find((name) => name.length * 0.8 * this.font < this.plateWidth - 12) || `${rank}`;
  }

  hasRoot() { return this.schedule.rooted; }

  drawCell(parent, rank, cell, index, x, y, height) {
    const width = this.cellWidth - 1.5;
    const space = cell ? SPACES[cell[0]] : 'heard';
    const group = make('g', {class: 'cell', 'data-rank': rank, 'data-space': space}, parent);
    if (cell) {
      group.dataset.chunk = cell[1];
      if (cell[5] > 0) group.dataset.goal = ranksIn(bitsOf(cell[4], cell[5])).join(' ');
    } else {
      group.dataset.chunk = 0;
      group.dataset.goal = ranksIn(bitsOf(0, this.size)).join(' ');
    }
    const frame = make('rect', {class: 'frame', x, y, width, height, rx: Math.min(3, width / 4)}, group);
    const fill = make('path', {class: 'fill'}, group);
    const title = make('title', {}, group);
    if (cell && CALLERS.includes(space) && cell[1] % this.labelled() === 0)
      make('text', {class: 'chunk-name', x: x + width / 2, y: y + height + this.font + 1, 'text-anchor': 'middle'}, group)
        .textContent = cell[1];
    const goal = cell ? bitsOf(cell[4], cell[5]) : bitsOf(0, this.size);
    return {group, frame, fill, title, x, y, width, height, goal: cell && cell[5] === 0 ? 0 : goal, cell};
  }

  // Every how many chunks one has its number below it: of all that are as wide as the widest number.
  labelled() {
    const letters = String(Math.max(...this.schedule.ranks.map((rank) => rank.cells.length)) - 1).length;
    const widest = letters * 0.62 * this.font + 3;
    return [1, 2, 4, 8].find((every) => every * this.cellWidth >= widest) || 16;
  }

  // One slot per rank, from the top down; a cell of a collective without sums is simply full.
  slots(bits, x, y, width, height, whole, part = 1) {
    if (bits === 0) return '';
    if (part < 1) return `M${x + 1} ${y + 1}h${width - 2}v${((height - 2) * part).toFixed(2)}h${2 - width}z`;
    if (whole || !(this.reduces || this.isBarrier))
      return `M${x + 1} ${y + 1}h${width - 2}v${height - 2}h${2 - width}z`;
    const each = (height - 2) / this.size, gap = each > 2.5 ? 0.8 : 0.3;
    return ranksIn(bits).map((rank) =>
      `M${x + 1} ${(y + 1 + rank * each).toFixed(2)}h${width - 2}v${Math.max(each - gap, 1.4).toFixed(2)}h${2 - width}z`).join('');
  }

  hue(extent) {
    return `var(--c${Math.floor(extent / this.schedule.extents_per_colour) % 16})`;
  }

  // ---- what moves

  show(steps, fraction) {
    const state = this.run.states[steps];
    if (steps !== this.shown) {
      this.shown = steps;
      this.fillCells(state, steps === 0 ? [] : this.run.steps[steps - 1].changed);
      this.drawPast(steps === 0 ? null : this.run.steps[steps - 1]);
      this.startTokens(this.run.steps[steps]);
    }
    const moving = fraction > 0 && this.tokens.length > 0;
    const now = this.run.steps[fraction > 0 ? steps : steps - 1];
    this.svg.classList.toggle('meeting', Boolean(now && now.meets));
    this.pastLayer.style.display = moving ? 'none' : '';
    this.tokenLayer.style.display = moving ? '' : 'none';
    if (moving) this.moveTokens(fraction);
  }

  fillCells(state, changed) {
    const fresh = new Set(changed.map(([rank, cell]) => `${rank} ${cell}`));
    this.plates.forEach((plate, rank) => plate.cells.forEach((drawn, index) => {
      const content = this.isBarrier ? {from: state.heard[rank], extent: 0} : state.cells[rank][index];
      this.fillCell(drawn, content, fresh.has(`${rank} ${index}`));
    }));
  }

  fillCell(drawn, content, isFresh) {
    const done = isComplete(content, drawn.goal);
    const state = `${content.from} ${content.extent} ${content.part} ${isFresh}`;
    if (drawn.state === state) return;
    drawn.state = state;
    drawn.group.setAttribute('class', ['cell', content.from === 0 && 'empty', done && 'done', isFresh && 'fresh']
      .filter(Boolean).join(' '));
    drawn.group.style.setProperty('--hue', this.hue(content.extent));
    drawn.group.dataset.from = ranksIn(content.from).join(' ');
    drawn.group.dataset.done = done;
    // Windows and results hold what others want as a whole: who is in it is told by the title.
    const whole = done || SLOTS.includes(drawn.group.dataset.space);
    drawn.fill.setAttribute('d', this.slots(content.from, drawn.x, drawn.y, drawn.width, drawn.height, whole, content.part));
    drawn.title.textContent = this.cellWord(drawn, content, done);
  }

  cellWord(drawn, content, done) {
    if (this.isBarrier) return `rank ${drawn.group.dataset.rank} knows that ${contributions(content.from)} came`;
    const name = `rank ${drawn.group.dataset.rank}, ${drawn.group.dataset.space}[${drawn.group.dataset.chunk}]`;
    if (content.from === 0) return `${name}: nothing yet`;
    const part = content.part < 1 ? `a part (${Number(content.part.toPrecision(2))}) of ` : '';
    return `${name}: ${part}chunk ${content.extent}, from ${contributions(content.from)}${done ? ', complete' : ''}`;
  }

  // From plate edge to plate edge, in a host form from cell to cell; two that cross each other keep to
  // the right.
  wayOf({from, to, cells}) {
    const [a, b] = cells ? [this.centre(from, cells[0]), this.centre(to, cells[1])] : [this.at[from], this.at[to]];
    const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy) || 1;
    const bend = clamp(length * 0.1, 12, 38);
    const middle = {x: (a.x + b.x) / 2 - dy / length * bend, y: (a.y + b.y) / 2 + dx / length * bend};
    if (cells) return {a, m: middle, b: edgeOf(b, b.width / 2, b.height / 2, middle)};
    return {a: this.edge(from, middle), m: middle, b: this.edge(to, middle)};
  }

  centre(rank, cell) {
    const {x, y, width, height} = this.plates[rank].cells[cell];
    return {x: x + width / 2, y: y + height / 2, width, height};
  }

  edge(rank, towards) {
    return edgeOf(this.at[rank], this.plateWidth / 2 + 3, this.plateHeights[rank] / 2 + 3, towards);
  }

  arrow(message, parent) {
    const {a, m, b} = this.wayOf(message);
    const group = make('g', {class: 'arrow-group past', 'data-from': message.from, 'data-to': message.to}, parent);
    group.style.setProperty('--hue', this.hue((message.contents[0] || {extent: 0}).extent));
    const angle = Math.atan2(b.y - m.y, b.x - m.x), size = 9;
    const back = {x: b.x - Math.cos(angle) * size * 0.7, y: b.y - Math.sin(angle) * size * 0.7};
    if (message.cells) make('circle', {class: 'arrow-head', cx: a.x, cy: a.y, r: 3.2}, group);
    make('path', {class: 'arrow', d: `M${a.x} ${a.y}Q${m.x} ${m.y} ${back.x} ${back.y}`}, group);
    const wing = (turn) => `${b.x - Math.cos(angle + turn) * size} ${b.y - Math.sin(angle + turn) * size}`;
    make('path', {class: 'arrow-head', d: `M${b.x} ${b.y}L${wing(0.45)}L${wing(-0.45)}z`}, group);
  }

  drawPast(step) {
    this.pastLayer.replaceChildren();
    if (step) for (const message of step.messages) this.arrow(message, this.pastLayer);
  }

  startTokens(step) {
    this.tokenLayer.replaceChildren();
    this.tokens = (step ? step.messages : []).map((message) => {
      const group = make('g', {class: 'token', 'data-from': message.from, 'data-to': message.to}, this.tokenLayer);
      this.drawToken(group, message);
      return {group, way: this.wayOf(message)};
    });
    this.plates.forEach((plate) => plate.group.classList.remove('busy'));
  }

  // The chunks of a message side by side; of many the first few.
  drawToken(group, message) {
    const shown = message.contents.slice(0, 4);
    const width = 17, height = 26, total = Math.max(1, shown.length) * (width + 2);
    const list = shown.length > 0 ? shown : [{from: message.heard, extent: 0}];
    list.forEach((content, i) => {
      const x = -total / 2 + i * (width + 2), y = -height / 2;
      const one = make('g', {}, group);
      one.style.setProperty('--hue', this.hue(content.extent));
      make('rect', {class: 'back', x, y, width, height, rx: 3}, one);
      const bits = this.isBarrier ? message.heard : content.from;
      make('path', {d: this.slots(bits, x + 0.8, y + 0.8, width - 1.6, height - 1.6, false)}, one);
    });
    if (message.contents.length > shown.length)
      make('text', {x: total / 2 + 9, y: 4}, group).textContent = `+${message.contents.length - shown.length}`;
  }

  moveTokens(fraction) {
    const t = fraction < 0.5 ? 2 * fraction * fraction : 1 - 2 * (1 - fraction) * (1 - fraction);
    for (const {group, way: {a, m, b}} of this.tokens) {
      const u = 1 - t;
      const x = u * u * a.x + 2 * u * t * m.x + t * t * b.x, y = u * u * a.y + 2 * u * t * m.y + t * t * b.y;
      group.setAttribute('transform', `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    }
  }
}

// Where the way from the middle of a box leaves it.
function edgeOf({x, y}, halfWidth, halfHeight, towards) {
  const dx = towards.x - x, dy = towards.y - y;
  const scale = Math.min(halfWidth / Math.max(Math.abs(dx), 1e-6), halfHeight / Math.max(Math.abs(dy), 1e-6), 1);
  return {x: x + dx * scale, y: y + dy * scale};
}

// How many plates the widest level of a tree has beside each other.
function leavesOf(y, x) {
  const levels = new Map();
  y.forEach((level, i) => levels.set(level, (levels.get(level) || []).concat(x[i])));
  let narrowest = 1;
  for (const xs of levels.values()) {
    xs.sort((a, b) => a - b);
    for (let i = 1; i < xs.length; ++i) narrowest = Math.min(narrowest, xs[i] - xs[i - 1]);
  }
  return 1 + 1 / Math.max(narrowest, 0.05);
}
