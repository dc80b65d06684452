// page.js - controls, keyboard and clock; everything else is called from here.

const $ = (id) => document.getElementById(id);
const STEP_MS = 1100;  // of one step at speed 1
const MOST_PER_FRAME = 0.15;  // of a step: on a busy machine it slows down rather than jumps
const PLACEMENTS = {one_host: 'on one host', apart: 'on a host each', hosts: 'on several hosts'};

class Page {
  constructor(data) {
    if (data.format !== 'tutti page 1') throw new Error(`this page cannot read '${data.format}'`);
    this.data = data;
    this.choice = {
      algorithm: data.start.algorithm, size: data.start.size, apart: false,
      exponent: clamp(Math.round(Math.log2(data.start.bytes)), 2, 30),
      placement: data.start.placement,
    };
    this.time = 0;  // completed steps, and the way into the next one
    this.playing = false;
    this.still = matchMedia('(prefers-reduced-motion: reduce)');
    this.runs = new Map();
    this.fillSelects();
    this.drawLegend();
    this.listen();
    this.load();
  }

  // ---- which schedule

  schedules(size) { return this.data.schedules.filter((schedule) => schedule.size === size); }

  find() {
    const {algorithm, size, apart} = this.choice;
    const fitting = this.schedules(size).filter((schedule) => schedule.algorithm === algorithm);
    return fitting.find((schedule) => schedule.in_place !== apart) || fitting[0];
  }

  load() {
    const names = [...new Set(this.schedules(this.choice.size).map((schedule) => schedule.algorithm))];
    if (!names.includes(this.choice.algorithm)) this.choice.algorithm = names[0];
    this.schedule = this.find();
    if (!this.runs.has(this.schedule)) this.runs.set(this.schedule, play(this.schedule));
    this.run = this.runs.get(this.schedule);
    this.stage = new Stage($('stage'), this.schedule, this.run, this.data.reduces);
    this.time = 0;
    this.pause();
    this.fillAlgorithms(names);
    this.fillPlacements();
    this.describe();
    this.showCost();
    $('scrub').max = this.run.steps.length;
    this.update();
  }

  describe() {
    const {algorithm, size, steps, messages, rank_ordered} = this.schedule;
    document.title = `${this.data.collective} by ${algorithm} on ${size} ranks`;
    $('title').innerHTML = `${this.data.collective} <span class="muted">by</span> <em></em>`;
    $('title').querySelector('em').textContent = algorithm;
    const order = this.data.reduces ? `; folds ${rank_ordered ? 'in rank order' : 'in an order of its own'}` : '';
    $('subtitle').textContent = `${countWord(size, 'rank')}, ${countWord(this.run.steps.length, 'step')}, ` +
      `${countWord(messages, 'message')}, at most ${steps} after each other${order}`;
    this.stage.svg.setAttribute('aria-label',
      `${countWord(size, 'rank')} of ${this.data.collective} by ${algorithm}, with the chunks that they hold`);
  }

  // ---- controls

  fillSelects() {
    const sizes = [...new Set(this.data.schedules.map((schedule) => schedule.size))].sort((a, b) => a - b);
    this.sizes = sizes;
    $('size').replaceChildren(...sizes.map((size) => new Option(size, size)));
    $('bytes').value = this.choice.exponent;
    $('sliders').replaceChildren(...TERMS.map((term) => this.slider(term)));
  }

  fillAlgorithms(names) {
    $('algorithm').replaceChildren(...names.map((name) => new Option(name, name)));
    $('algorithm').value = this.choice.algorithm;
    $('size').value = this.choice.size;
    const at = this.sizes.indexOf(this.choice.size);
    $('fewer').disabled = at === 0;
    $('more').disabled = at === this.sizes.length - 1;
    const both = this.schedules(this.choice.size).filter((schedule) => schedule.algorithm === this.choice.algorithm);
    $('apart').disabled = both.length < 2;
    $('apart').checked = !this.schedule.in_place;
  }

