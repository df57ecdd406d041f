// The page: a picture is brought, an order is given, and what comes of it is shown.

import * as api from "./api.js";
import { Board } from "./board.js";
import { Choices } from "./choices.js";
import { Facts } from "./facts.js";
import { Stage } from "./stage.js";

const PAUSE = 200; // milliseconds between questions how far it is
const QUICK_PIXELS = { cpu: 300 * 300 };
const find = (id) => document.getElementById(id);

let known = { samples: [], pixels: 2 ** 20, device: "cpu" };
let picture = null; // what was brought
let state = { order: null, questions: {} };
let polling = false;
let expected = null; // the number of the order that is shown: late answers about others do not count

const stage = new Stage({ clicked: askPixel });
const facts = new Facts(stage, { ask });
const choices = new Choices(changed, () => state.order?.state === "done" && start());
const maskBoard = new Board(find("mask-board"), { colour: "#ff2d55", size: () => find("brush-size").valueAsNumber,
  erase: () => find("brush-erase").checked });
const kernelBoard = new Board(find("kernel-board"), { colour: "#ffffff", size: () => 1.5 });

function say(text) {
  find("status").textContent = text;
}

function complain(error) {
  find("error").hidden = !error;
  find("error").textContent = error ? error.message ?? error : "";
  if (error) say("");
  find("status").hidden = Boolean(error);
}

// Runs what a control asks for; an error becomes a sentence on the page.
async function attempt(work) {
  complain(null);
  try {
    await work();
  } catch (error) {
    complain(error);
    busy(false);
  }
}

function busy(on) {
  find("cancel").hidden = !on;
  find("go").disabled = !picture;
  find("go").textContent = on ? "Start again" : "Reconstruct";
}

// --- the picture

async function bring(file) {
  await attempt(async () => {
    say(`${file.name} is read.`);
    if (file.size > known.megabytes * 2 ** 20) throw new Error(`The file is larger than the ${known.megabytes} MiB that are taken.`);
    brought(await api.upload("picture", file, file.name));
    choices.forUpload(picture);
    await showPicture();
    say(picture.picture ? "Press Reconstruct." : "This is k-space: choose MRI and press Reconstruct.");
  });
}

async function bringSample(name) {
  await attempt(async () => {
    brought(await api.sample(name));
    choices.forSample();
    await showPicture();
    await start();
  });
}

function forget() {
  expected = null;
  state = { order: null, questions: {} };
}

function brought(about) {
  forget();
  picture = about;
  facts.hide();
  maskBoard.clear();
  find("picture-about").textContent = picture.picture
    ? `${picture.name}: ${picture.height} x ${picture.width}, ${picture.colours === 3 ? "colour" : "gray"}, ${picture.kind}`
    : `${picture.name}: k-space`;
  if (picture.picture) choices.offerParts(picture, known.pixels, QUICK_PIXELS[known.device] ?? known.pixels);
  else find("part-row").hidden = true;
  busy(false);
}

async function showPicture() {
  if (!picture) return;
  if (!picture.picture) {
    find("stage").hidden = true;
    return;
  }
  const side = choices.part ?? Infinity;
  const [height, width] = [Math.min(picture.height, side), Math.min(picture.width, side)];
  maskBoard.resize(width, height);
  find("mask-board").hidden = !choices.paints;
  await stage.only(api.look(choices.part), height, width);
}

async function changed(control) {
  if (["goal", "simulate"].includes(control.name || control.id)) {
    showSamples();
    if (control.name === "goal" && picture) picture.sample ? choices.forSample() : choices.forUpload(picture);
    else choices.forget();
  }
  if (control.id === "mask-file" || control.id === "kernel-file") return;
  const shows = ["goal", "simulate"].includes(control.name || control.id) || ["part", "mask-kind"].includes(control.id);
  if (picture && shows) {
    forget();
    facts.hide();
    await attempt(api.cancel);
    await showPicture();
    say(choices.paints ? "Paint over what is missing, then press Reconstruct." : "Press Reconstruct.");
  }
}

function showSamples() {
  const fitting = known.samples.filter((sample) => sample.goals.includes(choices.goal));
  const buttons = fitting.map((sample) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: sample.title });
    button.addEventListener("click", () => bringSample(sample.name));
    return button;
  });
  find("samples").replaceChildren("Samples:", ...buttons);
}

// --- the order

async function start() {
  await attempt(async () => {
    forget();
    await sendBoards();
    facts.begin();
    find("mask-board").hidden = true;
    if (!matchMedia("(min-width: 60rem)").matches) find("result").scrollIntoView(); // it is far below on a phone
    busy(true);
    const told = await api.order(choices.wish());
    expected = told.order.number;
    await update(told);
    poll();
  });
}

