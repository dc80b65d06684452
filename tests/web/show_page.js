// `tutti show --html` in a real browser: what is drawn is what was exported, and it can be driven.
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const {promise, makePage, open, main, folder} = require('./browser.js');

const allReduce = () => makePage('all_reduce', '--algorithm', 'double_binary_tree', '-n', '8');
const everybody = (n) => [...Array(n).keys()].join(' ');

// What the cells show: [{rank, space, chunk, from, goal, done}].
const cellsOf = (page) => page.$$eval('.rank .cell', (cells) => cells.map((cell) => ({...cell.dataset})));

async function choose(page, algorithm, n) {
  await page.selectOption('#size', String(n));
  await page.selectOption('#algorithm', algorithm);
}

promise('opens_quickly_without_a_complaint_or_a_request', async (browser) => {
  const file = allReduce();
  assert.ok(fs.statSync(file).size < 2 << 20, `${fs.statSync(file).size} bytes`);
  const page = await open(browser, file);
  const ready = await page.evaluate(() => performance.getEntriesByType('navigation')[0].domComplete);
  assert.ok(ready < 5000, `${ready} ms`);  // 300 ms on a quiet machine
  assert.match(await page.textContent('#title'), /all_reduce by double_binary_tree/);
  assert.equal(await page.locator('.rank').count(), 8);
  assert.deepEqual(page.complaints, []);
});

// Goes through all algorithms that the page offers for n, wherever the ranks may sit, with all memory
// and all passes, in the page itself, which is quicker than one click at a time: what the cells show
// before the first step, and after the last one.
const throughAll = (page, n, apart) => page.evaluate(([n, apart]) => {
  const cells = () => [...document.querySelectorAll('.rank .cell')].map((cell) => ({...cell.dataset}));
  const change = (id, value) => {
    const control = document.getElementById(id);
    if (control.type === 'checkbox') control.checked = value; else control.value = value;
    control.dispatchEvent(new Event('change'));
  };
  const offered = (id) => [...document.querySelectorAll(`#${id} option`)].map((option) => option.value);
  const each = (id, visit) => {
    if (document.getElementById(id).closest('label').hidden) return visit();
    return offered(id).flatMap((value) => { change(id, value); return visit(); });
  };
  change('size', n);
  return each('algorithm', () => each('placement', () => each('memory', () => each('pass', () => {
    change('apart', apart);
    document.getElementById('first').click();
    const first = cells();
    document.getElementById('last').click();
    const {algorithm, form, reach, pass, cut, steps} = window.page.schedule;
    return [{algorithm, form, reach, pass, cut, steps, first, last: cells(),
      said: document.getElementById('happening').textContent, ranks: document.querySelectorAll('.rank').length,
      meetings: window.page.run.steps.filter((step) => step.meets).length}];
  }))));
}, [n, apart]);

promise('every_algorithm_ends_with_all_contributions_everywhere', async (browser) => {
  const page = await open(browser, allReduce());
  for (const n of [2, 3, 7, 8, 16]) {
    const seen = await throughAll(page, n, false);
    assert.ok(new Set(seen.map(({algorithm}) => algorithm)).size >= 6, `${n}: ${seen.length} forms`);
    for (const reach of ['window', 'mapped']) assert.ok(seen.some((each) => each.reach === reach), `${n} ${reach}`);
    for (const pass of n <= 8 ? ['as built', 'fuse_folds'] : ['fuse_folds'])
      assert.ok(seen.some((each) => each.pass === pass), `${n} ${pass}`);
    for (const {algorithm, form, first, last, said, ranks, meetings, steps} of seen) {
      assert.equal(ranks, n + (algorithm === 'in_network' ? 1 : 0));  // the switch is drawn with them
      assert.equal(meetings, form === 'host' ? steps : 0);
      const before = first.filter((cell) => cell.space === 'output');
      assert.ok(before.every((cell) => cell.from === cell.rank && cell.done === 'false'), `${algorithm} ${n} at first`);
      const outputs = last.filter((cell) => cell.space === 'output');
      assert.equal(new Set(outputs.map((cell) => cell.rank)).size, n);
      for (const cell of outputs) assert.equal(cell.from, everybody(n), `${algorithm} ${n} ${JSON.stringify(cell)}`);
      assert.match(said, /All \d+ result chunks are complete/);
    }
  }
  assert.deepEqual(page.complaints, []);
});

