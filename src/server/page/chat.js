'use strict';
// The chat: settings, messages, and what the person does with them.

const byId = (id) => document.getElementById(id);
const kExamples = ['What is 345 + 278?', 'Count from 7 to 12', 'Please sort these words: pear, apple, fig, lemon', 'Tell me about yourself.'];
const kNumbers = ['temperature', 'top_p', 'max_tokens', 'seed'];
const kStored = 'replayssm-conversation';
const kStoredSettings = 'replayssm-settings';

let conversation = new Conversation();
let running = null;  // { node, abort } while an answer comes

// Storage can be switched off, full, or hold what another version wrote.
function stored(name) {
  try { return JSON.parse(localStorage.getItem(name)); } catch { return null; }
}
function store(name, value) {
  try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* the page works without */ }
}

// --- settings

const settingInputs = [...kNumbers, 'system', 'tools', 'thinking'];

// The key is not kept: it lives as long as the page.
function loadSettings() {
  const saved = stored(kStoredSettings) ?? {};
  for (const name of settingInputs) {
    if (name === 'thinking') byId(name).checked = saved[name] === true;
    else if (typeof saved[name] === 'string') byId(name).value = saved[name];
  }
}

function saveSettings() {
  const saved = {};
  for (const name of settingInputs) saved[name] = name === 'thinking' ? byId(name).checked : byId(name).value;
  store(kStoredSettings, saved);
  readTools();
}

// null: none. Shows what is wrong beside the field and throws.
function readTools() {
  const text = byId('tools').value.trim();
  byId('tools-error').textContent = '';
  if (text === '') return null;
  try {
    const tools = JSON.parse(text);
    if (!Array.isArray(tools)) throw new Error('expected an array');
    return tools;
  } catch (error) {
    byId('tools-error').textContent = `Tools: ${error.message}`;
    return undefined;
  }
}

// undefined where something is wrong with them.
function readSettings() {
  const settings = { system: byId('system').value, api_key: byId('api_key').value, thinking: byId('thinking').checked };
  for (const name of kNumbers) {
    const input = byId(name);
    if (!input.checkValidity()) {
      openSettings(true);
      input.reportValidity();
      return undefined;
    }
    settings[name] = input.value === '' ? null : Number(input.value);
  }
  settings.tools = readTools();
  if (settings.tools === undefined) {
    openSettings(true);
    return undefined;
  }
  return settings;
}

function openSettings(open) {
  byId('settings').hidden = !open;
  byId('settings-open').setAttribute('aria-expanded', String(open));
}

const kThemes = { auto: 'Auto', light: 'Light', dark: 'Dark' };
function showTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId('theme').textContent = kThemes[theme];
  byId('theme').setAttribute('aria-label', `Theme: ${theme === 'auto' ? 'as the system' : theme}`);
  store('replayssm-theme', theme);
}

// --- messages

function smallButton(text, label, act) {
  return element('button', { type: 'button', class: 'small', 'aria-label': label, disabled: running !== null, onclick: act }, text);
}

// Which of several branches is shown, with a step to either side.
function branchSwitch(node) {
  const parent = conversation.parentOf(node);
  const count = parent.children.length;
  if (count < 2) return null;
  const step = (by) => () => {
    parent.shown = (parent.shown + by + count) % count;
    changedConversation();
  };
  return element('span', {}, smallButton('‹', 'Branch before', step(-1)), `${parent.shown + 1} of ${count}`,
    smallButton('›', 'Next branch', step(1)));
}

// Tokens, reuse and speed of an answer, as the server reports them.
function usageNodes(node) {
  const nodes = [];
  if (node.usage) {
    const details = node.usage.prompt_tokens_details ?? {};
    nodes.push(`${node.usage.completion_tokens} tokens`);
    if (details.cached_tokens !== undefined) {
      nodes.push(element('span', { class: 'reused' }, `${details.cached_tokens} of ${node.usage.prompt_tokens} prompt tokens reused`));
    }
    if (details.cached_tokens_lost > 0) nodes.push(`${details.cached_tokens_lost} lost (${details.cached_tokens_lost_reason})`);
  }
  if (node.timings?.predicted_per_second > 0) nodes.push(`${node.timings.predicted_per_second.toFixed(0)} tokens/s`);
  if (node.first_ms !== undefined) nodes.push(`first after ${node.first_ms.toFixed(0)} ms`);
  if (node.finish_reason && node.finish_reason !== 'stop') nodes.push(`ended: ${node.finish_reason}`);
  return nodes.map((each) => (typeof each === 'string' ? element('span', {}, each) : each));
}

