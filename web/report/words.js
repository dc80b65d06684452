// Numbers as people read them, and small pieces of the page.

const $ = (id) => document.getElementById(id);

// Microseconds with a fitting unit.
function time(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  if (size >= 1e3) return `${(us / 1e3).toFixed(size >= 1e5 ? 0 : size >= 1e4 ? 1 : 2)} ms`;
  if (size >= 1) return `${us.toFixed(size >= 100 ? 0 : 1)} µs`;
  return us === 0 ? '0' : `${Math.round(us * 1000)} ns`;
}

function percent(share) { return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`; }

function plain(value) {
  const size = Math.abs(value);
  if (size >= 1e4) return Math.round(value).toLocaleString('en-US');
  if (size >= 100) return value.toFixed(1);
  if (size >= 1 || size === 0) return value.toFixed(3).replace(/\.?0+$/, '');
  return value.toPrecision(3);
}

// element('td', {class: 'number'}, 'text', child…)
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// Round figures from `low` to `high`, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const list = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) list.push(at);
  return list;
}

function legend(place, entries) {
  for (const [name, word] of entries) {
    const mark = element('i');
    mark.style.background = `var(${name})`;
    place.append(element('span', {}, mark, word));
  }
}
