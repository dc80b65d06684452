// The page of `tutti show redistribute` in a real browser.
const assert = require('node:assert');
const {promise, open, main, makePage} = require('./browser.js');

const NESTED = ['redistribute', '--mesh', 'dp=2,tp=4', '--shape', '1024x4096', '--from', 'partial,shard(0)', '--to',
  'shard(0),shard(0)', '--hosts', '2'];

promise('every_state_shows_what_each_rank_holds', async (browser) => {
  const page = await open(browser, makePage(...NESTED));
  assert.deepEqual(page.complaints, []);
  const states = await page.$$eval('.state', (all) => all.map((state) =>
    [...state.querySelectorAll('.rank')].map((rank) => [rank.dataset.rank, rank.dataset.box])));
  const steps = await page.$$eval('.move', (all) => all.length);
  assert.equal(states.length, steps + 1);
  for (const state of states) assert.equal(state.length, 8);
  assert.deepEqual(states[0][5], ['5', '[256..511, 0..4095]']);
  assert.deepEqual(states.at(-1)[7], ['7', '[896..1023, 0..4095]']);
  const striped = await page.$$eval('.state', (all) => all.map((state) => state.querySelectorAll('.stripes').length));
  assert.equal(striped[0], 8);
  assert.equal(striped.at(-1), 0);
});

promise('the_other_chain_can_be_looked_at', async (browser) => {
  const page = await open(browser, makePage(...NESTED));
  await page.click('#naive');
  const words = await page.$$eval('.move strong', (all) => all.map((each) => each.textContent));
  assert.deepEqual(words, ['all_gather tp', 'reduce_scatter dp', 'slice tp']);
  assert.equal(await page.getAttribute('#naive', 'aria-pressed'), 'true');
  const widths = await page.$$eval('.bar', (all) => all.map((bar) => bar.getBoundingClientRect().width));
  assert.ok(widths[0] < widths[1], `${widths}`);
});

promise('dark_and_light_change_places', async (browser) => {
  const page = await open(browser, makePage(...NESTED));
  const before = await page.textContent('#theme-word');
  await page.click('#theme');
  assert.notEqual(await page.textContent('#theme-word'), before);
  assert.deepEqual(page.complaints, []);
});

main();
