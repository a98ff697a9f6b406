// Building and updating the document. Text only ever enters through textContent and attributes: no markup is parsed.

/** An element with attributes and children; `undefined`, `null` and `false` attributes are left out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set a text only when it differs, so that selections and screen readers are left in peace. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/**
 * Make the children of `parent` follow `items` by key: existing nodes are kept, so focus, open details and scroll
 * positions survive. A node is rebuilt only when the JSON of its item changed.
 */
export function follow(parent, items, key, build) {
  const old = new Map();
  for (const child of [...parent.children]) {
    if (old.has(child.dataset.key)) child.remove();
    else old.set(child.dataset.key, child);
  }
  let cursor = parent.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    const signature = JSON.stringify(item);
    let node = old.get(id);
    old.delete(id);
    if (node === undefined || node.signature !== signature) {
      const fresh = build(item);
      fresh.dataset.key = id;
      fresh.signature = signature;
      if (node !== undefined) {
        if (cursor === node) cursor = fresh;
        replace(node, fresh);
      }
      node = fresh;
    }
    if (node === cursor) cursor = cursor.nextElementSibling;
    else parent.insertBefore(node, cursor);
  }
  for (const node of old.values()) node.remove();
}

/** Put `fresh` where `node` was, open if it was open, with the focus on the same kind of element. */
function replace(node, fresh) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  if (node.tagName === "DETAILS") fresh.open = node.open;
  node.replaceWith(fresh);
  if (focused !== null) fresh.querySelector(focused.tagName)?.focus({ preventScroll: true });
}