async function sendBoards() {
  if (choices.draws) {
    if (kernelBoard.empty) throw new Error("Draw a kernel first: the path that the camera took, or the shape of a point.");
    await api.upload("kernel", await kernelBoard.png(255, 0), "kernel.png");
  } else if (choices.wish().kernel === "file") {
    await sendFile("kernel", "Choose a kernel file first.");
  }
  if (choices.paints) {
    if (maskBoard.empty) throw new Error("Paint over what is missing first.");
    await api.upload("mask", await maskBoard.png(0, 255), "mask.png");
  } else if (choices.goal === "inpaint" && find("mask-kind").value === "upload") {
    await sendFile("mask", "Choose a mask file first.");
  }
}

async function sendFile(role, missing) {
  const [file] = find(`${role}-file`).files;
  if (!file) throw new Error(missing);
  await api.upload(role, file, file.name);
}

async function poll() {
  if (polling) return;
  polling = true;
  try {
    while (anyBusy()) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      await update(await api.state());
    }
  } catch (error) {
    complain(error);
    busy(false);
  } finally {
    polling = false;
  }
}

const isBusy = (errand) => errand && ["waiting", "running"].includes(errand.state);
const anyBusy = () => [state.order, ...Object.values(state.questions)].some(isBusy);

async function update(told) {
  if (told.order?.number !== expected) return;
  const before = state;
  state = told;
  const { order } = told;
  busy(anyBusy());
  if (!order) return;
  if (order.state === "failed") throw new Error(order.error);
  if (isBusy(order)) {
    say(order.state === "waiting" ? waits(order.ahead) : runs(order.progress));
    facts.running(order.progress);
    if (order.progress.preview > (before.order?.progress.preview ?? 0)) await stage.preview();
    return;
  }
  if (order.state === "cancelled") {
    say("Cancelled.");
    facts.hide();
    return;
  }
  if (before.order?.state !== "done") {
    choices.found(order.result);
    await facts.show(order, choices.goal);
    if (order.number !== expected) { // something else was chosen meanwhile
      facts.hide();
      return;
    }
    say(`Done in ${order.seconds.toFixed(1)} seconds.`);
    if (order.result.explained) await ask("mask", {}, false);
  }
  const failed = Object.values(state.questions).find((question) => question.state === "failed");
  if (failed) complain(failed.error);
  const waiting = Object.values(state.questions).find((question) => question.state === "waiting" && question.ahead > 0);
  if (waiting) say(waits(waiting.ahead));
  await facts.questions(state.questions);
}

const waits = (ahead) => (ahead ? `Somebody else is being served: ${ahead} before you. It begins by itself.` : "It begins.");
const runs = (progress) => (progress.residuals?.length ? `Running: iteration ${progress.residuals.length}.` : "Running: the picture is read, and its noise measured.");

// --- questions about the result

async function ask(kind, values = {}) {
  await attempt(async () => {
    const told = await api.ask(kind, values);
    if (told.order.number !== expected) return;
    state = told;
    busy(anyBusy());
    await facts.questions(state.questions);
    poll();
  });
}

function askPixel(row, column) {
  find("pixel-row").value = row;
  find("pixel-column").value = column;
  stage.mark([row, column]);
  facts.want("weights");
  ask("pixel", { row, column });
}

// --- beginning

function connect() {
  find("file").addEventListener("change", () => find("file").files[0] && bring(find("file").files[0]));
  find("controls").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  find("cancel").addEventListener("click", () => attempt(async () => {
    await update(await api.cancel());
    busy(false);
  }));
  find("mask-clear").addEventListener("click", () => maskBoard.clear());
  find("kernel-clear").addEventListener("click", () => kernelBoard.clear());
  find("pixel-go").addEventListener("click", () => askPixel(find("pixel-row").valueAsNumber, find("pixel-column").valueAsNumber));
  const drop = find("drop");
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  document.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files[0]) bring(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => event.clipboardData?.files[0] && bring(event.clipboardData.files[0]));
  addEventListener("pagehide", (event) => event.persisted || api.leave());
}

async function begin() {
  connect();
  await attempt(async () => {
    known = await api.about();
    find("formats").textContent = `${known.suffixes.join(" ")}, up to ${known.megabytes} MiB`;
    find("minutes").textContent = known.minutes;
    if (known.device !== "cpu") Object.assign(find("weights"), { value: "full" });
    else find("tolerance").value = "0.01"; // looks the same, in half the time
    const local = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
    if (!local) find("place").textContent = "Everything runs on the machine that this page comes from; nothing goes further.";
    showSamples();
  });
}

begin();
