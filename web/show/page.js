// page.js - controls, keyboard and clock; everything else is called from here.

const $ = (id) => document.getElementById(id);
const STEP_MS = 1100;  // of one step at speed 1
const MOST_PER_FRAME = 0.15;  // of a step: on a busy machine it slows down rather than jumps
const PLACEMENTS = {one_host: 'on one host', apart: 'on a host each', hosts: 'on several hosts'};
const MEMORIES = {ordinary: 'ordinary', symmetric: 'symmetric'};

class Page {
  constructor(data) {
    if (data.format !== 'tutti page 2') throw new Error(`this page cannot read '${data.format}'`);
    this.data = data;
    this.choice = {
      algorithm: data.start.algorithm, size: data.start.size, apart: false,
      exponent: clamp(Math.round(Math.log2(data.start.bytes)), 2, 30),
      placement: data.start.placement, memory: data.start.memory,
      pass: null,  // of a message form; null: the last, which runs
    };
    this.time = 0;  // completed steps, and the way into the next one
    this.playing = false;
    this.still = matchMedia('(prefers-reduced-motion: reduce)');
    this.runs = new Map();
    this.fillSelects();
    this.listen();
    this.load();
  }

  // ---- which schedule

  schedules(size) { return this.data.schedules.filter((schedule) => schedule.size === size); }

  // Where a schedule's `runs` tells of the chosen placement.
  setting() { return this.choice.placement === 'one_host' ? this.choice.memory : this.choice.placement; }

  // [first exponent, last exponent, words] of the sizes around the chosen one, if it runs there.
  runOf(schedule) {
    return (schedule.runs[this.setting()] || [])
      .find(([first, last]) => first <= this.choice.exponent && this.choice.exponent <= last);
  }

  // All forms of the chosen algorithm.
  forms() {
    const fitting = this.schedules(this.choice.size).filter((schedule) => schedule.algorithm === this.choice.algorithm);
    const wanted = fitting.filter((schedule) => schedule.in_place !== this.choice.apart);
    return wanted.length > 0 ? wanted : fitting;
  }

  // The form that runs; one that an earlier pass left where that was asked for.
  find() {
    const schedule = this.forms().find((each) => this.runOf(each));
    const earlier = (schedule.before || []).find((each) => each.pass === this.choice.pass);
    if (!earlier) return schedule;
    if (!earlier.algorithm) Object.assign(earlier, {...schedule, ...earlier});
    return earlier;
  }

  // After any choice: another one may not go with it, or mean another form.
  load() {
    this.names = [...new Set(this.schedules(this.choice.size).map((schedule) => schedule.algorithm))];
    if (!this.names.includes(this.choice.algorithm)) this.choice.algorithm = this.names[0];
    this.fillPlacements();
    const schedule = this.find();
    if (schedule !== this.schedule) this.begin(schedule);
    this.fillAlgorithms();
    this.fillForms();
    this.describe();
    this.showCost();
  }

  begin(schedule) {
    this.schedule = schedule;
    const host = schedule.form === 'host';
    if (!this.runs.has(schedule)) this.runs.set(schedule, (host ? playHost : play)(schedule));
    this.run = this.runs.get(schedule);
    this.drawStage();
    this.time = 0;
    this.pause();
    this.drawLegend();
    this.drawPhases();
    $('scrub').max = this.run.steps.length;
    this.update();
  }

  drawStage() {
    this.stage = new Stage($('stage'), this.schedule, this.run, this.data.reduces);
    this.stage.svg.setAttribute('aria-label',
      `${countWord(this.schedule.size, 'rank')} of ${this.data.collective} by ${this.schedule.algorithm}, with the chunks that they hold`);
  }

  describe() {
    const {algorithm, size, shots, form} = this.schedule;
    document.title = `${this.data.collective} by ${algorithm} on ${size} ranks, ${form} form`;
    $('title').innerHTML = `${this.data.collective} <span class="muted">by</span> <em></em>`;
    $('title').querySelector('em').textContent = algorithm + (shots ? `, ${shots === 1 ? 'one shot' : 'two shots'}` : '');
    $('form').textContent = `${form} form`;
    $('when').textContent = this.whenWord();
    $('subtitle').textContent = this.countsWord();
  }

  // Which form this is, and when it runs.
  whenWord() {
    const {form, pass, size} = this.schedule;
    if (size === 1) return 'A single rank has nobody to send to.';
    const sits = `Ranks ${PLACEMENTS[this.choice.placement]}`;
    if (form === 'host')
      return `${sits} run this: the host form, which the pass lower makes of messages. ${sentence(this.runOf(this.schedule)[2])}.`;
    const name = pass === 'as built' ? pass : `after ${pass}`;
    const last = this.forms().find((each) => this.runOf(each));
    if (this.schedule !== last) return `The message form ${name}, before ${last.pass}. ${sits} run what came out of that.`;
    const why = this.choice.placement === 'one_host' ? ', as it has no host form' : '';
    return `${sits} run this${why}: messages, ${name}.`;
  }

