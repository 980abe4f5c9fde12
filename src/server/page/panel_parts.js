'use strict';
// Pieces of the live panel: each takes numbers of GET /state and gives back DOM nodes.

const kColours = ['var(--state)', 'var(--record)', 'var(--reused)', 'var(--output)', '#0c8599', '#e64980', '#5c940d', '#a0522d', '#868e96'];

function svgElement(tag, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function coloured(tag, colour, width) {
  const node = element(tag);
  node.style.background = colour;
  if (width !== undefined) node.style.width = `${width}%`;
  return node;
}

function byteText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; ++unit; }
  return `${unit === 0 || bytes >= 100 ? bytes.toFixed(0) : bytes >= 10 ? bytes.toFixed(1) : bytes.toFixed(2)} ${units[unit]}`;
}

function countText(number) {
  if (number >= 1e6) return `${(number / 1e6).toFixed(2)} M`;
  if (number >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return String(Math.round(number));
}

function tile(value, name) { return element('div', { class: 'tile' }, element('b', {}, value), element('span', {}, name)); }

function meter(name, parts, total, text) {
  const bar = element('div', { class: 'stack' });
  for (const [count, colour] of parts) bar.append(coloured('i', colour, total > 0 ? (100 * count) / total : 0));
  return element('div', { class: 'meter' }, element('span', {}, name), bar, element('span', {}, text));
}

function fact(name, value) { return element('div', {}, element('dt', {}, name), element('dd', {}, String(value))); }

// Cells for the records of a ring: as many as a block has, more while a verified window waits.
function ringView(pending, block, folded) {
  const ring = element('div', { class: folded ? 'ring folded' : 'ring', role: 'img', 'aria-label': `${pending} of ${block} records pending` });
  for (let i = 0; i < Math.max(block, pending); ++i) ring.append(element('i', { class: i < pending ? 'full' : '' }));
  return ring;
}

// From position 0 to t: what is folded (reused, evaluated or chosen), then the records.
function depthView(sequence) {
  const bar = element('div', { class: 'depths', role: 'img',
    'aria-label': `checkpoint at ${sequence.checkpoint}, ${sequence.committed} tokens committed` });
  const total = Math.max(sequence.committed, sequence.prompt_tokens, 1);
  const c = sequence.checkpoint;
  const reused = Math.min(sequence.cached_tokens, c);
  const part = (tokens, colour) => bar.append(coloured('i', colour, (100 * tokens) / total));
  part(reused, 'var(--reused)');
  part(c - reused, 'var(--state)');
  part(sequence.committed - c, 'var(--record)');
  return bar;
}

// `folded`: c has moved since the last look. `ended`: the request is over, these were its last numbers.
function sequenceView(sequence, replay, folded, ended) {
  const shared = sequence.slot === null ? 'no slot' : `slot ${sequence.slot} ${sequence.slot_shared ? 'shared' : 'own'}`;
  const top = element('div', { class: 'top' },
    element('b', {}, `Request ${sequence.id}${sequence.choice > 0 ? `, choice ${sequence.choice}` : ''}`),
    element('span', {},
      element('span', { class: sequence.slot_shared && !ended ? 'badge shared' : 'badge' }, shared), ' ',
      element('span', { class: `badge ${ended ? '' : sequence.phase}` }, ended ? 'ended' : sequence.phase)));
  const view = element('article', { class: ended ? 'sequence ended' : 'sequence', 'data-sequence': `${sequence.id}.${sequence.choice}` }, top);
  if (replay.enabled) view.append(ringView(sequence.pending, replay.fold_block, folded));
  view.append(depthView(sequence), element('dl', {},
    fact('checkpoint c', sequence.checkpoint), fact('committed t', sequence.committed),
    fact('pending', `${sequence.pending} of ${replay.fold_block}`), fact('last fold', sequence.last_fold > 0 ? `at t = ${sequence.last_fold}` : 'none'),
    fact('prompt', sequence.prompt_tokens), fact('reused', sequence.cached_tokens), fact('output', sequence.output_tokens)));
  return view;
}

// One mark an entry over its depth; entries of about one depth stand on each other.
function cachePlot(svg, entries) {
  const width = 400, base = 58, step = 7;
  const deepest = Math.max(64, ...entries.map((entry) => entry.depth));
  const marks = [svgElement('line', { class: 'axis', x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5 })];
  const heights = new Map();
  for (const entry of [...entries].sort((a, b) => a.depth - b.depth)) {
    const column = Math.round((entry.depth / deepest) * ((width - 8) / 8));
    const height = heights.get(column) ?? 0;
    heights.set(column, height + 1);
    if (height >= 8) continue;  // the text below counts them all
    const mark = svgElement('rect', { class: entry.on_host ? 'host' : entry.with_records ? 'with' : 'without',
      x: column * 8, y: base - 6 - height * step, width: 6, height: 6, rx: 1.5 });
    mark.append(svgElement('title', {}, `depth ${entry.depth}, checkpoint ${entry.checkpoint}, ${entry.with_records ? 'with records' : 'checkpoint only'}${entry.on_host ? ', in host memory' : ''}`));
    marks.push(mark);
  }
  marks.push(svgElement('text', { x: 0, y: base + 14 }, '0'),
    svgElement('text', { x: width, y: base + 14, 'text-anchor': 'end' }, `${deepest} tokens deep`));
  svg.replaceChildren(...marks);
}

// Tokens a second, oldest first.
function sparkline(svg, rates) {
  const width = 240, height = 36, most = Math.max(1, ...rates);
  const points = rates.map((rate, i) => `${((i / Math.max(1, rates.length - 1)) * width).toFixed(1)},${(height - 2 - (rate / most) * (height - 6)).toFixed(1)}`);
  if (points.length < 2) return svg.replaceChildren();
  svg.replaceChildren(svgElement('path', { class: 'area', d: `M0,${height} L${points.join(' L')} L${width},${height} Z` }),
    svgElement('path', { d: `M${points.join(' L')}` }));
}

function planView(bar, legend, plan) {
  const lines = plan.lines.filter((line) => line.bytes > 0).map((line, i) => ({ ...line, colour: kColours[i % kColours.length] }));
  const whole = Math.max(plan.budget, plan.used, 1);
  bar.replaceChildren(...lines.map((line) => coloured('i', line.colour, (100 * line.bytes) / whole)));
  bar.setAttribute('aria-label', lines.map((line) => `${line.name} ${byteText(line.bytes)}`).join(', '));
  legend.replaceChildren(...lines.map((line) =>
    element('li', { title: line.note || line.name }, coloured('i', line.colour), element('span', {}, line.name), element('b', {}, byteText(line.bytes)))));
}