promise('every_collective_ends_with_what_belongs_there', async (browser) => {
  // What rank r must hold in chunk c of its output at last, for n = 5, told once more by hand.
  const n = 5;
  const expected = {
    broadcast: () => '2', reduce: (r) => r === 2 ? everybody(n) : null,
    gather: (r, c, cut) => r === 2 ? String(Math.floor(c / cut)) : null,
    all_gather: (r, c, cut) => String(Math.floor(c / cut)), all_to_all: (r, c, cut) => String(Math.floor(c / cut)),
    scan: (r) => everybody(r + 1), exclusive_scan: (r) => everybody(r), scatter: () => '2',
    reduce_scatter: () => everybody(n),
  };
  for (const [collective, rule] of Object.entries(expected)) {
    const rooted = ['broadcast', 'reduce', 'gather', 'scatter'].includes(collective);
    const page = await open(browser, makePage(collective, '-n', String(n), ...(rooted ? ['--root', '2'] : [])));
    for (const {algorithm, last, cut} of await throughAll(page, n, collective !== 'broadcast')) {
      const outputs = last.filter((cell) => cell.space === 'output');
      assert.ok(outputs.length > 0, `${collective} ${algorithm} shows no output`);
      for (const cell of outputs)
        assert.equal(cell.from, rule(Number(cell.rank), Number(cell.chunk), cut) ?? '',
          `${collective} ${algorithm} ${JSON.stringify(cell)}`);
    }
    assert.deepEqual(page.complaints, []);
  }
});

promise('a_barrier_ends_when_everybody_has_heard_of_everybody', async (browser) => {
  const page = await open(browser, makePage('barrier', '-n', '6'));
  const seen = await throughAll(page, 6, false);
  assert.deepEqual(new Set(seen.map(({form}) => form)), new Set(['host', 'message']));
  for (const {algorithm, first, last} of seen) {
    assert.deepEqual(first.map((cell) => cell.from), ['0', '1', '2', '3', '4', '5'], algorithm);
    assert.ok(last.every((cell) => cell.from === everybody(6)), algorithm);
  }
});

promise('the_form_follows_from_where_ranks_sit_and_from_size_and_memory', async (browser) => {
  const page = await open(browser, makePage('all_reduce', '-n', '4', '--bytes', '1M'));
  const size = (exponent) => page.evaluate((exponent) => {
    document.getElementById('bytes').value = exponent;
    document.getElementById('bytes').dispatchEvent(new Event('input'));
  }, exponent);
  const seen = async () => [await page.textContent('#form'), await page.textContent('#when'),
    await page.textContent('#subtitle')].join(' | ');
  assert.match(await seen(), /^host form \| Ranks on one host run this: .*Ordinary memory, in pieces of .* 2 meetings/);
  assert.equal(await page.locator('.cell[data-space="window"]').count(), 12);
  await page.selectOption('#memory', 'symmetric');
  assert.match(await seen(), /^host form .*Symmetric memory on all ranks/);
  assert.equal(await page.locator('.cell[data-space="window"]').count(), 0);
  await size(4);
  assert.match(await seen(), /^host form .*Any memory, in the line by which a rank arrives.* 1 meeting;/);
  await size(20);
  await page.selectOption('#placement', 'apart');
  assert.match(await seen(), /^message form \| Ranks on a host each run this: messages, after fuse_folds/);
  assert.equal(await page.isVisible('#memory'), false);
  await page.selectOption('#pass', 'as built');
  assert.match(await seen(), /^message form \| The message form as built, before fuse_folds\./);
  assert.ok(await page.locator('.cell[data-space="scratch"]').count() > 0);
  await page.selectOption('#placement', 'one_host');
  await page.selectOption('#algorithm', 'ring');
  await page.selectOption('#pass', 'fuse_folds');
  assert.match(await seen(), /^message form \| Ranks on one host run this, as it has no host form: messages, after/);
  assert.deepEqual(page.complaints, []);
});

