'use strict';
// The live panel: asks GET /state again and again and shows what has changed.

const kFastMs = 200;   // while something runs
const kSlowMs = 1000;  // while nothing does
const kRateSamples = 60;
const kEndedShown = 3;

const panel = {
  before: null,      // { at, counters } of the last look
  checkpoints: new Map(),  // by sequence: its c at the last look
  ended: [],         // newest first
  alive: new Map(),  // sequences of the last look
  rates: [],
  rateFrom: null,
};

const keyOf = (sequence) => `${sequence.id}.${sequence.choice}`;

function noteRate(state, now) {
  const tokens = state.counters.generation_tokens;
  panel.rateFrom ??= { now, tokens };
  const seconds = (now - panel.rateFrom.now) / 1000;
  if (seconds < 1) return;
  panel.rates.push(Math.max(0, tokens - panel.rateFrom.tokens) / seconds);
  if (panel.rates.length > kRateSamples) panel.rates.shift();
  panel.rateFrom = { now, tokens };
}

function showLoad(state) {
  const rate = panel.rates.at(-1) ?? 0;
  byId('tiles').replaceChildren(tile(String(state.running), 'running'), tile(String(state.waiting + state.paused), 'waiting'),
    tile(countText(rate), 'tokens/s'), tile(countText(state.counters.steps), 'steps'));
  sparkline(byId('sparkline'), panel.rates);
}

function showSequences(state) {
  const now = new Map(state.sequences.map((sequence) => [keyOf(sequence), sequence]));
  for (const [key, sequence] of panel.alive) if (!now.has(key)) panel.ended.unshift(sequence);
  panel.ended.length = Math.min(panel.ended.length, kEndedShown);
  const views = state.sequences.map((sequence) => {
    const known = panel.checkpoints.get(keyOf(sequence));
    return sequenceView(sequence, state.replay, known !== undefined && known < sequence.checkpoint, false);
  });
  const room = Math.max(0, kEndedShown - views.length);
  for (const sequence of panel.ended.slice(0, room)) views.push(sequenceView(sequence, state.replay, false, true));
  if (views.length === 0) views.push(element('p', { class: 'note' }, 'Nothing runs. Each request shows its ring here: one cell a record, folded into the state a block at a time.'));
  byId('sequences').replaceChildren(...views);
  byId('ring-note').textContent = state.replay.enabled ? `fold block L = ${state.replay.fold_block}` : 'replay is off';
  panel.alive = now;
  panel.checkpoints = new Map(state.sequences.map((sequence) => [keyOf(sequence), sequence.checkpoint]));
}

// Each decoded token would write the whole state without the ring; a fold does so once a block.
function showTraffic(state) {
  const { counters, replay } = state;
  const tokens = counters.decode_rows + counters.speculation.drafts_accepted.reduce((sum, each) => sum + each, 0);
  const each = tokens * replay.state_bytes;
  const written = replay.enabled ? counters.folds.due * replay.state_bytes : each;
  const share = each > 0 ? (100 * written) / each : 0;
  byId('traffic').replaceChildren(
    meter('written', [[written, 'var(--state)']], each, byteText(written)),
    meter('every token', [[each, 'var(--evaluated)']], each, byteText(each)),
    element('p', { class: 'note' }, each > 0
      ? `${share.toFixed(1)} % of what a write per token would have written: ${countText(counters.folds.due)} folds of ${byteText(replay.state_bytes)} in ${countText(tokens)} decoded tokens.`
      : 'Nothing has been decoded yet.'));
}

function showCache(state) {
  const { entries } = state.cache;
  cachePlot(byId('cache-plot'), entries);
  const { prefix_hits: hits, prefix_queries: queries, prefix_tokens_lost: lost } = state.counters;
  const losses = Object.entries(lost).filter(([, tokens]) => tokens > 0).map(([reason, tokens]) => `${countText(tokens)} ${reason}`);
  byId('cache-note').textContent = state.replay.prefix_cache ? `${entries.length} entries` : 'off';
  const kinds = `${entries.filter((entry) => entry.with_records).length} with records, ${entries.filter((entry) => entry.on_host).length} in host memory.`;
  byId('cache-plot').setAttribute('aria-label', `Cache entries by depth: ${entries.length}, ${kinds}`);
  byId('cache-text').textContent = `${queries > 0 ? `${countText(hits)} of ${countText(queries)} prompt tokens reused (${((100 * hits) / queries).toFixed(0)} %)` : 'Nothing looked up yet'}${losses.length ? `; evaluated again: ${losses.join(', ')}` : ''}.`;
}

function showPools(state) {
  const { slots, pages, rows } = state;
  const text = (pool) => `${pool.used} of ${pool.total}`;
  byId('pools').replaceChildren(
    meter('state slots', [[slots.used - slots.reserved, 'var(--state)'], [slots.reserved, 'var(--evaluated)']], slots.total,
      slots.reserved > 0 ? `${text(slots)}, ${slots.reserved} homes` : text(slots)),
    meter('KV pages', [[pages.used, 'var(--output)']], pages.total, text(pages)),
    meter('ring rows', [[rows.used, 'var(--record)']], rows.total, text(rows)));
}

function showPlan(state) {
  const plan = state.memory_plan;
  byId('plan-note').textContent = `${byteText(plan.used)} of ${byteText(plan.budget)}, ${plan.requests} requests`;
  planView(byId('plan-bar'), byId('plan-legend'), plan);
}

function showState(state) {
  noteRate(state, performance.now());
  byId('model').textContent = state.model.id;
  byId('model').title = `${state.model.type}: ${state.model.layers.linear} linear and ${state.model.layers.attention} attention layers, context of ${state.model.context_length} tokens`;
  for (const show of [showLoad, showSequences, showTraffic, showCache, showPools, showPlan]) show(state);
}

function showHealth(good, text) {
  byId('health').className = `health ${good ? 'good' : 'bad'}`;
  if (byId('health').textContent !== text) byId('health').textContent = text;
  byId('engine').classList.toggle('stale', !good);
}

async function lookOnce() {
  const key = byId('api_key').value;
  const response = await fetch('/state', { headers: key ? { Authorization: `Bearer ${key}` } : {}, cache: 'no-store' });
  if (response.status === 401) {
    showHealth(false, 'an API key is needed: see Settings');
    return kSlowMs;
  }
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  const state = await response.json();
  showState(state);
  showHealth(true, 'live');
  return state.sequences.length > 0 ? kFastMs : kSlowMs;
}

async function watch() {
  let wait = kSlowMs;
  try {
    if (!document.hidden) wait = await lookOnce();
  } catch {
    showHealth(false, 'the server does not answer');
  }
  // An answer that comes is worth looking at even before the engine lists it.
  setTimeout(watch, running ? kFastMs : wait);
}

watch();
