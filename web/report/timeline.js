// The lanes of all ranks on a canvas: slices over time, zoomed and moved.

const LANE = 17;      // height of a lane
const GAP = 10;       // between ranks
const AXIS = 24;
const NARROW = 640;   // pixels: below, a rank's name stands above its lanes instead of beside them
const NAME_FONT = '11px system-ui, sans-serif';
const KINDS = {step: '--idle', compute: '--compute', wait: '--wait', bubble: '--c5', communication: '--communication', device: '--communication', reduce: '--reduce'};

// How deep each slice lies in those before it, by their order.
function depths(slices) {
  const open = [];
  return slices.map(([begin, length]) => {
    while (open.length && open[open.length - 1] <= begin) open.pop();
    open.push(begin + length);
    return open.length - 1;
  });
}

class Timeline {
  constructor(data) {
    this.data = data;
    this.canvas = $('timeline');
    this.overview = $('overview');
    this.tip = $('tip');
    this.lanes = data.timeline.lanes.map((lane) => ({...lane, depth: depths(lane.slices)}));
    this.all = {from: 0, to: Math.max(1, data.seconds * 1e9)};
    this.view = {...this.all};
    this.listen();
    this.draw();
  }

  // Where each lane is drawn, for a canvas of this width.
  place(width) {
    this.narrow = width < NARROW;
    let y = AXIS;
    let rank = null;
    for (const lane of this.lanes) {
      lane.first = lane.rank !== rank;
      if (rank !== null && lane.first) y += GAP;
      if (this.narrow && lane.first) y += LANE;
      rank = lane.rank;
      lane.y = y;
      y += LANE;
    }
    this.height = y + 8;
    this.canvas.style.height = `${this.height}px`;
  }

