"use strict";
// Elements and how values are written. All text goes in as text: no string ever becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function byId(id) {
  return document.getElementById(id);
}

// element("p", {class: "muted"}, "text", child): what is null or false is left out.
function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== false));
  return node;
}

// Only where it differs, so that what is read aloud is what changed.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function whole(value) {
  return Math.round(value).toLocaleString("en");
}

function counted(value, one, many = one + "s") {
  return `${whole(value)} ${value === 1 ? one : many}`;
}

function milliseconds(value) {
  if (value === null) return "–";
  if (value < 10) return `${value.toFixed(1)} ms`;
  return value < 1000 ? `${value.toFixed(0)} ms` : seconds(value / 1000);
}

function seconds(value) {
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  return duration(value);
}

function duration(value) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([size]) => value >= size) || [1, "s"];
  return `${Math.floor(value / size)} ${unit}`;
}

function percent(share) {
  return share === null ? "–" : `${(100 * share).toFixed(1)} %`;
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  for (; value >= 1024 && index < units.length - 1; index++) value /= 1024;
  return `${value.toFixed(index && value < 100 ? 1 : 0)} ${units[index]}`;
}

function clockTime(moment) {
  return new Date(moment).toLocaleTimeString("en-GB");
}

// A text of the model or of a prompt on one line, with its line breaks and tabs visible.
function oneLine(text) {
  return JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
}