promise('ranks_meet_between_phases', async (browser) => {
  const page = await open(browser, makePage('all_reduce', '-n', '4', '--bytes', '1M'));
  assert.deepEqual(await page.$$eval('#phases span', (marks) => marks.map((mark) => mark.textContent)),
    ['phase 0', 'meet', 'phase 1', 'meet', 'phase 2']);
  await page.keyboard.press('ArrowRight');
  assert.match(await page.textContent('#happening'), /Phase 0\. 0 shows chunk 1 in its window/);
  await page.keyboard.press('ArrowRight');
  assert.match(await page.textContent('#happening'), /All ranks meet\./);
  assert.equal(await page.locator('#stage svg.meeting').count(), 1);
  await page.keyboard.press('ArrowRight');
  assert.match(await page.textContent('#happening'), /Phase 1\. 1 folds chunk 1 from the window of 0/);
  assert.equal(await page.locator('#stage svg.meeting').count(), 0);
  assert.equal(await page.locator('.arrow-group').count(), 3);
});

promise('play_moves_chunks_and_comes_to_the_end', async (browser) => {
  const page = await open(browser, allReduce());
  await choose(page, 'recursive_doubling', 4);
  await page.selectOption('#speed', '2');
  // Every place in which a travelling chunk is drawn, however busy the machine is.
  await page.evaluate(() => {
    window.places = new Set();
    new MutationObserver((changes) => changes.forEach(({target}) => window.places.add(target.getAttribute('transform'))))
      .observe(document.getElementById('stage'), {subtree: true, attributeFilter: ['transform']});
  });
  await page.click('#play');
  await page.waitForFunction(() => document.getElementById('play').getAttribute('aria-label') === 'Play',
    null, {timeout: 60000});
  const places = new Set(await page.evaluate(() => [...window.places]));
  assert.ok(places.size >= 24, `chunks were seen in ${places.size} places`);
  assert.equal(await page.textContent('#clock'), 'step 2 of 2');
  assert.ok((await cellsOf(page)).filter((cell) => cell.goal).every((cell) => cell.done === 'true'));
  await page.selectOption('#speed', '0.25');  // so that there is time to press the button
  await page.click('#play');  // once more from the start
  await page.waitForFunction(() => Number(document.getElementById('scrub').value) < 1.9);
  await page.click('#play');
  assert.equal(await page.getAttribute('#play', 'aria-label'), 'Play');
});

promise('keys_step_and_play', async (browser) => {
  const page = await open(browser, allReduce());
  const clock = () => page.textContent('#clock');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  assert.match(await clock(), /^step 2 of/);
  assert.match(await page.textContent('#happening'), /^Step 2 of \d+: 4 messages\. 0 → 1: chunk 4, from rank 0/);
  assert.equal(await page.locator('.arrow-group').count(), 4);
  await page.keyboard.press('ArrowLeft');
  assert.match(await clock(), /^step 1 of/);
  await page.keyboard.press('End');
  assert.match(await clock(), /^step (\d+) of \1$/);
  await page.keyboard.press('Home');
  assert.match(await clock(), /^step 0 of/);
  await page.keyboard.press(' ');
  assert.equal(await page.getAttribute('#play', 'aria-label'), 'Pause');
  assert.equal(await page.getAttribute('#happening', 'aria-live'), 'off');
  await page.keyboard.press(' ');
  assert.equal(await page.getAttribute('#happening', 'aria-live'), 'polite');
  await page.focus('#scrub');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  assert.match(await clock(), /^step 1 of/);
  await page.focus('#size');  // a list keeps its own keys
  await page.keyboard.press('ArrowDown');
  assert.match(await clock(), /^step 0 of/);
  assert.equal(await page.locator('.rank').count(), 9);
});

promise('scrubbing_shows_chunks_on_their_way', async (browser) => {
  const page = await open(browser, allReduce());
  await page.evaluate(() => {
    const scrub = document.getElementById('scrub');
    scrub.value = 1.5;
    scrub.dispatchEvent(new Event('input'));
  });
  assert.equal(await page.getAttribute('#stage', 'data-steps'), '1');
  assert.equal(await page.locator('#stage .token:visible').count(), 4);
});

