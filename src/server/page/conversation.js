'use strict';
// The conversation: a tree, because editing a message or asking again opens another branch and loses
// nothing. Kept in the browser's storage, exported and imported as JSON.

const kFormat = 'replayssm-conversation-1';
const kRoles = ['user', 'assistant', 'tool'];

class Conversation {
  constructor() { this.clear(); }

  clear() {
    this.nodes = [{ id: 0, parent: null, children: [], shown: -1 }];  // nodes[0]: above the first message
  }

  // A child of `parent`, which becomes the shown one. `message`: role, content, reasoning, tool_calls, ..
  add(parent, message) {
    const node = { ...message, id: this.nodes.length, parent: parent.id, children: [], shown: -1 };
    this.nodes.push(node);
    parent.shown = parent.children.push(node.id) - 1;
    return node;
  }

  get root() { return this.nodes[0]; }
  parentOf(node) { return this.nodes[node.parent]; }

  // What is shown: from the first message to the end of the branch.
  path() {
    const found = [];
    for (let node = this.root; node.shown >= 0;) {
      node = this.nodes[node.children[node.shown]];
      found.push(node);
    }
    return found;
  }
  get last() { return this.path().at(-1) ?? this.root; }

  // Messages of the API down to `node`, itself included.
  messagesTo(node, system) {
    const messages = [];
    for (let at = node; at.parent !== null; at = this.parentOf(at)) messages.unshift(apiMessage(at));
    if (system) messages.unshift({ role: 'system', content: system });
    return messages;
  }

  // Tool calls of `node` that no message below it has answered.
  openCalls(node) {
    const answered = new Set(this.path().filter((each) => each.role === 'tool').map((each) => each.tool_call_id));
    return (node.tool_calls ?? []).filter((call) => !answered.has(call.id));
  }

  toJson(system) {
    const nodes = this.nodes.slice(1).map(({ id, parent, role, content, reasoning, tool_calls, tool_call_id, usage, finish_reason }) =>
      ({ id, parent, role, content, reasoning, tool_calls, tool_call_id, usage, finish_reason }));
    return { format: kFormat, messages: this.messagesTo(this.last, system), shown: this.path().map((node) => node.id), nodes };
  }

  // Takes an export, {"messages": [..]} or a bare array of messages; returns its system prompt, if any.
  // Throws an Error that names what is wrong, and leaves the conversation as it was.
  static fromJson(json) {
    const made = new Conversation();
    const messages = Array.isArray(json) ? json : json?.messages;
    let system;
    if (json?.format === kFormat && Array.isArray(json.nodes)) {
      for (const [index, node] of json.nodes.entries()) {
        if (!Number.isInteger(node?.parent) || node.parent < 0 || node.parent > index) {
          throw new Error(`nodes[${index}].parent: expected the id of an earlier node`);
        }
        made.add(made.nodes[node.parent], checkedMessage(node, `nodes[${index}]`));
      }
      for (const id of json.shown ?? []) {
        const node = made.nodes[id];
        if (node && node.parent !== null) made.parentOf(node).shown = made.parentOf(node).children.indexOf(node.id);
      }
      system = messages?.[0]?.role === 'system' ? messages[0].content : undefined;
    } else if (Array.isArray(messages)) {
      for (const [index, message] of messages.entries()) {
        if (index === 0 && message?.role === 'system') system = textOf(message.content, 'messages[0].content');
        else made.add(made.last, checkedMessage(message, `messages[${index}]`));
      }
    } else {
      throw new Error('expected an exported conversation, or an array of messages');
    }
    return { conversation: made, system };
  }
}

function textOf(content, name) {
  if (content === null || content === undefined) return '';
  if (typeof content === 'string') return content;
  if (Array.isArray(content) && content.every((part) => typeof part?.text === 'string')) {
    return content.map((part) => part.text).join('');
  }
  throw new Error(`${name}: expected text`);
}

function checkedMessage(message, name) {
  if (!kRoles.includes(message?.role)) throw new Error(`${name}.role: expected ${kRoles.join(', ')}`);
  const made = { role: message.role, content: textOf(message.content, `${name}.content`) };
  const reasoning = message.reasoning ?? message.reasoning_content;
  if (typeof reasoning === 'string') made.reasoning = reasoning;
  if (Array.isArray(message.tool_calls)) {
    made.tool_calls = message.tool_calls.map((call) => ({
      id: String(call?.id ?? ''),
      name: String(call?.name ?? call?.function?.name ?? ''),
      arguments: String(call?.arguments ?? call?.function?.arguments ?? ''),
    }));
  }
  if (message.tool_call_id !== undefined) made.tool_call_id = String(message.tool_call_id);
  if (typeof message.usage === 'object') made.usage = message.usage;
  if (typeof message.finish_reason === 'string') made.finish_reason = message.finish_reason;
  return made;
}

function apiMessage(node) {
  const message = { role: node.role, content: node.content };
  if (node.role === 'tool') message.tool_call_id = node.tool_call_id;
  if (node.tool_calls?.length) {
    message.tool_calls = node.tool_calls.map((call) =>
      ({ id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }));
  }
  if (node.reasoning) message.reasoning_content = node.reasoning;
  return message;
}
