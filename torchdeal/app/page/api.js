// Requests to the machine that runs this page. An error is one sentence.

const random = crypto.getRandomValues(new Uint8Array(16));
const token = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
const visit = `/api/visits/${token}`;

async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("deal app does not answer. Is it still running?");
  }
  let told;
  try {
    told = await response.json();
  } catch {
    told = { error: "deal app did not answer as expected. Reload this page." };
  }
  if (!response.ok) throw Object.assign(new Error(told.error), { status: response.status });
  return told;
}

const post = (path, values = {}) => answer(`${visit}/${path}`, { method: "POST", body: JSON.stringify(values) });

export const about = () => answer("/api/about");
export const state = () => answer(visit);
export const upload = (role, blob, name) =>
  answer(`${visit}/uploads/${role}?name=${encodeURIComponent(name)}`, { method: "PUT", body: blob });
export const sample = (name) => post(`sample/${name}`);
export const order = (wish) => post("order", wish);
export const cancel = () => post("cancel");
export const ask = (kind, values) => post(`questions/${kind}`, values);
export const leave = () => navigator.sendBeacon(`${visit}/leave`);
export const download = `${visit}/download`;

let count = 0; // so that the browser asks again
export const look = (part) => `${visit}/look?part=${part ?? ""}&n=${++count}`;
export const picture = (name) => `${visit}/pictures/${name}?n=${++count}`;
