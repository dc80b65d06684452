// words.js - numbers and sets as people read them.

function bytesWord(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; ++unit; }
  return `${Number(bytes.toPrecision(3))} ${units[unit]}`;
}

function secondsWord(seconds) {
  if (seconds === 0) return '0 s';
  const units = [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns'], [1e-12, 'ps']];
  const [size, name] = units.find(([least]) => seconds >= least * 0.9995) || units[units.length - 1];
  const value = seconds / size;
  return `${value >= 100 ? value.toFixed(0) : value.toPrecision(3)} ${name}`;
}

function ranksIn(bits) {
  const ranks = [];
  for (let rank = 0; rank < 32; ++rank) if ((bits >>> rank) & 1) ranks.push(rank);
  return ranks;
}

// "0–3, 6"
function ranksWord(bits) {
  const ranks = ranksIn(bits), parts = [];
  for (let i = 0; i < ranks.length;) {
    let j = i;
    while (j + 1 < ranks.length && ranks[j + 1] === ranks[j] + 1) ++j;
    parts.push(j === i ? `${ranks[i]}` : j === i + 1 ? `${ranks[i]}, ${ranks[j]}` : `${ranks[i]}–${ranks[j]}`);
    i = j + 1;
  }
  return parts.join(', ') || 'nobody';
}

function contributions(bits) {
  const one = ranksIn(bits).length === 1;
  return `rank${one ? '' : 's'} ${ranksWord(bits)}`;
}

function countWord(count, one) {
  return `${count} ${one}${count === 1 ? '' : 's'}`;
}

// "14/8·", "2·", "": a share of the message as a factor.
function shareWord(count, parts) {
  if (count === parts) return '';
  return count % parts === 0 ? `${count / parts}·` : `${count}/${parts}·`;
}

// "chunk 3", "chunks 2–3": which pieces of the message these are.
function chunksWord(contents) {
  const extents = contents.map((content) => content.extent);
  const [first, last] = [extents[0], extents[extents.length - 1]];
  const run = extents.every((extent, i) => extent === first + i);
  if (extents.length === 1) return `chunk ${first}`;
  return run ? `chunks ${first}–${last}` : `chunks ${extents.join(', ')}`;
}

function messageWord(message) {
  const way = `${message.from} → ${message.to}`;
  if (message.contents.length === 0 || message.contents.every((content) => content.from === 0))
    return `${way}: has heard of ${contributions(message.heard)}`;
  const same = message.contents.every((content) => content.from === message.contents[0].from);
  return `${way}: ${chunksWord(message.contents)}` +
    (same ? `, from ${contributions(message.contents[0].from)}` : '');
}

function stepWord(step) {
  const parts = [];
  if (step.messages.length > 0) {
    const shown = step.messages.slice(0, 4).map(messageWord).join('; ');
    const rest = step.messages.length - 4;
    parts.push(`${countWord(step.messages.length, 'message')}. ${shown}${rest > 0 ? `; and ${rest} more` : ''}.`);
  } else {
    parts.push('No messages.');
  }
  if (step.folds.length > 0) {
    const ranks = new Set(step.folds.map((fold) => fold.rank)).size;
    parts.push(`${countWord(ranks, 'rank')} fold${ranks === 1 ? 's' : ''} what came.`);
  }
  return parts.join(' ');
}