function prettyJson(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

// A call with a field for what the tool gave back.
function callView(node, call) {
  const view = element('div', { class: 'call' }, element('strong', {}, `${call.name}()`),
    element('pre', {}, prettyJson(call.arguments)));
  if (running?.node !== node && conversation.openCalls(node).includes(call)) {
    const result = element('input', { 'aria-label': `Result of ${call.name}`, placeholder: 'What the tool returned' });
    const give = () => answerCall(node, call, result.value);
    result.addEventListener('keydown', (event) => { if (event.key === 'Enter' && !event.isComposing) give(); });
    view.append(element('div', {}, result, element('button', { type: 'button', onclick: give }, 'Give')));
  }
  return view;
}

function fillAssistant(view, node) {
  const parts = [];
  if (node.reasoning) {
    const known = view.querySelector('details');
    parts.push(element('details', { class: 'reasoning', open: known ? known.open : node.content === '' },
      element('summary', {}, 'Reasoning'), node.reasoning.trim()));
  }
  const busy = running?.node === node;
  const body = element('div', { class: 'body' }, ...markdownNodes(node.content));
  if (busy && body.childNodes.length === 0) body.append(element('p'));
  parts.push(body);
  for (const call of (node.tool_calls ?? []).filter(Boolean)) parts.push(callView(node, call));
  const under = element('div', { class: 'under' });
  if (!busy) {
    under.append(...usageNodes(node), smallButton('Again', 'Answer again', () => answerUnder(conversation.parentOf(node))));
    const branches = branchSwitch(node);
    if (branches) under.append(branches);
  }
  parts.push(under);
  view.classList.toggle('streaming', busy);
  view.replaceChildren(...parts);
}

function fillUser(view, node) {
  view.replaceChildren(element('div', { class: 'body' }, node.content),
    element('div', { class: 'under' }, smallButton('Edit', 'Edit this message', () => editMessage(view, node)), branchSwitch(node)));
}

function editMessage(view, node) {
  const text = element('textarea', { rows: String(Math.min(12, node.content.split('\n').length + 1)), 'aria-label': 'Edited message' });
  text.value = node.content;
  const done = () => {
    if (text.value.trim() === '') return;
    answerUnder(conversation.add(conversation.parentOf(node), { role: 'user', content: text.value }));
  };
  text.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { event.stopPropagation(); fillUser(view, node); }
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); done(); }
  });
  view.replaceChildren(element('div', { class: 'edit' }, text, element('div', {},
    element('button', { type: 'button', onclick: () => fillUser(view, node) }, 'Cancel'),
    element('button', { type: 'button', onclick: done }, 'Send as a new branch'))));
  text.focus();
}

const kFill = {
  assistant: fillAssistant,
  user: fillUser,
  tool: (view, node) => view.replaceChildren(element('div', { class: 'body' }, node.content)),
};
const kSpeaker = { assistant: 'Model', user: 'You', tool: 'Tool' };

function showMessages() {
  const views = conversation.path().map((node) => {
    const view = element('article', { class: `message ${node.role}`, 'data-node': node.id, 'aria-label': kSpeaker[node.role] });
    kFill[node.role](view, node);
    return view;
  });
  if (views.length === 0) {
    views.push(element('div', { class: 'empty' }, element('h2', {}, 'Ask something'),
      element('p', {}, 'The panel shows what the engine does with it.'),
      element('div', { class: 'examples' }, ...kExamples.map((text) =>
        element('button', { type: 'button', onclick: () => ask(text) }, text)))));
  }
  byId('messages').replaceChildren(...views);
  scrollDown(true);
}

// Follows the text unless the person has scrolled up.
function scrollDown(always) {
  const list = byId('messages');
  if (always || list.scrollHeight - list.scrollTop - list.clientHeight < 120) list.scrollTop = list.scrollHeight;
}

function changedConversation() {
  showMessages();
  store(kStored, conversation.toJson());
}

// --- asking

function showRunning() {
  byId('send').hidden = running !== null;
  byId('stop').hidden = running === null;
  for (const id of ['new', 'import']) byId(id).disabled = running !== null;
}

