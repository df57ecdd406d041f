// What is told about a result: how it ended, curves, layers, a pixel, the certificate, the same without the page.

import * as api from "./api.js";
import * as curves from "./curves.js";

const find = (id) => document.getElementById(id);
const VIEWS = {
  mask: { alt: "The mask", kind: "numbers", about: "Dark: structure that is protected. Bright: smoothed. The mean of the mask over all filters." },
  error_bars: { alt: "Error bars", kind: "numbers", about: "How far off each pixel may be: one standard deviation, where white is 255. An estimate; where detail was lost it is too small." },
  weights: { alt: "What a pixel was averaged from", kind: "weights", about: "" },
};

const items = (sentences) => sentences.filter(Boolean).map((text) => Object.assign(document.createElement("li"), { textContent: text }));

export class Facts {
  constructor(stage, { ask }) {
    Object.assign(this, { stage, ask, view: "compare", shown: {}, asked: {}, result: null });
    for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => this.choose(button.dataset.view));
    find("certificate-go").addEventListener("click", () => ask("certificate"));
    for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => this.copy(button));
  }

  hide() {
    for (const id of ["facts", "views", "pixel-form", "live", "legend", "slider-row"]) find(id).hidden = true;
    find("view-about").textContent = "";
    this.stage.mark(null);
    this.stage.compare(false);
    find("layer").hidden = true;
  }

  begin() {
    this.hide();
    Object.assign(this, { view: "compare", shown: {}, asked: {}, result: null });
  }

  running(progress) {
    const { residuals = [], distances = [] } = progress;
    find("live").hidden = residuals.length === 0;
    if (residuals.length) curves.draw(find("live-curves"), residuals, distances);
  }

  async show(order, goal) {
    const { result, progress } = order;
    Object.assign(this, { result, view: "compare", shown: {}, asked: {} });
    find("live").hidden = true;
    for (const id of ["facts", "views"]) find(id).hidden = false;
    find("sentences").replaceChildren(...items([result.sentence, this.noise(result, goal), this.strength(result), result.quality && `Compared with the truth: ${result.quality}.`, ...result.notes]));
    find("download").href = api.download;
    find("download-about").textContent = `${result.file}, in the format and depth of the input`;
    curves.draw(find("curves"), progress.residuals ?? [], progress.distances ?? []);
    find("curves-about").textContent = curves.inWords(progress.residuals ?? [], progress.distances ?? []);
    find("command").textContent = result.command;
    find("python").textContent = result.python;
    find("again-about").textContent = result.part ? "A part of the picture was used: save that part first, under the name below." : "";
    find("certificate").replaceChildren();
    find("certificate-state").textContent = "";
    find("pixel-form").hidden = !result.explained;
    find("pixel-row").max = result.height - 1;
    find("pixel-column").max = result.width - 1;
    for (const button of document.querySelectorAll("[data-view]"))
      button.hidden = button.dataset.view === "clean" ? !result.quality : button.dataset.view !== "compare" && !result.explained;
    find("certificate-go").disabled = !result.explained;
    await this.stage.result(result);
    await this.choose("compare");
  }

  noise(result, goal) {
    if (["mri", "ct"].includes(goal)) return "";
    const between = result.sigma_low == null ? "" : `, between ${result.sigma_low.toPrecision(3)} and ${result.sigma_high.toPrecision(3)}`;
    return `Noise: sigma ${result.sigma.toPrecision(3)}${result.estimated ? ` (found in the picture${between})` : ""}.`;
  }

  strength(result) {
    return result.lam == null ? "" : `Strength: lam ${result.lam.toPrecision(3)}; the model assumes noise of ${result.model_sigma.toPrecision(3)}.`;
  }

  // What is asked for is shown as soon as it is there.
  want(view) {
    this.view = view;
    this.shown[view] = null;
    this.press();
  }

  press() {
    for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", button.dataset.view === this.view);
  }

  async choose(view) {
    this.view = view;
    this.press();
    find("legend").hidden = true;
    find("view-about").textContent = view === "weights" && !this.shown.weights ? "Click on a pixel of the picture." : "";
    if (view === "compare") await this.stage.layer(null);
    else if (view === "clean") await this.stage.layer("clean", "The truth");
    else if (this.shown[view]) await this.present(view);
    else if (view !== "weights" && !this.asked[view]) {
      this.asked[view] = true;
      find("view-about").textContent = "It is computed.";
      await this.ask(view);
    }
  }

  async questions(questions) {
    const { mask, error_bars: bars, pixel, certificate } = questions;
    for (const [view, question] of [["mask", mask], ["error_bars", bars], ["weights", pixel]]) {
      if (!question) continue;
      if (question.state === "done" && this.shown[view] !== JSON.stringify(question.result)) {
        this.shown[view] = JSON.stringify(question.result);
        if (this.view === view) await this.present(view, question.result);
      } else if (this.view === view && question.state === "running" && question.progress.of)
        find("view-about").textContent = `It is computed: solve ${question.progress.done} of ${question.progress.of}.`;
      else if (question.state === "cancelled" || question.state === "failed") {
        this.asked[view] = false;
        if (this.view === view) find("view-about").textContent = "";
      }
    }
    if (certificate) this.certificate(certificate);
  }

  certificate(question) {
    const words = { waiting: "waiting", running: question.progress.stage ? `computing: ${question.progress.stage}` : "computing", cancelled: "cancelled", failed: "", done: "" };
    find("certificate-state").textContent = words[question.state];
    if (question.state === "done") find("certificate").replaceChildren(...items(question.result.sentences));
  }

  async present(view) {
    const result = JSON.parse(this.shown[view]), { alt, kind, about } = VIEWS[view];
    const digits = (value) => Number(value.toPrecision(2));
    const [low, high] = view === "weights" ? ["subtracted", result.largest == null ? "added" : `added, up to ${(100 * result.largest).toPrecision(2)} %`]
      : view === "mask" ? [`${digits(result.low)}, protected`, `${digits(result.high)}, smoothed`] : [digits(result.low), digits(result.high)];
    find("legend-low").textContent = low;
    find("legend-high").textContent = high;
    find("legend-bar").className = kind;
    find("legend").hidden = false;
    find("view-about").textContent = view === "weights" ? `Row ${result.row}, column ${result.column}. ${result.sentences.join(" ")}` : about;
    if (view === "weights") this.stage.mark([result.row, result.column]);
    await this.stage.layer(view, alt);
  }

  async copy(button) {
    const text = find(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    } catch {
      getSelection().selectAllChildren(text); // without permission: ready to be copied by hand
    }
  }
}