  countsWord() {
    const {size, steps, messages, form} = this.schedule;
    if (size === 1) return '1 rank, no messages';
    const order = this.data.reduces ? `; folds in ${this.orderWord()}` : '';
    const counts = form === 'host' ? countWord(steps, 'meeting')
      : `${countWord(this.run.steps.length, 'step')}, ${countWord(messages, 'message')}, at most ${steps} after each other`;
    return `${countWord(size, 'rank')}, ${counts}${order}`;
  }

  // Of few ranks it may be both.
  orderWord() {
    const {rank_ordered, tree_ordered, whole_folds} = this.schedule;
    if (!rank_ordered && !tree_ordered) return 'an order of its own';
    const tree = tree_ordered && (!rank_ordered || this.data.order === 'tree');
    return `${tree ? 'tree' : 'rank'} order${whole_folds ? '' : ', from partial folds'}`;
  }

  // ---- controls

  fillSelects() {
    const sizes = [...new Set(this.data.schedules.map((schedule) => schedule.size))].sort((a, b) => a - b);
    this.sizes = sizes;
    $('size').replaceChildren(...sizes.map((size) => new Option(size, size)));
    $('bytes').value = this.choice.exponent;
    $('sliders').replaceChildren(...TERMS.map((term) => this.slider(term)));
  }

  fillAlgorithms() {
    $('algorithm').replaceChildren(...this.names.map((name) => new Option(name, name)));
    $('algorithm').value = this.choice.algorithm;
    $('size').value = this.choice.size;
    const at = this.sizes.indexOf(this.choice.size);
    $('fewer').disabled = at === 0;
    $('more').disabled = at === this.sizes.length - 1;
    const sides = this.schedules(this.choice.size).filter((schedule) => schedule.algorithm === this.choice.algorithm)
      .map((schedule) => schedule.in_place);
    $('apart').disabled = new Set(sides).size < 2;
    $('apart').checked = !this.schedule.in_place;
  }

  fillPlacements() {
    const offered = (name) => this.forms().some((schedule) =>
      schedule.runs[name === 'one_host' ? this.choice.memory : name]);
    const known = Object.keys(PLACEMENTS).filter(offered);
    const sat = this.sits;
    if (!known.includes(this.choice.placement)) this.choice.placement = known.includes('apart') ? 'apart' : known[0];
    $('placement').replaceChildren(...known.map((name) => new Option(PLACEMENTS[name], name)));
    $('placement').value = this.sits = this.choice.placement;
    if (sat !== this.sits) this.resetCosts();
  }

