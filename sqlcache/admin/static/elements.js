// Making and changing elements. All text goes through `textContent`: no string becomes markup.

export const find = (id) => document.getElementById(id);

/** An element with properties, attributes for names with a dash or `role`, and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "scope") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Sets a text where it differs: what is selected in it stays so, and nothing is painted anew. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute where it differs; null takes it away. */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