promise('size_and_placement_change_the_cost', async (browser) => {
  const page = await open(browser, allReduce());
  await choose(page, 'ring', 8);
  await page.selectOption('#placement', 'apart');
  assert.equal(await page.textContent('#formula'), 'T = 14·α + 14·o + 14/8·S·β + 7/8·S·γ');
  const set = (id, value) => page.evaluate(([id, value]) => {
    document.getElementById(id).value = value;
    document.getElementById(id).dispatchEvent(new Event('input'));
  }, [id, value]);
  const seconds = async (id) => {
    const [number, unit] = (await page.textContent(id)).split(' ');
    return number * {ns: 1e-9, µs: 1e-6, ms: 1e-3, s: 1}[unit];
  };
  await set('bytes', 20);
  const [formula, predicted] = [await seconds('#total'), await seconds('#predicted')];
  // 14·3.88 µs + 14·2.2 µs + 1.75 MiB at 3.23 GB/s + 0.875 MiB at 23 GB/s
  assert.ok(Math.abs(formula - 693e-6) < 2e-6, formula);
  await set('bytes', 24);
  assert.ok(await seconds('#total') > 8 * formula);
  assert.ok(await seconds('#predicted') > 8 * predicted);
  await page.selectOption('#placement', 'one_host');
  assert.ok(await seconds('#predicted') < 16 * predicted);
  const before = await seconds('#total');
  await set('beta', 1);  // ten times the cost of a byte
  assert.ok(await seconds('#total') > 5 * before);
  await page.click('#reset');
  assert.equal(await seconds('#total'), before);
  assert.equal(await page.locator('#rivals button', {hasText: '★'}).count(), 1);
  await page.click('#rivals button:has-text("pairwise")');
  assert.match(await page.textContent('#title'), /by pairwise/);
});

promise('light_and_dark', async (browser) => {
  const colour = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await open(browser, allReduce(), {colorScheme: 'light'});
  const dark = await open(browser, allReduce(), {colorScheme: 'dark'});
  const [day, night] = [await colour(light), await colour(dark)];
  assert.notEqual(day, night);
  await light.click('#theme');
  assert.equal(await colour(light), night);
  await dark.keyboard.press('t');
  assert.equal(await colour(dark), day);
});

promise('fits_a_telephone_and_spares_those_who_dislike_motion', async (browser) => {
  const page = await open(browser, allReduce(), {viewport: {width: 390, height: 800}, reducedMotion: 'reduce'});
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} px wide`);
  await page.selectOption('#speed', '4');
  await page.click('#play');
  await page.waitForFunction(() => document.getElementById('stage').dataset.steps >= 2);
  assert.equal(await page.locator('#stage .token:visible').count(), 0);
  assert.deepEqual(page.complaints, []);
});

// Labels in the drawing, as they are on the screen: [{text, left, right, top, height}].
const labelsOf = (page) => page.$$eval('#stage .rank-name, #stage .chunk-name, #stage .space-name', (all) => all.map((text) => {
  const {left, right, top, height} = text.getBoundingClientRect();
  return {text: text.textContent, left, right, top, height};
}));

promise('labels_can_be_read_in_a_narrow_window_and_with_many_ranks', async (browser) => {
  const many = makePage('reduce_scatter', '-n', '32');  // few schedules, so that it is made quickly
  const cases = [[allReduce(), 'ring', 8, 400], [allReduce(), 'double_binary_tree', 8, 400],
    [many, 'direct', 32, 500], [many, 'ring', 32, 1400]];
  for (const [file, algorithm, n, width] of cases) {
    const page = await open(browser, file, {viewport: {width, height: 900}});
    await choose(page, algorithm, n);
    const labels = await labelsOf(page);
    assert.ok(labels.length >= 2 * n, `${labels.length} labels`);
    for (const {text, height} of labels) assert.ok(height > 10.5, `${algorithm} ${n} ${width}: '${text}' is ${height} px high`);
    const crowded = labels.filter((a) => labels.some((b) => a !== b && Math.abs(a.top - b.top) < 2 && a.left < b.left && b.left < a.right));
    assert.deepEqual(crowded, [], `${algorithm} ${n} ${width}`);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${width} is too narrow`);
    const clock = await page.$eval('#clock', (word) => word.getBoundingClientRect().height);
    assert.ok(clock < 30, `${width}: the clock is ${clock} px high`);  // in one line
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
});

promise('another_width_of_the_window_draws_it_anew_and_keeps_the_step', async (browser) => {
  const page = await open(browser, allReduce());
  await choose(page, 'ring', 8);
  await page.selectOption('#placement', 'apart');
  await page.click('#forward');
  const shape = () => page.$$eval('.plate', (plates) => plates.map((plate) => [plate.getAttribute('x'), plate.getAttribute('y')].join()));
  const wide = await shape();
  await page.setViewportSize({width: 400, height: 900});
  await page.waitForFunction((before) => document.querySelector('.plate').getAttribute('x') !== before, wide[0].split(',')[0]);
  assert.equal(new Set((await shape()).map((place) => place.split(',')[0])).size, 2, 'columns');
  assert.match(await page.textContent('#clock'), /^step 1 of/);
  assert.equal(await page.locator('.arrow-group').count(), 8);
});

