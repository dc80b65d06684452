// Draws the schedules that the tool has put into the page, one at a time, and what each op waits for.

const ROW = 30;
const LEFT = 64;
const TOP = 22;
const LEAST_CELL = 22;  // pixels of the shortest op, where that is not too wide altogether
const MOST_WIDTH = 6000;
const WORDS = {forward: 'forward', backward: 'backward', backward_input: 'backward, input', backward_weight: 'backward, weights'};

class PipelinePage {
  constructor(data) {
    this.data = data;
    const select = $('schedule');
    select.append(...data.schedules.map((each) => element('option', {value: each.schedule}, each.schedule)));
    select.addEventListener('change', () => this.show(select.value));
    this.show(data.start);
    window.addEventListener('resize', () => this.draw());
    document.documentElement.dataset.ready = 'yes';
  }

  show(name) {
    this.schedule = this.data.schedules.find((each) => each.schedule === name);
    $('schedule').value = name;
    this.head();
    this.draw();
    this.table();
  }

  // In micro-batches: what virtual stages keep is a part of one.
  kept(schedule) {
    return Math.max(...schedule.ranks.map((rank) => rank.activations)) / schedule.virtual_stages;
  }

  head() {
    const {data, schedule} = this;
    const v = schedule.virtual_stages;
    $('title').textContent = `${schedule.schedule} on ${data.stages} stages, ${data.micro_batches} micro-batches`;
    $('subtitle').textContent = `${v > 1 ? `${v} virtual stages on each rank · ` : ''}forward ${time(data.forward_s * 1e6)}, backward `
      + `${time(data.backward_s * 1e6)} (weights ${time(data.weight_s * 1e6)}), message ${time(data.transfer_s * 1e6)}`
      + `${data.overlap ? '' : ', ranks stop for messages'}`;
    const tiles = [[time(schedule.step_s * 1e6), 'a step'], [time(schedule.bubble_s * 1e6), `bubble, ${percent(schedule.bubble_share)} of the step`],
      [schedule.closed_form_bubble_s === null ? '–' : time(schedule.closed_form_bubble_s * 1e6), 'bubble by the closed form'],
      [plain(this.kept(schedule)), 'micro-batches kept at most'], [`${schedule.messages}`, 'messages a step']];
    $('tiles').replaceChildren(...tiles.map(([figure, word]) => element('div', {class: 'tile'}, element('b', {}, figure), element('span', {}, word))));
    $('legend').replaceChildren();
    const split = schedule.schedule === 'zb-h1';
    legend($('legend'), [['--compute', 'forward'], ['--reduce', split ? WORDS.backward_input : 'backward'],
      ...(split ? [['--c5', WORDS.backward_weight]] : []), ['--idle', 'bubble']]);
  }

  draw() {
    const {schedule} = this;
    const shortest = Math.min(...schedule.ranks.flatMap((rank) => rank.slices.map((slice) => slice.end_s - slice.begin_s)).filter((length) => length > 0));
    const room = $('picture').parentElement.clientWidth - LEFT - 12;
    this.scale = Math.max(room, Math.min(MOST_WIDTH, schedule.step_s / shortest * LEAST_CELL)) / schedule.step_s;
    const width = LEFT + schedule.step_s * this.scale + 12;
    const height = TOP + ROW * schedule.ranks.length + 4;
    const picture = $('picture');
    picture.setAttribute('width', width);
    picture.setAttribute('height', height);
    picture.replaceChildren(...this.axis(width, height), ...schedule.ranks.flatMap((rank, i) => this.row(rank, i)));
  }

  x(seconds) { return LEFT + seconds * this.scale; }

  axis(width, height) {
    return ticks(0, this.schedule.step_s * 1e6, width / 110).flatMap((us) => [
      svg('line', {class: 'grid', x1: this.x(us / 1e6), x2: this.x(us / 1e6), y1: TOP - 4, y2: height - 4}),
      svg('text', {x: this.x(us / 1e6) + 3, y: 12}, time(us))]);
  }

  row(rank, i) {
    const y = TOP + ROW * i;
    return [svg('text', {x: 2, y: y + ROW / 2 + 4}, `stage ${i}`),
      svg('rect', {class: 'bubble', x: LEFT, y: y + 1, width: this.schedule.step_s * this.scale, height: ROW - 2}),
      ...rank.slices.map((slice) => this.cell(slice, i, y))];
  }

