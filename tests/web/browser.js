// What the tests of pages share: a browser, pages made by the tool, and a list of promises.
const {chromium} = require('playwright-core');
const {execFileSync} = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const TOOL = process.env.TUTTI_TOOL;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tutti-web-'));
const promises = [];

// promise('play_moves_chunks', async (browser) => …)
function promise(name, body) { promises.push({name, body}); }

// Runs `tutti words… --html FILE` and returns the file's path.
function makePage(...words) {
  const file = path.join(folder, `${words.join('_').replace(/[^a-z0-9_]/g, '')}.html`);
  if (!fs.existsSync(file)) execFileSync(TOOL, ['show', ...words, '--html', file]);
  return file;
}

// Opens a file; whatever the page complains about, or asks the network for, is kept.
async function open(browser, file, options) {
  const context = await browser.newContext({viewport: {width: 1300, height: 900}, ...options});
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) page.complaints.push(message.text());
  });
  page.on('pageerror', (error) => page.complaints.push(error.message));
  page.on('request', (request) => {
    if (!/^(file|data):/.test(request.url())) page.complaints.push(`asks for ${request.url()}`);
  });
  await page.goto(`file://${file}`);
  return page;
}

// Only against hangs.
const LIMIT_MS = 120000;

function within(time, work) {
  return Promise.race([work, new Promise((_, fail) => {
    setTimeout(() => fail(new Error(`took longer than ${time / 1000} s`)), time).unref();
  })]);
}

async function main() {
  const browser = await chromium.launch({executablePath: process.env.CHROMIUM, args: ['--no-sandbox']});
  let failures = 0;
  for (const {name, body} of promises) {
    const began = Date.now();
    try {
      await within(LIMIT_MS, body(browser));
      console.log(`ok      ${name} (${Date.now() - began} ms)`);
    } catch (error) {
      ++failures;
      console.log(`FAILED  ${name}: ${error.stack}`);
    }
    for (const context of browser.contexts()) await context.close();
  }
  await browser.close();
  fs.rmSync(folder, {recursive: true});
  process.exit(failures === 0 ? 0 : 1);
}

module.exports = {promise, makePage, open, main, folder};