  fit(canvas, height) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return [context, width];
  }

  // As wide as the names are, up to a share of the drawing.
  gutter(context, width) {
    context.font = NAME_FONT;
    const longest = Math.max(...this.lanes.map((lane) => context.measureText(lane.name).width));
    this.nameLeft = this.narrow ? 8 : 58;
    return Math.min(this.nameLeft + longest + 8, width * 0.4);
  }
  x(at) { return this.left + (at - this.view.from) / (this.view.to - this.view.from) * (this.width - this.left); }
  at(x) { return this.view.from + (x - this.left) / (this.width - this.left) * (this.view.to - this.view.from); }

  draw() {
    this.place(this.canvas.clientWidth);
    const [context, width] = this.fit(this.canvas, this.height);
    this.context = context;
    this.width = width;
    this.left = this.gutter(context, width);
    this.colours = Object.fromEntries(Object.entries(KINDS).map(([kind, name]) => [kind, colour(name)]));
    this.causes = [0, 1, 2, 3].map((cause) => colour(`--cause${cause}`));
    this.ink = colour('--ink');
    this.muted = colour('--muted');
    this.line = colour('--line');
    this.surface = colour('--surface');
    this.drawAxis();
    for (const lane of this.lanes) this.drawLane(lane);
    this.drawNames();
    this.drawOverview();
    this.canvas.dataset.from = this.view.from;
    this.canvas.dataset.to = this.view.to;
  }

  drawAxis() {
    const {context} = this;
    context.font = NAME_FONT;
    context.textBaseline = 'middle';
    context.fillStyle = this.muted;
    context.strokeStyle = this.line;
    context.beginPath();
    for (const tick of ticks(this.view.from / 1e3, this.view.to / 1e3, Math.max(3, this.width / 130))) {
      const x = Math.round(this.x(tick * 1e3)) + 0.5;
      context.moveTo(x, AXIS - 6);
      context.lineTo(x, this.height);
      const word = time(tick);
      if (x > this.left && x + context.measureText(word).width < this.width) context.fillText(word, x + 3, AXIS / 2);
    }
    context.stroke();
  }

  // The first slice that ends after `at`; those that contain others come first, so one long one
  // before may still reach into view: it is looked for a little further back.
  first(slices, at) {
    let low = 0;
    let high = slices.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (slices[middle][0] + slices[middle][1] < at) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 8);
  }

  drawLane(lane) {
    const {context, view} = this;
    const slices = lane.slices;
    let filled = -1;  // pixel up to which tiny slices were drawn
    for (let i = this.first(slices, view.from); i < slices.length; ++i) {
      const [begin, length, name, , cause] = slices[i];
      if (begin > view.to) break;
      if (begin + length < view.from) continue;
      const from = Math.max(this.left, this.x(begin));
      const to = Math.max(this.x(begin + length), from + 0.75);
      if (to < filled + 0.5 && lane.depth[i] === 0) continue;
      filled = to;
      const inset = Math.min(lane.depth[i], 3) * 3;
      context.fillStyle = lane.kind === 'wait' && cause >= 0 ? this.causes[cause] : this.colours[lane.kind];
      context.globalAlpha = lane.depth[i] > 0 ? 0.75 : 1;
      context.fillRect(from, lane.y + 1 + inset, to - from - (to - from > 3 ? 0.6 : 0), LANE - 3 - inset);
      context.globalAlpha = 1;
      if (to - from > 46) this.drawWord(this.data.timeline.names[name], from, to, lane, inset);
    }
  }

  drawWord(word, from, to, lane, inset) {
    const {context} = this;
    context.save();
    context.beginPath();
    context.rect(from, lane.y, to - from - 3, LANE);
    context.clip();
    context.font = '10.5px system-ui, sans-serif';
    context.fillStyle = lane.kind === 'step' ? this.ink : contrast(context.fillStyle);
    context.fillText(word, from + 4, lane.y + (LANE + inset) / 2 - 0.5);
    context.restore();
  }

  drawNames() {
    const {context} = this;
    context.fillStyle = this.surface;
    context.fillRect(0, 0, this.left - 2, this.height);
    const names = this.lanes.map((lane) => {
      if (lane.first) {
        context.font = `600 ${NAME_FONT}`;
        context.fillStyle = this.ink;
        context.fillText(`rank ${lane.rank}`, 8, lane.y + LANE / 2 - (this.narrow ? LANE : 0));
      }
      context.font = NAME_FONT;
      context.fillStyle = this.muted;
      const name = shortened(context, lane.name, this.left - this.nameLeft - 4);
      context.fillText(name, this.nameLeft, lane.y + LANE / 2);
      return name;
    });
    this.canvas.dataset.names = names.join('|');
  }

  // Waiting of all ranks over the whole run, and what part of it is in view.
  drawOverview() {
    const height = 32;
    const [context, width] = this.fit(this.overview, height);
    const bins = new Float64Array(Math.max(1, Math.floor(width)));
    const busy = new Float64Array(bins.length);
    for (const lane of this.lanes) {
      const target = lane.kind === 'wait' ? bins : lane.kind === 'compute' ? busy : null;
      if (target) this.pour(lane, target);
    }
    const most = Math.max(1e-9, ...busy, ...bins);
    for (const [values, name] of [[busy, '--compute'], [bins, '--wait']]) {
      context.fillStyle = colour(name);
      context.globalAlpha = name === '--compute' ? 0.35 : 0.95;
      values.forEach((value, i) => context.fillRect(i, height - value / most * height, 1, value / most * height));
    }
    context.globalAlpha = 1;
    const scale = width / (this.all.to - this.all.from);
    context.strokeStyle = colour('--accent');
    context.lineWidth = 2;
    context.strokeRect(this.view.from * scale + 1, 1, Math.max(3, (this.view.to - this.view.from) * scale - 2), height - 2);
  }

  pour(lane, bins) {
    const scale = bins.length / (this.all.to - this.all.from);
    lane.slices.forEach(([begin, length], i) => {
      if (lane.depth[i] > 0) return;
      const first = Math.max(0, Math.floor(begin * scale));
      const last = Math.min(bins.length - 1, Math.floor((begin + length) * scale));
      for (let bin = first; bin <= last; ++bin)
        bins[bin] += Math.min(begin + length, (bin + 1) / scale) - Math.max(begin, bin / scale);
    });
  }

  show(from, to) {
    const least = 200;  // ns
    const middle = (from + to) / 2;
    const half = Math.min(Math.max(to - from, least), this.all.to - this.all.from) / 2;
    let begin = middle - half;
    begin = Math.min(Math.max(begin, this.all.from), this.all.to - 2 * half);
    this.view = {from: begin, to: begin + 2 * half};
    this.hide();
    this.draw();
  }

  zoom(factor, around = (this.view.from + this.view.to) / 2) {
    this.show(around - (around - this.view.from) * factor, around + (this.view.to - around) * factor);
  }
  move(share) {
    const by = (this.view.to - this.view.from) * share;
    this.show(this.view.from + by, this.view.to + by);
  }

  listen() {
    const canvas = this.canvas;
    $('zoom-in').addEventListener('click', () => this.zoom(0.5));
    $('zoom-out').addEventListener('click', () => this.zoom(2));
    $('zoom-all').addEventListener('click', () => this.show(this.all.from, this.all.to));
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(1.0015 ** event.deltaY, this.at(event.offsetX));
      else this.move(event.deltaX / this.width);
    }, {passive: false});
    canvas.addEventListener('dblclick', (event) => this.zoom(0.35, this.at(event.offsetX)));
    let held = null;
    canvas.addEventListener('pointerdown', (event) => { held = {x: event.clientX, view: {...this.view}}; });
    window.addEventListener('pointerup', () => { held = null; });
    canvas.addEventListener('pointermove', (event) => {
      if (!held) return this.point(event);
      const by = (held.x - event.clientX) / (this.width - this.left) * (held.view.to - held.view.from);
      this.show(held.view.from + by, held.view.to + by);
    });
    canvas.addEventListener('pointerleave', () => this.hide());
    canvas.addEventListener('keydown', (event) => this.key(event));
    this.listenToOverview();
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }

  listenToOverview() {
    let from = null;
    const time_at = (event) => event.offsetX / this.overview.clientWidth * (this.all.to - this.all.from);
    this.overview.addEventListener('pointerdown', (event) => { from = time_at(event); });
    this.overview.addEventListener('pointerup', (event) => {
      if (from === null) return;
      const to = time_at(event);
      const width = this.view.to - this.view.from;
      if (Math.abs(to - from) < (this.all.to - this.all.from) / 200) this.show(to - width / 2, to + width / 2);
      else this.show(Math.min(from, to), Math.max(from, to));
      from = null;
    });
  }

  key(event) {
    const actions = {
      ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
      '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2),
      0: () => this.show(this.all.from, this.all.to),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  // The innermost slice under the pointer.
  find(x, y) {
    const lane = this.lanes.find((each) => y >= each.y && y < each.y + LANE);
    if (!lane || x < this.left) return null;
    const at = this.at(x);
    const near = (this.view.to - this.view.from) / this.width * 2;
    let found = null;
    for (let i = this.first(lane.slices, at - near); i < lane.slices.length && lane.slices[i][0] <= at + near; ++i)
      if (lane.slices[i][0] + lane.slices[i][1] >= at - near) found = lane.slices[i];
    return found && {lane, slice: found};
  }

  point(event) {
    const found = this.find(event.offsetX, event.offsetY);
    if (!found) return this.hide();
    this.tip.textContent = this.describe(found);
    this.tip.hidden = false;
    const box = this.canvas.parentElement;
    const x = Math.min(event.offsetX + 14, box.clientWidth - this.tip.offsetWidth - 6);
    const y = event.offsetY + 18 + this.tip.offsetHeight > box.scrollTop + box.clientHeight
      ? event.offsetY - this.tip.offsetHeight - 8 : event.offsetY + 18;
    this.tip.style.left = `${Math.max(4, x)}px`;
    this.tip.style.top = `${Math.max(box.scrollTop, y)}px`;
  }

  hide() { this.tip.hidden = true; }

  describe({lane, slice}) {
    const [begin, length, name, operation, cause] = slice;
    const lines = [`${this.data.timeline.names[name]} · ${time(length / 1e3)}`, `rank ${lane.rank}, ${lane.name}, at ${time(begin / 1e3)}`];
    if (operation >= 0) {
      const [group, sequence, size, algorithm, predicted, measured, last, apart] = this.data.timeline.operations[operation];
      lines.push(`#${sequence} on ${group}: ${size}, ${algorithm}`);
      lines.push(`under way ${time(measured)}${predicted > 0 ? `, predicted ${time(predicted)}` : ''}`);
      lines.push(`rank ${last} joined last, ${time(apart)} after the first`);
      if (cause >= 0) lines.push(`mostly: ${this.data.causes[cause]}${cause === 0 ? ` (rank ${last})` : ''}`);
    }
    return lines.join('\n');
  }
}

// As much of a word as fits, with a sign that there was more.
function shortened(context, word, room) {
  let some = word;
  while (some.length > 3 && context.measureText(some).width > room) some = `${some.replace('…', '').slice(0, -1)}…`;
  return some;
}

// Black or white, whichever can be read on `background` ("#rrggbb").
function contrast(background) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(background.slice(i, i + 2), 16) / 255);
  return 0.299 * r + 0.587 * g + 0.114 * b > 0.6 ? '#14171c' : '#ffffff';
}