promise('one_rank_has_nothing_to_send_and_the_page_says_so', async (browser) => {
  for (const collective of ['reduce_scatter', 'barrier']) {
    const page = await open(browser, makePage(collective, '-n', '1'));
    assert.equal(await page.textContent('#formula'), 'T = 0');
    assert.equal(await page.textContent('#numbers'), 'Nothing is sent and nothing is folded.');
    assert.equal(await page.isVisible('#sliders'), false);
    assert.match(await page.textContent('#when'), /nobody to send to/);
    assert.match(await page.textContent('#subtitle'), /^1 rank, no messages$/);
    await page.click('#last');
    assert.doesNotMatch(await page.textContent('#happening'), /All 1 /);
    assert.deepEqual(page.complaints, []);
  }
});

promise('every_control_has_a_name_and_can_be_reached', async (browser) => {
  const page = await open(browser, allReduce());
  const unnamed = await page.$$eval('button, select, input', (all) => all.filter((element) =>
    !element.getAttribute('aria-label') && !(element.labels && element.labels.length) && !element.textContent.trim())
    .map((element) => element.id));
  assert.deepEqual(unnamed, []);
  const reached = new Set();
  for (let i = 0; i < 40; ++i) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement.id));
  }
  for (const id of ['algorithm', 'size', 'bytes', 'play', 'scrub', 'speed', 'alpha', 'theme'])
    assert.ok(reached.has(id), `${id} is not reached by the tab key`);
});

promise('draws_what_the_data_say_and_nothing_of_its_own', async (browser) => {
  const text = fs.readFileSync(allReduce(), 'utf8');
  const tamper = (name, change) => {
    const file = path.join(folder, `${name}.html`);
    fs.writeFileSync(file, text.replace(/(id="data">)(.*?)(<\/script>)/s, (_, head, json, tail) => {
      const data = JSON.parse(json);
      change(data);
      return head + JSON.stringify(data).replaceAll('<', '\\u003c') + tail;
    }));
    return file;
  };
  // Rank 1 does not fold what it took: its contributions, and nobody else's, are missing at last.
  const forgetful = tamper('forgetful', (data) => {
    const ring = data.schedules.find((each) => each.algorithm === 'ring' && each.size === 8 && each.in_place);
    for (const op of ring.ranks[1].ops) if (op[0] === 3) op[5] = op[5].slice(0, 1);
  });
  const page = await open(browser, forgetful);
  await choose(page, 'ring', 8);
  await page.click('#last');
  const outputs = (await cellsOf(page)).filter((cell) => cell.space === 'output');
  assert.ok(outputs.filter((cell) => cell.done === 'false').length >= 56);
  assert.ok(outputs.filter((cell) => cell.chunk === '0').every((cell) => cell.from === '0 2 3 4 5 6 7'));
  // Rank 1 takes nothing of what others have folded.
  const idle = await open(browser, tamper('idle', (data) => {
    for (const each of data.schedules)
      if (each.reach === 'window' && each.size === 8 && each.in_place) each.ranks[1].phases.splice(2, 1, []);
  }));
  await choose(idle, 'direct', 8);
  await idle.click('#last');
  const incomplete = (await cellsOf(idle)).filter((cell) => cell.space === 'output' && cell.done === 'false');
  assert.deepEqual(incomplete.map(({rank, chunk}) => [rank, chunk]), [0, 2, 3, 4, 5, 6, 7].map((chunk) => ['1', String(chunk)]));
  // A message that nobody sends.
  const silent = tamper('silent', (data) => {
    const start = data.schedules.find((each) => each.algorithm === 'double_binary_tree' && each.size === 8 && each.in_place);
    start.ranks[0].ops = start.ranks[0].ops.filter((op) => op[0] !== 0);
  });
  const broken = await open(browser, silent);
  assert.match(await broken.textContent('#trouble'), /does not come to its end/);
  const stranger = await open(browser, tamper('stranger', (data) => { data.format = 'tutti page 99'; }));
  assert.match(await stranger.textContent('#trouble'), /cannot read 'tutti page 99'/);
});

main();
