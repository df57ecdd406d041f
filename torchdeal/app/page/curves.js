// Residual and distance against the iteration, on a logarithmic scale.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 38, TOP = 10, RIGHT = 310, BOTTOM = 145;

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function draw(svg, residuals, distances) {
  const values = [...residuals, ...distances].filter((value) => value > 0);
  const high = Math.ceil(Math.log10(Math.max(...values, 1)));
  const low = Math.min(Math.floor(Math.log10(Math.min(...values, 1e-3))), high - 1);
  const last = Math.max(residuals.length - 1, 10);
  const x = (index) => LEFT + ((RIGHT - LEFT) * index) / last;
  const y = (value) => TOP + ((BOTTOM - TOP) * (high - Math.log10(value))) / (high - low);
  const parts = [];
  for (let power = low; power <= high; power++) {
    parts.push(element("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: y(10 ** power), y2: y(10 ** power) }));
    parts.push(element("text", { x: LEFT - 4, y: y(10 ** power) + 3, "text-anchor": "end" }, power ? `1e${power}` : "1"));
  }
  parts.push(element("text", { x: RIGHT, y: BOTTOM + 14, "text-anchor": "end" }, `iteration ${residuals.length}`));
  parts.push(element("text", { class: "residual", x: LEFT, y: BOTTOM + 14 }, "\u2014 residual"));
  parts.push(element("text", { class: "distance", x: LEFT + 62, y: BOTTOM + 14 }, "\u2014 distance"));
  for (const [name, list] of [["residual", residuals], ["distance", distances]]) {
    const points = list.flatMap((value, index) => (value > 0 ? [`${x(index).toFixed(1)},${y(value).toFixed(1)}`] : []));
    parts.push(element("polyline", { class: name, points: points.join(" ") }));
  }
  svg.replaceChildren(...parts);
}

export function inWords(residuals, distances) {
  const last = residuals.at(-1), distance = distances.at(-1);
  if (last === undefined) return "";
  const away = distance > 0 ? ` The fixed point is about ${(100 * distance).toPrecision(2)} % away.` : "";
  return `After ${residuals.length} iterations the residual is ${last?.toExponential(1) ?? "unknown"}.${away}`;
}
