// `tutti show pipeline --html` in a real browser: every schedule is drawn whole, and says what it waits for.
const assert = require('node:assert/strict');
const {promise, makePage, open, main} = require('./browser.js');

const OPS = {gpipe: 2, '1f1b': 2, interleaved: 2 * 2, 'zb-h1': 3};
const page4x6 = (schedule) => makePage('pipeline', '--schedule', schedule, '--stages', '4', '--micro-batches', '6', '--transfer', '200us');

promise('opens_with_the_schedule_that_was_asked_for_and_without_a_complaint', async (browser) => {
  const page = await open(browser, page4x6('zb-h1'));
  assert.match(await page.textContent('#title'), /zb-h1 on 4 stages, 6 micro-batches/);
  assert.equal(await page.locator('.tile').count(), 5);
  assert.deepEqual(page.complaints, []);
});

promise('every_schedule_is_drawn_with_all_its_ops_in_their_rows', async (browser) => {
  const page = await open(browser, page4x6('1f1b'));
  for (const [schedule, ops] of Object.entries(OPS)) {
    await page.selectOption('#schedule', schedule);
    const cells = await page.$$eval('#picture .cell', (all) => all.map((cell) => ({...cell.dataset})));
    assert.equal(cells.length, 4 * 6 * ops, schedule);
    for (const rank of ['0', '1', '2', '3'])
      assert.equal(cells.filter((cell) => cell.rank === rank).length, 6 * ops);
    const bound = await page.$eval('#picture', (picture) => +picture.getAttribute('width'));
    const right = await page.$$eval('#picture .cell rect', (all) => Math.max(...all.map((box) => +box.getAttribute('x') + +box.getAttribute('width'))));
    assert.ok(right <= bound, `${schedule} ends at ${right} of ${bound}`);
  }
  assert.deepEqual(page.complaints, []);
});

promise('a_cell_shows_what_it_waits_for', async (browser) => {
  const page = await open(browser, page4x6('1f1b'));
  await page.hover('.cell[data-op="forward"][data-rank="2"][data-micro-batch="1"]');
  const needed = await page.$$eval('.cell.needed', (all) => all.map((cell) => ({...cell.dataset})));
  assert.deepEqual(needed.map(({op, rank, microBatch}) => [op, rank, microBatch]), [['forward', '1', '1']]);
  assert.match(await page.textContent('#told'), /needs forward on stage 1\./);
  await page.hover('.cell[data-op="backward"][data-rank="1"][data-micro-batch="0"]');
  assert.equal(await page.locator('.cell.needed').count(), 2);
});

promise('the_table_leads_to_each_schedule', async (browser) => {
  const page = await open(browser, page4x6('1f1b'));
  await page.click('#all button:text-is("gpipe")');
  assert.match(await page.textContent('#title'), /^gpipe/);
  assert.equal(await page.getAttribute('#all tr[aria-selected="true"] td:nth-child(2)', 'class'), 'number');
  assert.equal(await page.inputValue('#schedule'), 'gpipe');
});

main();