function announce(text) { byId('announcer').textContent = text; }

// Asks for an answer below `parent`.
async function answerUnder(parent) {
  if (running) return;
  const settings = readSettings();
  if (!settings) return;
  const messages = conversation.messagesTo(parent, settings.system);
  const node = conversation.add(parent, { role: 'assistant', content: '' });
  running = { node, abort: new AbortController() };
  byId('problem').textContent = '';
  showRunning();
  showMessages();
  announce('The model answers.');
  let drawn = false;
  const draw = () => {
    drawn = false;
    const view = document.querySelector(`[data-node="${node.id}"]`);
    if (view && running?.node === node) fillAssistant(view, node);
    scrollDown(false);
  };
  try {
    await complete(node, settings, messages, running.abort.signal, () => {
      if (!drawn) requestAnimationFrame(draw);
      drawn = true;
    });
    announce(`Answer: ${node.content}`);
  } catch (error) {
    if (error.name === 'AbortError') {
      node.finish_reason = 'stopped';
      announce('Stopped.');
    } else {
      byId('problem').textContent = error.message;
      if (error.status === 401) openSettings(true);
      if (!node.content && !node.reasoning) discard(node);
    }
  }
  running = null;
  showRunning();
  changedConversation();
}

// Takes an answer that never began out of the tree. It is its newest node.
function discard(node) {
  const parent = conversation.parentOf(node);
  parent.children.pop();
  parent.shown = parent.children.length - 1;
  conversation.nodes.pop();
}

function ask(text) {
  if (running || text.trim() === '') return;
  byId('input').value = '';
  fitInput();
  answerUnder(conversation.add(conversation.last, { role: 'user', content: text }));
  byId('input').focus();
}

function answerCall(node, call, result) {
  conversation.add(conversation.last, { role: 'tool', content: result, tool_call_id: call.id });
  if (conversation.openCalls(node).length > 0) changedConversation();
  else answerUnder(conversation.last);
}

function stop() { running?.abort.abort(); }

// --- export and import

function exportConversation() {
  const text = JSON.stringify(conversation.toJson(byId('system').value), null, 2);
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  element('a', { href: url, download: 'conversation.json' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function importConversation(file) {
  try {
    const imported = Conversation.fromJson(JSON.parse(await file.text()));
    conversation = imported.conversation;
    if (imported.system !== undefined) byId('system').value = imported.system;
    saveSettings();
    byId('problem').textContent = '';
    changedConversation();
  } catch (error) {
    byId('problem').textContent = `${file.name} cannot be imported: ${error.message}`;
  }
}

// --- wiring

function fitInput() {
  const input = byId('input');
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
}

function showEngine(engine) {
  document.body.classList.toggle('engine-view', engine);
  byId('show-chat').setAttribute('aria-pressed', String(!engine));
  byId('show-engine').setAttribute('aria-pressed', String(engine));
}

function startChat() {
  loadSettings();
  const theme = stored('replayssm-theme');
  showTheme(theme in kThemes ? theme : 'auto');
  try { conversation = Conversation.fromJson(stored(kStored)).conversation; } catch { /* none, or another version's */ }
  byId('input').addEventListener('input', fitInput);
  byId('input').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask(byId('input').value);
  });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') stop(); });
  byId('send').addEventListener('click', () => ask(byId('input').value));
  byId('stop').addEventListener('click', stop);
  byId('new').addEventListener('click', () => { conversation.clear(); changedConversation(); byId('input').focus(); });
  byId('export').addEventListener('click', exportConversation);
  byId('import').addEventListener('click', () => byId('import-file').click());
  byId('import-file').addEventListener('change', (event) => {
    if (event.target.files[0]) importConversation(event.target.files[0]);
    event.target.value = '';
  });
  byId('settings-open').addEventListener('click', () => openSettings(byId('settings').hidden));
  byId('settings').addEventListener('input', saveSettings);
  byId('theme').addEventListener('click', () => {
    const names = Object.keys(kThemes);
    showTheme(names[(names.indexOf(document.documentElement.dataset.theme ?? 'auto') + 1) % names.length]);
  });
  byId('show-chat').addEventListener('click', () => showEngine(false));
  byId('show-engine').addEventListener('click', () => showEngine(true));
  showMessages();
  byId('input').focus();
}

startChat();
