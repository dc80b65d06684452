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

function sentence(words) { return words.charAt(0).toUpperCase() + words.slice(1); }

// "14/8·", "2·", "": a share of the message as a factor.
function shareWord(count, parts) {
  if (count === parts) return '';
  if (parts === 1) return `${count}·`;
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

// "2 takes chunk 3 from the window of 1".
function touchWord({verb, by, from, to, cells, contents, share}, ranks) {
  const place = (rank, cell) => (rank === by ? 'its ' : 'the ') + SPACES[ranks[rank].cells[cell][0]] +
    (rank === by ? '' : ` of ${rank}`);
  const part = share < 1 ? `${Number(share.toPrecision(2))} of ` : '';
  const way = ['takes', 'folds'].includes(verb) ? `from ${place(from, cells[0])}`
    : `${['shows', 'keeps'].includes(verb) ? 'in' : 'into'} ${place(to, cells[1])}`;
  return `${by} ${verb} ${part}chunk ${contents[0].extent} ${way}`;
}

function firstFew(list, word) {
  const rest = list.length - 4;
  return `${list.slice(0, 4).map(word).join('; ')}${rest > 0 ? `; and ${rest} more` : ''}.`;
}

function stepWord(step, word) {
  if (step.meets) return 'All ranks meet.';
  if (step.own) return `${sentence(step.name)}. ${firstFew([...step.messages, ...step.own], word)}`;
  const parts = [];
  if (step.messages.length > 0)
    parts.push(`${countWord(step.messages.length, 'message')}. ${firstFew(step.messages, word)}`);
  else
    parts.push('No messages.');
  if (step.folds.length > 0) {
    const ranks = new Set(step.folds.map((fold) => fold.rank)).size;
    parts.push(`${countWord(ranks, 'rank')} fold${ranks === 1 ? 's' : ''} what came.`);
  }
  return parts.join(' ');
}
