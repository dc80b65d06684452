// Bars of waiting per step, curves, and tables.

const CHART = {height: 210, left: 62, bottom: 26, top: 8};

// Draws into `place` as wide as it is, and again when that changes: so letters keep their size.
function drawWide(place, draw) {
  let drawn = 0;
  const again = () => {
    if (place.clientWidth === drawn || place.clientWidth === 0) return;
    drawn = place.clientWidth;
    place.replaceChildren(draw(drawn));
  };
  again();
  new ResizeObserver(again).observe(place);
}

// Means over ranks; many steps are put together.
function stepBars(data) {
  const steps = data.steps.map(({step, straggler, ranks}) => ({
    straggler,
    first: step,
    last: step,
    causes: data.causes.map((_, c) => ranks.reduce((sum, rank) => sum + rank.causes_us[c], 0) / ranks.length),
    length: Math.max(...ranks.map((rank) => rank.step_us)),
    ranks,
  }));
  const together = Math.ceil(steps.length / 240);
  const bars = [];
  for (let i = 0; i < steps.length; i += together) {
    const some = steps.slice(i, i + together);
    bars.push({
      first: some[0].first, last: some[some.length - 1].last, ranks: some.flatMap((each) => each.ranks),
      causes: data.causes.map((_, c) => some.reduce((sum, each) => sum + each.causes[c], 0) / some.length),
    });
  }
  return {steps, bars};
}

function drawSteps(data, show) {
  const {steps, bars} = stepBars(data);
  drawWide($('steps-chart'), (width) => drawBars(data, bars, width, show));
  stepTable(data, steps);
}

function drawBars(data, bars, width, show) {
  const {height, left, bottom, top} = CHART;
  const most = Math.max(1e-3, ...bars.map((bar) => bar.causes.reduce((a, b) => a + b, 0)));
  const y = (us) => height - bottom - us / most * (height - bottom - top);
  const drawing = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Waiting per step by cause'});
  for (const tick of ticks(0, most, 4)) {
    drawing.append(svg('line', {class: 'grid', x1: left, x2: width, y1: y(tick), y2: y(tick)}));
    drawing.append(svg('text', {x: left - 8, y: y(tick) + 4, 'text-anchor': 'end'}, time(tick)));
  }
  const room = (width - left) / bars.length;
  const each = Math.max(1, Math.min(46, room * 0.78));
  bars.forEach((bar, i) => drawing.append(stepBar(data, bar, left + room * (i + 0.5), each, room, y, show)));
  const every = Math.ceil(bars.length / (width / 70));
  bars.forEach((bar, i) => {
    if (i % every) return;
    drawing.append(svg('text', {x: left + room * (i + 0.5), y: height - 8, 'text-anchor': 'middle'}, `${bar.first}`));
  });
  return drawing;
}

function stepBar(data, bar, x, width, room, y, show) {
  const words = data.causes.map((cause, c) => `${cause} ${time(bar.causes[c])}`).join(', ');
  const steps = bar.first === bar.last ? `step ${bar.first}` : `steps ${bar.first} to ${bar.last}`;
  const group = svg('g', {class: 'bar', tabindex: 0, role: 'button', 'aria-label': `${steps}: ${words}`});
  group.append(svg('title', {}, `${steps}: ${words}`));
  group.append(svg('rect', {class: 'hit', x: x - room / 2, y: CHART.top, width: room, height: CHART.height - CHART.bottom - CHART.top}));
  let sum = 0;
  bar.causes.forEach((us, c) => {
    if (us > 0) group.append(svg('rect', {x: x - width / 2, width, y: y(sum + us), height: Math.max(0, y(sum) - y(sum + us)), fill: `var(--cause${c})`}));
    sum += us;
  });
  const go = () => show(bar);
  group.addEventListener('click', go);
  group.addEventListener('keydown', (event) => { if (event.key === 'Enter') go(); });
  return group;
}

function stepTable(data, steps) {
  const rows = steps.slice(0, 1000).map((each) => [
    {text: `${each.first}`, value: each.first}, timeCell(each.length),
    ...each.causes.map((us) => timeCell(us)), rankCell(each.straggler),
  ]);
  table($('steps-table'), ['step', 'slowest rank', ...data.causes, 'waited for most'], rows);
}

function rankCell(rank) { return {text: rank < 0 ? '–' : `rank ${rank}`, value: rank}; }

function timeCell(us) { return {text: us === null ? '–' : time(us), value: us ?? -1}; }

