'use strict';
// A small part of Markdown as DOM nodes: fences, headings, lists, quotes, code, emphasis. Text of the
// model becomes text nodes and nothing else; links stay text.

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'class') node.className = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// `code`, **strong**, *emphasis*; none of them over several lines of the source.
const kInline = /(`+)([^\n]+?)\1(?!`)|\*\*(?=\S)([^\n]+?\S|\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]*[^\s*])\*(?![\w*])/g;

function inlineNodes(text) {
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(kInline)) {
    nodes.push(text.slice(end, found.index));
    if (found[2] !== undefined) nodes.push(element('code', {}, found[2].trim() || found[2]));
    else if (found[3] !== undefined) nodes.push(element('strong', {}, ...inlineNodes(found[3])));
    else nodes.push(element('em', {}, ...inlineNodes(found[4])));
    end = found.index + found[0].length;
  }
  nodes.push(text.slice(end));
  return nodes.filter((node) => node !== '');
}

function codeBlock(language, lines) {
  const text = lines.join('\n');
  const copy = element('button', { type: 'button', class: 'small' }, 'Copy');
  copy.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = 'Copied';
    } catch {
      copy.textContent = 'Not allowed';
    }
    setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
  });
  return element('div', { class: 'code' },
    element('header', {}, element('span', {}, language || 'text'), copy),
    element('pre', { tabindex: '0' }, element('code', {}, text)));
}

const kItem = /^\s{0,3}(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;

// The blocks of a text. A fence that is still open, as while streaming, runs to the end.
function markdownNodes(text) {
  const lines = text.split('\n');
  const nodes = [];
  let paragraph = [];
  const flush = () => {
    if (paragraph.length > 0) nodes.push(element('p', {}, ...inlineNodes(paragraph.join('\n'))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; ++i) {
    const line = lines[i];
    const fence = line.match(/^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/);
    const heading = line.match(/^(#{1,6})\s+(.*)$/);
    const item = line.match(kItem);
    if (fence) {
      flush();
      const body = [];
      while (++i < lines.length && !lines[i].trimStart().startsWith(fence[1])) body.push(lines[i]);
      nodes.push(codeBlock(fence[2], body));
    } else if (heading) {
      flush();
      const level = Math.min(heading[1].length + 2, 5);
      nodes.push(element(`h${level}`, {}, ...inlineNodes(heading[2])));
    } else if (item) {
      flush();
      const list = element(item[1] ? 'ol' : 'ul', item[1] ? { start: item[1] } : {});
      let next = item;
      while (next && Boolean(next[1]) === Boolean(item[1])) {
        list.append(element('li', {}, ...inlineNodes(next[2])));
        next = i + 1 < lines.length ? lines[i + 1].match(kItem) : null;
        if (next && Boolean(next[1]) === Boolean(item[1])) ++i;
      }
      nodes.push(list);
    } else if (line.startsWith('>')) {
      flush();
      const quoted = [line.replace(/^>\s?/, '')];
      while (i + 1 < lines.length && lines[i + 1].startsWith('>')) quoted.push(lines[++i].replace(/^>\s?/, ''));
      nodes.push(element('blockquote', {}, ...inlineNodes(quoted.join('\n'))));
    } else if (line.trim() === '') {
      flush();
    } else {
      paragraph.push(line);
    }
  }
  flush();
  return nodes;
}