  fillPlacements() {
    const known = Object.keys(PLACEMENTS).filter((name) => (this.data.predictions[this.choice.size] || {})[name]);
    if (!known.includes(this.choice.placement)) this.choice.placement = 'apart';
    if (this.choice.algorithm === 'hierarchical' && known.includes('hosts')) this.choice.placement = 'hosts';
    $('placement').replaceChildren(...known.map((name) => new Option(PLACEMENTS[name], name)));
    $('placement').value = this.choice.placement;
    this.resetCosts();
  }

  slider(term) {
    const label = document.createElement('label');
    label.htmlFor = term.key;  // else it would name the output
    label.innerHTML = `<i class="term-${term.key}"></i><span>${term.sign}, ${term.word}</span>` +
      `<output id="${term.key}-word"></output><input type="range" id="${term.key}" min="-2" max="2" step="0.02">`;
    return label;
  }

  resetCosts() {
    this.base = machineCosts(this.data.machine, this.choice.placement);
    this.costs = {...this.base};
    for (const term of TERMS) $(term.key).value = 0;
  }

  listen() {
    const choose = (id, key, read) => $(id).addEventListener('change', () => {
      this.choice[key] = read($(id));
      this.load();
    });
    choose('algorithm', 'algorithm', (select) => select.value);
    choose('size', 'size', (select) => Number(select.value));
    choose('apart', 'apart', (box) => box.checked);
    for (const [id, by] of [['fewer', -1], ['more', 1]])
      $(id).addEventListener('click', () => {
        this.choice.size = this.sizes[clamp(this.sizes.indexOf(this.choice.size) + by, 0, this.sizes.length - 1)];
        this.load();
      });
    $('bytes').addEventListener('input', () => {
      this.choice.exponent = Number($('bytes').value);
      this.showCost();
    });
    $('placement').addEventListener('change', () => {
      this.choice.placement = $('placement').value;
      this.resetCosts();
      this.showCost();
    });
    for (const term of TERMS)
      $(term.key).addEventListener('input', () => {
        this.costs[term.key] = this.base[term.key] * 10 ** Number($(term.key).value);
        this.showCost();
      });
    $('reset').addEventListener('click', () => { this.resetCosts(); this.showCost(); });
    $('play').addEventListener('click', () => this.toggle());
    $('back').addEventListener('click', () => this.step(-1));
    $('forward').addEventListener('click', () => this.step(1));
    $('first').addEventListener('click', () => this.go(0));
    $('last').addEventListener('click', () => this.go(this.run.steps.length));
    $('scrub').addEventListener('input', () => { this.pause(); this.time = Number($('scrub').value); this.update(); });
    $('theme').addEventListener('click', () => this.toggleTheme());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.nameTheme());
    document.addEventListener('keydown', (event) => this.press(event));
    this.nameTheme();
  }

  // Keys belong to the schedule unless what has the focus needs them itself.
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target, name = target.tagName;
    const scrub = target.id === 'scrub';
    if (name === 'SELECT' || (name === 'INPUT' && !scrub)) return;
    const act = {
      ' ': () => this.toggle(), ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1),
      Home: () => this.go(0), End: () => this.go(this.run.steps.length), t: () => this.toggleTheme(),
    }[event.key];
    if (!act || (event.key === ' ' && (name === 'BUTTON' || name === 'SUMMARY'))) return;
    event.preventDefault();
    act();
  }

  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  }
  toggleTheme() {
    document.documentElement.dataset.theme = this.isDark() ? 'light' : 'dark';
    this.nameTheme();
  }
  nameTheme() {
    $('theme-word').textContent = this.isDark() ? 'Light' : 'Dark';
    $('theme').setAttribute('aria-pressed', this.isDark());
    $('theme').setAttribute('aria-label', `Switch to ${this.isDark() ? 'light' : 'dark'} colours`);
  }

  // ---- time

  toggle() {
    if (this.playing) { this.pause(); return; }
    if (this.time >= this.run.steps.length) this.time = 0;
    this.playing = true;
    this.namePlay();
    let before = null;  // a frame's time may lie before the moment in which it was asked for
    const tick = (now) => {
      if (!this.playing) return;
      const passed = before === null ? 0 : (now - before) / STEP_MS * Number($('speed').value);
      this.advance(Math.min(passed, MOST_PER_FRAME));
      before = now;
      if (this.playing) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }
  advance(steps) {
    this.time = Math.min(this.time + steps, this.run.steps.length);
    this.update();
    if (this.time >= this.run.steps.length) this.pause();
  }
  pause() {
    this.playing = false;
    this.namePlay();
    this.announce();
  }
  namePlay() {
    $('play').querySelector('path').setAttribute('d', this.playing ? 'M3 3h4v10H3zM9 3h4v10H9z' : 'M4 2.5v11L13 8z');
    $('play').setAttribute('aria-label', this.playing ? 'Pause' : 'Play');
    // Nobody can listen that fast: while it plays, steps are not read out.
    $('happening').setAttribute('aria-live', this.playing ? 'off' : 'polite');
  }
  step(by) {
    this.go(by > 0 ? Math.floor(this.time) + 1 : Math.ceil(this.time) - 1);
  }
  go(time) {
    this.time = clamp(time, 0, this.run.steps.length);
    this.pause();
    this.update();
  }

  // ---- what is seen

  update() {
    const total = this.run.steps.length;
    const steps = Math.min(Math.floor(this.time + 1e-9), total);
    const fraction = this.still.matches ? 0 : this.time - steps;
    this.stage.show(steps, fraction);
    $('scrub').value = this.time;
    $('scrub').setAttribute('aria-valuetext', `${steps} of ${total} steps done`);
    $('clock').textContent = `step ${steps} of ${total}`;
    $('stage').dataset.steps = steps;
    if (this.described !== this.schedule || this.told !== steps) this.announce();
  }

  announce() {
    if (!this.stage) return;
    const steps = Math.min(Math.floor(this.time + 1e-9), this.run.steps.length);
    if (this.described === this.schedule && this.told === steps) return;
    this.described = this.schedule;
    this.told = steps;
    const step = this.run.steps[steps - 1];
    const {complete, promised} = progressOf(this.schedule, this.run.states[steps]);
    const what = this.schedule.measure.parts === 0 ? 'rank' : 'result chunk';
    const status = complete === promised
      ? (what === 'rank' ? 'Every rank knows that all have come.' : `All ${promised} result chunks are complete.`)
      : `${complete} of ${countWord(promised, what)} complete.`;
    $('happening').textContent = step
      ? `Step ${steps} of ${this.run.steps.length}: ${stepWord(step)} ${status}`
      : `Before the first step: every rank holds its own input. ${status}`;
    $('progress').style.width = `${100 * complete / Math.max(promised, 1)}%`;
    $('messages').replaceChildren(...(step ? step.messages : []).map((message) => {
      const item = document.createElement('li');
      item.textContent = messageWord(message);
      return item;
    }));
    this.fillTable(this.run.states[steps]);
  }

  fillTable(state) {
    const rows = this.schedule.ranks.map((rank, r) => {
      const cells = this.schedule.measure.parts === 0
        ? [`knows of ${contributions(state.heard[r])}`]
        : rank.cells.map((cell, c) => [cell, state.cells[r][c]]).filter(([cell]) => SPACES[cell[0]] !== 'scratch')
          .map(([cell, content]) => `${SPACES[cell[0]]}[${cell[1]}]: ${content.from === 0 ? '–' : ranksWord(content.from)}`);
      return `<tr><th scope="row">rank ${r}</th>${cells.map((word) => `<td>${word}</td>`).join('')}</tr>`;
    });
    $('table').innerHTML = rows.join('');
  }

  showCost() {
    const {size, exponent, placement} = this.choice;
    const bytes = this.schedule.measure.parts === 0 ? 0 : 2 ** exponent;
    $('bytes-word').textContent = bytes === 0 ? 'none' : bytesWord(bytes);
    $('bytes').disabled = bytes === 0;
    $('bytes').setAttribute('aria-valuetext', bytesWord(bytes));
    const terms = termSeconds(this.schedule.measure, this.costs, bytes);
    const total = sum(terms);
    $('formula').innerHTML = `<b>T</b> = ${formulaParts(this.schedule.measure).join(' + ')}`;
    $('numbers').textContent = `= ${TERMS.map((term) => terms[term.key]).filter((seconds) => seconds > 0)
      .map(secondsWord).join(' + ')}` + (bytes > 0 ? `, S = ${bytesWord(bytes)}` : '');
    $('total').textContent = secondsWord(total);
    $('terms').innerHTML = TERMS.map((term) =>
      `<span class="term-${term.key}" style="width:${100 * terms[term.key] / total}%"></span>`).join('');
    for (const term of TERMS) {
      const value = this.costs[term.key];
      const word = term.unit === 's' ? secondsWord(value) : `${(1e-9 / value).toPrecision(3)} GB/s`;
      $(`${term.key}-word`).textContent = word;
      $(term.key).setAttribute('aria-valuetext', word);
    }
    const {name, date} = this.data.machine;
    $('machine').textContent = `Figures of ${name}, ${date.slice(0, 10)}; ` +
      (placement === 'one_host' ? 'messages through shared memory.' : 'messages over tcp between hosts.') +
      ' The tuner also knows pipelines, shared cores and caches, which the formula leaves out.';
    this.showRivals(predictionsFor(this.data, size, placement, Math.max(bytes, 4)), bytes);
  }

  showRivals({seconds, choice}, bytes) {
    const own = seconds[this.choice.algorithm];
    $('predicted').textContent = own === undefined ? 'not for these hosts' : secondsWord(own);
    $('rivals-title').textContent = `All algorithms, ${countWord(this.choice.size, 'rank')}` +
      (bytes > 0 ? `, ${bytesWord(bytes)}` : '');
    const names = Object.keys(seconds).sort((a, b) => seconds[a] - seconds[b]);
    const most = Math.max(...Object.values(seconds));
    $('rivals').innerHTML = '<thead class="unseen"><tr><th>algorithm</th><th>predicted time</th><th></th></tr></thead>' +
      names.map((name) => `<tr aria-current="${name === this.choice.algorithm}"><td><button type="button">${name}` +
        `${name === choice ? ' ★' : ''}</button></td><td class="number">${secondsWord(seconds[name])}</td>` +
        `<td class="bar" aria-hidden="true"><div style="width:${100 * seconds[name] / most}%"></div></td></tr>`).join('');
    $('rivals').querySelectorAll('button').forEach((button, i) => button.addEventListener('click', () => {
      this.choice.algorithm = names[i];
      this.load();
    }));
  }

  drawLegend() {
    const cell = (bits, kind) => `<svg viewBox="0 0 52 32" aria-hidden="true"><g class="cell ${kind}" style="--hue:var(--c0)">` +
      `<rect class="frame" x="16" y="1" width="20" height="30" rx="3"/>${[0, 1, 2, 3].filter((i) => bits >> i & 1)
        .map((i) => `<path class="fill" d="M17 ${2 + i * 7}h18v6.2h-18z"/>`).join('')}</g></svg>`;
    const reduces = this.data.reduces;
    const items = reduces ? [
      [cell(0b0010, ''), 'A chunk of one rank. Its colour says which chunk; each lit slot is one rank’s contribution, rank 0 on top.'],
      [cell(0b0111, 'fresh'), 'Just written in this step.'],
      [cell(0b1111, 'done'), 'Complete: everything that belongs into it is there.'],
      [cell(0, 'empty'), 'Nothing in it yet.'],
    ] : [
      [cell(0b1111, 'done'), 'A chunk that is there. Its colour says which part of the message it is.'],
      [cell(0b1111, 'done fresh'), 'Just written in this step.'],
      [cell(0, 'empty'), 'Nothing in it yet.'],
    ];
    $('legend').innerHTML = items.map(([picture, words]) => `<li>${picture}<span>${words}</span></li>`).join('');
  }
}

try {
  window.page = new Page(JSON.parse($('data').textContent));
} catch (error) {
  $('trouble').hidden = false;
  $('trouble').textContent = `The page cannot be drawn: ${error.message}`;
  throw error;
}
