'use strict';
// One streamed request to /v1/chat/completions.

function requestHeaders(settings) {
  const headers = { 'Content-Type': 'application/json' };
  if (settings.api_key) headers.Authorization = `Bearer ${settings.api_key}`;
  return headers;
}

// The body, with only what the settings say: what is left out is the server's to choose.
function requestBody(settings, messages) {
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  for (const name of ['temperature', 'top_p', 'max_tokens', 'seed']) {
    if (settings[name] !== null) body[name] = settings[name];
  }
  if (settings.tools) body.tools = settings.tools;
  body.chat_template_kwargs = { enable_thinking: settings.thinking };
  return body;
}

// The data of server-sent events, as they come. Comment lines are skipped.
async function* serverEvents(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    let end;
    while ((end = held.search(/\r?\n\r?\n/)) >= 0) {
      const event = held.slice(0, end);
      held = held.slice(end).replace(/^\r?\n\r?\n/, '');
      const data = event.split(/\r?\n/).filter((line) => line.startsWith('data:'));
      if (data.length > 0) yield data.map((line) => line.slice(5).trimStart()).join('\n');
    }
  }
}

async function messageOfError(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text.slice(0, 300) || response.statusText;
  }
}

// Adds to a call by its index in the answer.
function takeCall(node, delta) {
  node.tool_calls ??= [];
  const call = (node.tool_calls[delta.index] ??= { id: '', name: '', arguments: '' });
  if (delta.id) call.id = delta.id;
  if (delta.function?.name) call.name += delta.function.name;
  if (delta.function?.arguments) call.arguments += delta.function.arguments;
}

// Fills `node` with content, reasoning, tool_calls, finish_reason, usage and timings; calls `changed`
// after every event. Throws an Error with the server's message, or an AbortError once `signal` says so.
async function complete(node, settings, messages, signal, changed) {
  const started = performance.now();
  const response = await fetch('/v1/chat/completions', {
    method: 'POST',
    headers: requestHeaders(settings),
    body: JSON.stringify(requestBody(settings, messages)),
    signal,
  });
  if (!response.ok) {
    const error = new Error(await messageOfError(response));
    error.status = response.status;
    throw error;
  }
  for await (const data of serverEvents(response.body)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    if (chunk.usage) node.usage = chunk.usage;
    if (chunk.timings) node.timings = chunk.timings;
    for (const choice of chunk.choices) {
      const delta = choice.delta ?? {};
      if ((delta.content || delta.reasoning_content || delta.tool_calls) && node.first_ms === undefined) {
        node.first_ms = performance.now() - started;
      }
      if (delta.reasoning_content) node.reasoning = (node.reasoning ?? '') + delta.reasoning_content;
      if (delta.content) node.content += delta.content;
      for (const call of delta.tool_calls ?? []) takeCall(node, call);
      if (choice.finish_reason) node.finish_reason = choice.finish_reason;
    }
    changed();
  }
  throw new Error('the connection ended before the answer did');
}