// Cells are {text, value} (numbers, right-aligned), strings, or elements. Headings sort.
function table(place, heads, rows, sortable = true) {
  const body = element('tbody');
  const head = element('tr');
  const fill = (list) => body.replaceChildren(...list.map((row) =>
    element('tr', {}, ...row.map((content, column) => cell(content, heads[column])))));
  heads.forEach((word, column) => {
    const is_number = rows.length > 0 && typeof rows[0][column] === 'object' && 'value' in rows[0][column];
    const made = element('th', {scope: 'col', class: is_number ? 'number' : ''});
    if (!sortable) made.append(word);
    else {
      const button = element('button', {type: 'button'}, word);
      button.addEventListener('click', () => {
        const down = made.getAttribute('aria-sort') !== 'descending';
        head.querySelectorAll('th').forEach((each) => each.removeAttribute('aria-sort'));
        made.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        const key = (row) => row[column].value ?? row[column].textContent ?? row[column];
        fill([...rows].sort((a, b) => (key(a) < key(b) ? 1 : key(a) > key(b) ? -1 : 0) * (down ? 1 : -1)));
      });
      made.append(button);
    }
    head.append(made);
  });
  fill(rows);
  place.replaceChildren(element('thead', {}, head), body);
  stackIfWide(place.parentElement);
}

// Nobody should have to scroll sideways.
function stackIfWide(scroll) {
  new ResizeObserver(() => {
    scroll.classList.remove('stacked');
    scroll.classList.toggle('stacked', scroll.scrollWidth > scroll.clientWidth);
  }).observe(scroll);
}

function cell(content, head) {
  if (typeof content === 'object' && 'value' in content && 'text' in content)
    return element('td', {class: 'number', 'data-head': head}, content.text);
  return element('td', {'data-head': head}, content);
}

// Causes side by side, as wide as their share of `most`.
function strip(causes, most, words) {
  const made = element('div', {class: 'strip', role: 'img', 'aria-label': causes.map((us, c) => `${words[c]} ${time(us)}`).join(', ')});
  made.title = made.getAttribute('aria-label').replaceAll(', ', '\n');
  causes.forEach((us, c) => {
    const part = element('i');
    part.style.width = `${us / most * 100}%`;
    part.style.background = `var(--cause${c})`;
    made.append(part);
  });
  made.value = causes.reduce((a, b) => a + b, 0);
  return made;
}

function makeCurve({name, points}) {
  const known = points.filter((point) => point[1] !== null);
  const output = element('output', {}, `last ${plain(known[known.length - 1][1])}`);
  const place = element('div');
  drawWide(place, (width) => drawCurve(name, known, width, output));
  return element('figure', {}, element('figcaption', {}, name, output), place);
}

function drawCurve(name, known, width, output) {
  const [height, left, bottom, top] = [180, 58, 22, 8];
  const low = Math.min(...known.map((p) => p[1]));
  const high = Math.max(...known.map((p) => p[1]));
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  const [first, last] = [known[0][0], known[known.length - 1][0]];
  const x = (step) => left + (step - first) / (last - first || 1) * (width - left - 8);
  const y = (value) => height - bottom - (value - low + pad) / (high - low + 2 * pad) * (height - bottom - top);
  const drawing = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${name}: from ${plain(known[0][1])} to ${plain(known[known.length - 1][1])}`});
  for (const tick of ticks(low - pad, high + pad, 4)) {
    drawing.append(svg('line', {class: 'grid', x1: left, x2: width, y1: y(tick), y2: y(tick)}));
    drawing.append(svg('text', {x: left - 6, y: y(tick) + 4, 'text-anchor': 'end'}, plain(tick)));
  }
  for (const tick of ticks(first, last, width / 80).filter(Number.isInteger))
    drawing.append(svg('text', {x: x(tick), y: height - 5, 'text-anchor': 'middle'}, `${tick}`));
  const path = known.map(([step, value], i) => `${i ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');
  const cross = svg('line', {class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden'});
  drawing.append(cross, svg('path', {d: path}));
  drawing.addEventListener('pointermove', (event) => {
    const box = drawing.getBoundingClientRect();
    const step = first + ((event.clientX - box.left) / box.width * width - left) / (width - left - 8) * (last - first);
    const nearest = known.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best));
    cross.setAttribute('x1', x(nearest[0]));
    cross.setAttribute('x2', x(nearest[0]));
    cross.setAttribute('visibility', 'visible');
    output.textContent = `step ${nearest[0]}: ${plain(nearest[1])}`;
  });
  drawing.addEventListener('pointerleave', () => cross.setAttribute('visibility', 'hidden'));
  return drawing;
}
