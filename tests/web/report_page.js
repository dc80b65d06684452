// The page of `tutti trace report`, from a trace of a real job, in a real browser.
const assert = require('node:assert');
const {execFileSync} = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const {promise, open, main, folder} = require('./browser.js');

const TOOL = process.env.TUTTI_TOOL;
const RANK = path.join(process.env.TUTTI_TEST_PROGRAMS, 'traced_rank');

// A report of a job in which rank 1 comes late to every step.
function makeReport(manner, ranks) {
  const file = path.join(folder, `${manner}${ranks}.html`);
  if (fs.existsSync(file)) return file;
  const traces = path.join(folder, `${manner}${ranks}`);
  const environment = {...process.env, TUTTI_TRACE_DIR: traces, TUTTI_TUNING: 'fixed'};
  execFileSync(TOOL, ['run', '-n', `${ranks}`, RANK, manner], {env: environment});
  execFileSync(TOOL, ['trace', 'report', traces, '--html', file]);
  return file;
}

async function view(page) {
  return page.$eval('#timeline', (canvas) => ({from: +canvas.dataset.from, to: +canvas.dataset.to}));
}

// Distinct colours in a part of the canvas, so that an empty one is noticed.
async function colours(page, selector) {
  return page.$eval(selector, (canvas) => {
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Map();
    for (let i = 0; i < data.length; i += 4) {
      const key = `${data[i]},${data[i + 1]},${data[i + 2]},${data[i + 3]}`;
      seen.set(key, (seen.get(key) || 0) + 1);
    }
    return [...seen.values()].filter((count) => count > 200).length;
  });
}

promise('the_page_loads_without_complaint_and_tells_what_stands_out', async (browser) => {
  const page = await open(browser, makeReport('late', 4));
  assert.strictEqual(await page.getAttribute('html', 'data-ready'), 'yes');
  const findings = await page.$$eval('#findings li', (list) => list.map((each) => each.textContent));
  assert(findings.some((text) => text.startsWith('A step takes')), findings.join('\n'));
  assert(findings.some((text) => text.startsWith('Rank 1 holds the others up')), findings.join('\n'));
  assert((await page.$$('.tile')).length >= 5);
  assert.deepStrictEqual(page.complaints, []);
});

promise('the_timeline_is_drawn_and_can_be_zoomed_and_moved', async (browser) => {
  const page = await open(browser, makeReport('late', 4));
  assert(await colours(page, '#timeline') >= 5, 'lanes of several kinds have colours');
  const all = await view(page);
  await page.click('#zoom-in');
  const near = await view(page);
  assert(Math.abs((near.to - near.from) * 2 - (all.to - all.from)) < 2);
  await page.focus('#timeline');
  await page.keyboard.press('ArrowRight');
  const moved = await view(page);
  assert(moved.from > near.from && Math.abs((moved.to - moved.from) - (near.to - near.from)) < 2);
  const box = await page.locator('#timeline').boundingBox();
  await page.mouse.move(box.x + 700, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + 800, box.y + 60, {steps: 4});
  await page.mouse.up();
  assert((await view(page)).from < moved.from, 'dragging to the right goes back in time');
  await page.focus('#timeline');
  await page.keyboard.press('0');
  assert.deepStrictEqual(await view(page), all);
  assert.deepStrictEqual(page.complaints, []);
});

promise('pointing_at_a_slice_tells_what_it_is_and_who_was_late', async (browser) => {
  const page = await open(browser, makeReport('late', 4));
  await page.selectOption('#go-step', {label: '3'});
  // Rank 0 waits for rank 1 in the first part of the step: lanes are steps, compute, wait …
  const box = await page.locator('#timeline').boundingBox();
  let text = '';
  for (let x = 200; x < box.width && !(text.includes('big one') && text.includes('straggler')); x += 8) {
    await page.mouse.move(box.x + x, box.y + 24 + 17 * 2.5);
    text = await page.locator('#tip').isVisible() ? await page.locator('#tip').textContent() : '';
  }
  assert(text.includes('wait for all_reduce big one'), text);
  assert(text.includes('straggler (rank 1)'), text);
  assert(text.includes('rank 1 joined last'), text);
});

