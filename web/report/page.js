// Puts the page together from the data that the tool has put into it.

const CAUSES = {
  straggler: 'a rank came late', 'queued behind': 'another call went first',
  'slow link': 'slower than predicted', 'late ready': 'begun too late to hide',
};

class Page {
  constructor(data) {
    this.data = data;
    this.theme();
    this.head();
    this.findings();
    this.timeline = new Timeline(data);
    legend($('lane-legend'), [['--compute', 'compute'], ['--communication', 'communication'], ['--reduce', 'reduction'],
      ...(data.timeline.lanes.some((lane) => lane.kind === 'bubble') ? [['--c5', 'bubble']] : []),
      ...data.causes.map((cause, c) => [`--cause${c}`, `wait: ${cause}`])]);
    if (data.timeline.finest_us > 0) $('finest').textContent = `Neighbours shorter than ${time(data.timeline.finest_us)} are drawn as one.`;
    this.steps();
    this.tables();
    this.curves();
    document.documentElement.dataset.ready = 'yes';
  }

  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  }

  theme() {
    const say = () => {
      $('theme-word').textContent = this.isDark() ? 'Light' : 'Dark';
      $('theme').setAttribute('aria-pressed', this.isDark());
      $('theme').setAttribute('aria-label', `Switch to ${this.isDark() ? 'light' : 'dark'} colours`);
    };
    $('theme').addEventListener('click', () => {
      document.documentElement.dataset.theme = this.isDark() ? 'light' : 'dark';
      say();
      this.timeline.draw();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { say(); this.timeline.draw(); });
    say();
  }

  head() {
    const {data} = this;
    const hosts = new Set(data.ranks.map((rank) => rank.host)).size;
    $('subtitle').textContent = `job ${data.job} · ${data.size} ranks on ${hosts} host${hosts === 1 ? '' : 's'} · ${data.seconds.toFixed(2)} s`;
    const {summary} = data;
    const tiles = [];
    if (summary.steps > 0) {
      tiles.push([time(summary.step_us), `a step (mean of ${summary.first_step} … ${summary.last_step})`],
        [time(summary.compute_us), 'compute'], [time(summary.exposed_us), `communication not hidden, ${percent(summary.exposed_us / summary.step_us)} of a step`],
        [time(summary.causes_us[0]), 'waiting for late ranks']);
      if (summary.bubble_us > 0) tiles.push([time(summary.bubble_us), `bubble, ${percent(summary.bubble_us / summary.step_us)} of a step`]);
    } else {
      const mean = (field) => data.ranks.reduce((sum, rank) => sum + rank[field], 0) / data.ranks.length;
      tiles.push([time(data.seconds * 1e6), 'the run'], [time(mean('communication_us')), 'communication under way, mean of ranks'],
        [time(mean('wait_us')), 'blocked, mean of ranks']);
    }
    if (summary.overlap !== null) tiles.push([percent(summary.overlap), 'of communication hidden beside compute']);
    const speed = data.curves.find((curve) => ['tokens/s', 'samples/s'].includes(curve.name));
    if (speed) {
      const half = speed.points.slice(Math.floor(speed.points.length / 2)).map((point) => point[1]).sort((a, b) => a - b);
      tiles.push([plain(half[Math.floor(half.length / 2)]), `${speed.name} (median, second half)`]);
    }
    $('tiles').append(...tiles.map(([figure, word]) => element('div', {class: 'tile'}, element('b', {}, figure), element('span', {}, word))));
  }

  findings() {
    $('findings').append(...this.data.findings.map(({level, text}) => element('li', {class: level}, text)));
  }

  // Brings a bar's steps into view, with a little around them.
  showSteps({ranks}) {
    const from = Math.min(...ranks.map((rank) => rank.begin_us)) * 1e3;
    const to = Math.max(...ranks.map((rank) => rank.begin_us + rank.step_us)) * 1e3;
    const margin = (to - from) * 0.03;
    this.timeline.show(from - margin, to + margin);
  }

  steps() {
    const {data} = this;
    if (data.steps.length === 0) {
      $('steps-card').remove();
      document.querySelector('.tools label').remove();
      return;
    }
    legend($('cause-legend'), data.causes.map((cause, c) => [`--cause${c}`, `${cause}: ${CAUSES[cause]}`]));
    drawSteps(data, (bar) => {
      this.showSteps(bar);
      $('timeline-card').scrollIntoView({block: 'start'});
    });
    const select = $('go-step');
    select.append(element('option', {value: ''}, 'all'), ...data.steps.map((each, i) => element('option', {value: i}, `${each.step}`)));
    select.addEventListener('change', () => {
      if (select.value === '') this.timeline.show(this.timeline.all.from, this.timeline.all.to);
      else this.showSteps(data.steps[select.value]);
    });
  }

  tables() {
    const {data} = this;
    const most = Math.max(1e-3, ...data.buckets.map((each) => each.wait_us));
    table($('buckets'), ['call', 'size', 'times', 'waiting each', 'exposed', 'why', 'straggler'], data.buckets.map((each) => [
      each.name, {text: each.size, value: each.bytes}, {text: `${each.count}`, value: each.count}, timeCell(each.wait_us),
      timeCell(each.exposed_us), strip(each.causes_us, most, data.causes), rankCell(each.straggler)]));
    if (data.buckets.length === 0) $('buckets-card').remove();
    table($('ranks'), ['rank', 'host', 'compute', 'communication', 'blocked', 'bubble', 'reducing', 'overlap'], data.ranks.map((rank) => [
      {text: `${rank.rank}${rank.cut_off ? ' (cut off)' : ''}`, value: rank.rank}, rank.host, timeCell(rank.compute_us), timeCell(rank.communication_us),
      timeCell(rank.wait_us), timeCell(rank.bubble_us), timeCell(rank.reduce_us), {text: rank.overlap === null ? '–' : percent(rank.overlap), value: rank.overlap ?? -1}]));
    table($('collectives'), ['collective', 'group', 'algorithm', 'type', 'size', 'ranks', 'count', 'predicted', 'measured', '95 %', '÷ predicted', 'busbw', 'blocked in all'],
      data.collectives.map((row) => [
        row.collective, row.group, row.algorithm, row.dtype, {text: row.size, value: row.bytes}, {text: `${row.ranks}`, value: row.ranks},
        {text: `${row.count}`, value: row.count}, timeCell(row.predicted_us), timeCell(row.median_us), timeCell(row.p95_us),
        ratioCell(row), {text: `${row.busbw_gbs.toFixed(2)} GB/s`, value: row.busbw_gbs}, timeCell(row.wait_us)]));
    if (data.collectives.length === 0) $('collectives-card').remove();
  }

  curves() {
    const drawn = this.data.curves.filter((curve) => curve.points.filter((point) => point[1] !== null).length > 1);
    if (drawn.length === 0) $('curves-card').remove();
    $('curves')?.append(...drawn.map(makeCurve));
  }
}

function ratioCell(row) {
  const ratio = row.predicted_us > 0 ? row.median_us / row.predicted_us : null;
  return {text: ratio === null ? '–' : `${ratio.toFixed(1)} ×`, value: ratio ?? -1};
}

new Page(JSON.parse($('data').textContent));