  cell(slice, rank, y) {
    const width = (slice.end_s - slice.begin_s) * this.scale;
    const box = svg('rect', {x: this.x(slice.begin_s), y: y + 1, width, height: ROW - 2, rx: 2, opacity: Math.max(0.45, 1 - 0.2 * slice.virtual_stage)});
    const cell = svg('g', {class: `cell ${slice.op}`, 'data-op': slice.op, 'data-rank': rank, 'data-micro-batch': slice.micro_batch,
      'data-virtual-stage': slice.virtual_stage}, box);
    if (width > 7 * `${slice.micro_batch}`.length + 2)
      cell.append(svg('text', {x: this.x(slice.begin_s) + width / 2, y: y + ROW / 2 + 4}, `${slice.micro_batch}`));
    cell.addEventListener('pointerenter', () => this.tell(cell, slice, rank));
    return cell;
  }

  // What an op needs: the same micro-batch one place before, or for backwards one behind, and its own part before.
  needs(slice, rank) {
    const {stages} = this.data;
    const place = slice.virtual_stage * stages + rank;
    const at = (ops, where) => (where < 0 || where >= stages * this.schedule.virtual_stages ? []
      : ops.map((op) => ({op, rank: where % stages, virtual_stage: Math.floor(where / stages), micro_batch: slice.micro_batch})));
    if (slice.op === 'forward') return at(['forward'], place - 1);
    if (slice.op === 'backward_weight') return at(['backward_input'], place);
    return [...at(['backward', 'backward_input'], place + 1), ...at(['forward'], place)];
  }

  tell(cell, slice, rank) {
    const cells = [...document.querySelectorAll('#picture .cell')];
    for (const each of cells) each.classList.remove('asked', 'needed');
    cell.classList.add('asked');
    const needed = this.needs(slice, rank).map((need) => cells.find((each) => each.dataset.op === need.op && +each.dataset.rank === need.rank
      && +each.dataset.virtualStage === need.virtual_stage && +each.dataset.microBatch === need.micro_batch)).filter(Boolean);
    for (const each of needed) each.classList.add('needed');
    const needs = needed.map((each) => `${WORDS[each.dataset.op]} on stage ${each.dataset.rank}`);
    $('told').textContent = `${WORDS[slice.op]} of micro-batch ${slice.micro_batch} on stage ${rank}`
      + `${this.schedule.virtual_stages > 1 ? `, virtual stage ${slice.virtual_stage}` : ''}: ${time(slice.begin_s * 1e6)} … ${time(slice.end_s * 1e6)}`
      + `; needs ${needs.length ? needs.join(' and ') : 'nothing'}.`;
  }

  table() {
    const longest = Math.max(...this.data.schedules.map((each) => each.step_s));
    const rows = this.data.schedules.map((each) => {
      const button = element('button', {type: 'button'}, each.schedule);
      button.addEventListener('click', () => this.show(each.schedule));
      const strip = element('div', {class: 'strip', 'aria-hidden': 'true'});
      for (const [name, seconds] of [['--compute', each.compute_s], ['--idle', each.bubble_s]]) {
        const bar = element('i');
        bar.style.cssText = `width:${100 * seconds / longest}%;background:var(${name})`;
        strip.append(bar);
      }
      const figures = [time(each.step_s * 1e6), time(each.bubble_s * 1e6), percent(each.bubble_share), plain(this.kept(each)), `${each.messages}`];
      return element('tr', {'aria-selected': each === this.schedule}, element('td', {}, button), element('td', {class: 'number'}, `${each.virtual_stages}`),
        ...figures.map((figure) => element('td', {class: 'number'}, figure)), element('td', {}, strip));
    });
    const heads = ['schedule', 'v', 'step', 'bubble', 'of the step', 'kept', 'messages', ''];
    $('all').replaceChildren(element('thead', {}, element('tr', {}, ...heads.map((head, i) => element('th', i > 0 && head ? {class: 'number'} : {}, head)))),
      element('tbody', {}, ...rows));
  }
}

window.page = new PipelinePage(JSON.parse($('data').textContent));