promise('a_bar_brings_its_step_into_view', async (browser) => {
  const page = await open(browser, makeReport('late', 4));
  assert.strictEqual((await page.$$('#steps-chart .bar')).length, 5);
  const all = await view(page);
  await page.locator('#steps-chart .bar').nth(3).click();
  const near = await view(page);
  assert(near.to - near.from < (all.to - all.from) / 2);
  const label = await page.locator('#steps-chart .bar').nth(3).getAttribute('aria-label');
  assert(/^step 4: straggler/.test(label), label);
});

promise('tables_have_every_collective_and_sort', async (browser) => {
  const page = await open(browser, makeReport('late', 4));
  const rows = await page.$$eval('#collectives tbody tr', (list) => list.map((row) => row.innerText));
  assert(rows.some((row) => /all_reduce\s+world\s+\w+\s+f32\s+256 KiB/.test(row)), rows.join('\n'));
  assert(rows.some((row) => /all_reduce\s+pair\s/.test(row)), rows.join('\n'));
  await page.getByRole('button', {name: 'count'}).click();
  const counts = await page.$$eval('#collectives tbody tr', (list) => list.map((row) => +row.cells[6].textContent));
  assert.deepStrictEqual(counts, [...counts].sort((a, b) => b - a));
  const calls = await page.$$eval('#buckets tbody tr', (list) => list.map((row) => row.cells[0].textContent));
  assert(calls.includes('all_reduce big one'), calls.join('\n'));
  assert.strictEqual((await page.$$('#ranks tbody tr')).length, 4);
  assert.strictEqual((await page.$$('#curves figure')).length, 1, 'the loss');
});

promise('dark_and_light_differ_and_can_be_switched', async (browser) => {
  const page = await open(browser, makeReport('late', 4), {colorScheme: 'dark'});
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await paper();
  await page.click('#theme');
  assert.notStrictEqual(await paper(), dark);
  assert(await colours(page, '#timeline') >= 5);
  assert.deepStrictEqual(page.complaints, []);
});

promise('a_run_without_steps_or_curves_still_makes_a_page', async (browser) => {
  const traces = path.join(folder, 'bare');
  const file = path.join(folder, 'bare.html');
  execFileSync(TOOL, ['run', '-n', '2', RANK, 'bare'], {env: {...process.env, TUTTI_TRACE_DIR: traces, TUTTI_TUNING: 'fixed'}});
  execFileSync(TOOL, ['trace', 'report', traces, '--html', file]);
  const page = await open(browser, file);
  assert.strictEqual(await page.getAttribute('html', 'data-ready'), 'yes');
  assert.strictEqual(await page.locator('#steps-card').count(), 0);
  assert.deepStrictEqual(page.complaints, []);
});

promise('nothing_is_scrolled_sideways_or_cut_off_at_any_width', async (browser) => {
  const page = await open(browser, makeReport('late', 4));
  await page.click('summary');
  for (const width of [400, 500, 800, 1000, 1100, 1400]) {
    await page.setViewportSize({width, height: 800});
    await page.waitForFunction(() => [...document.querySelectorAll('.scroll')].every((place) => place.scrollWidth <= place.clientWidth));
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert(over <= 0, `${over} pixels too wide at ${width}`);
    const names = (await page.getAttribute('#timeline', 'data-names')).split('|');
    assert(names.includes('compute') && names.includes('reduce world'), `${width}: ${names}`);
    const heights = await page.$$eval('.chart text, .curves text', (all) => all.map((text) => text.getBoundingClientRect().height));
    assert(heights.length > 5 && heights.every((height) => height > 10 && height < 20), `${width}: ${heights}`);
  }
  // There is room for tables again: they stand side by side as soon as the page has seen its new width.
  await page.waitForFunction(() => document.querySelectorAll('.stacked').length === 0);
  await page.setViewportSize({width: 400, height: 800});
  await page.waitForFunction(() => document.querySelectorAll('.stacked').length === 4);
  assert.strictEqual(await page.$eval('#ranks td', (cell) => getComputedStyle(cell, '::before').content), '"rank"');
});

main();