  // What else there is of the chosen algorithm: memory of a host form, passes of a message form.
  fillForms() {
    const last = this.forms().find((each) => this.runOf(each));
    const passes = [...(last.before || []), last].map(({pass}) => pass);
    const choices = [
      ['memory', Object.entries(MEMORIES), this.choice.memory, last.form === 'host' && last.measure.parts > 0],
      ['pass', passes.map((pass) => [pass, pass === 'as built' ? pass : `after ${pass}`]), this.schedule.pass,
        last.form === 'message' && passes.length > 1],
    ];
    for (const [id, options, value, shown] of choices) {
      $(id).replaceChildren(...options.map(([name, word]) => new Option(word, name)));
      $(id).value = value;
      $(id).closest('label').hidden = !shown;
    }
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
    choose('memory', 'memory', (select) => select.value);
    choose('pass', 'pass', (select) => select.value);
    choose('placement', 'placement', (select) => select.value);
    for (const [id, by] of [['fewer', -1], ['more', 1]])
      $(id).addEventListener('click', () => {
        this.choice.size = this.sizes[clamp(this.sizes.indexOf(this.choice.size) + by, 0, this.sizes.length - 1)];
        this.load();
      });
    $('bytes').addEventListener('input', () => {
      this.choice.exponent = Number($('bytes').value);
      this.load();
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
    // A scroll bar that comes or goes with the drawing is no reason to draw it again.
    new ResizeObserver(() => {
      if (Math.abs($('stage').clientWidth - this.stage.room) < 24) return;
      this.drawStage();
      this.update();
    }).observe($('stage'));
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
    const now = this.run.steps[fraction > 0 || steps === 0 ? steps : steps - 1];
    for (const mark of $('phases').children) mark.classList.toggle('now', mark.dataset.name === now.name);
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
    const barrier = this.schedule.measure.parts === 0;
    const status = complete === promised
      ? (barrier ? 'Every rank knows that all have come.'
        : promised === 1 ? 'The one result chunk is complete.' : `All ${promised} result chunks are complete.`)
      : `${complete} of ${countWord(promised, barrier ? 'rank' : 'result chunk')} ${barrier ? 'know that all have come' : 'complete'}.`;
    const word = (each) => this.schedule.form === 'host' ? touchWord(each, this.schedule.ranks) : messageWord(each);
    $('happening').textContent = step
      ? `Step ${steps} of ${this.run.steps.length}: ${stepWord(step, word)} ${status}`
      : `Before the first step: ${barrier ? 'every rank knows of itself only' : 'nothing has moved yet'}. ${status}`;
    $('progress').style.width = `${100 * complete / Math.max(promised, 1)}%`;
    $('messages').replaceChildren(...(step ? [...step.messages, ...(step.own || [])] : []).map((message) => {
      const item = document.createElement('li');
      item.textContent = word(message);
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

  // The order of phases and meetings, over the whole width.
  drawPhases() {
    const marks = [];
    for (const step of this.schedule.form === 'host' ? this.run.steps : []) {
      const last = marks[marks.length - 1];
      if (last && last.dataset.name === step.name) {
        last.style.flexGrow = Number(last.style.flexGrow) + 1;
        continue;
      }
      const mark = document.createElement('span');
      mark.className = step.meets ? 'meeting' : 'phase';
      mark.dataset.name = step.name;
      mark.textContent = step.meets ? 'meet' : step.name;
      mark.style.flexGrow = 1;
      marks.push(mark);
    }
    $('phases').replaceChildren(...marks);
    $('phases').hidden = marks.length === 0;
  }

  showCost() {
    const {size, exponent, placement, memory} = this.choice;
    const {measure, form} = this.schedule;
    const bytes = measure.parts === 0 ? 0 : 2 ** exponent;
    $('bytes-word').textContent = bytes === 0 ? 'none' : bytesWord(bytes);
    $('bytes').disabled = bytes === 0;
    $('bytes').setAttribute('aria-valuetext', bytesWord(bytes));
    $('by-formula').hidden = form === 'host' || formulaParts(measure).length === 0;
    if (form === 'host') this.showWork(measure, bytes);
    else this.showFormula(measure, bytes);
    const {name, date} = this.data.machine;
    $('machine').textContent = `Figures of ${name}, ${date.slice(0, 10)}; ` +
      (form === 'host' ? 'ranks meet in memory that they share.'
        : (placement === 'one_host' ? 'messages through shared memory.' : 'messages over tcp between hosts.') +
          ' The tuner also knows pipelines, shared cores and caches, which the formula leaves out.');
    const predictions = predictionsFor(this.data, size, placement, Math.max(bytes, 4));
    // Which memory a call has is known to each rank for itself only, so the choice is one for both.
    if (placement === 'one_host' && memory === 'symmetric')
      predictions.seconds = predictionsFor(this.data, size, 'symmetric', Math.max(bytes, 4)).seconds;
    this.showRivals(predictions, bytes);
  }

  // A host form is counted: what its meetings and its work take is the tuner's affair.
  showWork({meetings, copied, folded, parts}, bytes) {
    const work = [[copied, 'copied'], [folded, 'folded']].filter(([count]) => count > 0);
    $('formula').textContent = [countWord(meetings, 'meeting'),
      ...work.map(([count, verb]) => `${shareWord(count, parts)}S ${verb}`)].join(' + ');
    $('numbers').textContent = work.length === 0 ? '' : 'by the busiest rank: ' +
      work.map(([count, verb]) => `${bytesWord(bytes * count / parts)} ${verb}`).join(', ') + `, S = ${bytesWord(bytes)}`;
  }

  showFormula(measure, bytes) {
    const terms = termSeconds(measure, this.costs, bytes);
    const total = sum(terms);
    const parts = formulaParts(measure);
    $('formula').innerHTML = `<b>T</b> = ${parts.join(' + ') || 0}`;
    $('numbers').textContent = 'Nothing is sent and nothing is folded.';
    if (parts.length === 0) return;
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
    const barrier = this.schedule.measure.parts === 0;
    const items = barrier ? [
      [cell(0b0010, ''), 'What a rank knows: each lit slot is a rank of which it has heard that it came, rank 0 on top.'],
      [cell(0b1111, 'done'), 'It knows that all have come, and goes on.'],
    ] : this.data.reduces ? [
      [cell(0b0010, ''), 'A chunk of one rank. Its colour says which chunk; each lit slot is one rank’s contribution, rank 0 on top.'],
      [cell(0b0111, 'fresh'), 'Just written in this step.'],
      [cell(0b1111, 'done'), 'Complete: everything that belongs into it is there.'],
      [cell(0, 'empty'), 'Nothing in it yet.'],
    ] : [
      [cell(0b1111, 'done'), 'A chunk that is there. Its colour says which part of the message it is.'],
      [cell(0b1111, 'done fresh'), 'Just written in this step.'],
      [cell(0, 'empty'), 'Nothing in it yet.'],
    ];
    const picture = (inside) => `<svg viewBox="0 0 52 32" aria-hidden="true" class="meeting">${inside}</svg>`;
    if (this.schedule.ranks.some((rank) => rank.cells.some(([space]) => SLOTS.includes(SPACES[space]))))
      items.push([picture('<g class="cell" style="--hue:var(--c0)"><path class="fill" d="M16 9h20v14h-20z"/></g>'),
        'In a window: shown to the others. As a result: what a fold has made for them.']);
    if (this.schedule.form === 'host')
      items.push([picture('<path class="meet" d="M2 16h48"/>'),
        'All ranks meet: nobody goes on before all have come, and what was written before is there for everybody.']);
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
