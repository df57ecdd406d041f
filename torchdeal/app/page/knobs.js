// Sigma and lam: found automatically, or set by hand.

const KINDS = {
  sigma: { label: "Noise, sigma", simulated: "Noise that is added, sigma", low: 0, high: 75, step: 0.5, start: 2.55,
    hint: "standard deviation, where white is 255" },
  lam: { label: "Strength, lam", low: -4, high: 3, step: 0.05, start: 1, log: true, hint: "larger is smoother" },
  model_sigma: { label: "Noise the model assumes", low: 0.5, high: 50, step: 0.5, start: 10, hint: "where white is 255" },
};

export class Knob {
  constructor(box, changed) {
    this.box = box;
    this.name = box.dataset.knob;
    this.kind = KINDS[this.name];
    const { low, high, step, start, log, hint } = this.kind;
    box.innerHTML = `<div class="head"><span id="${this.name}-label"></span>
      <label class="check"><input type="checkbox" checked> automatic</label></div>
      <div class="fields"><input type="range" min="${low}" max="${high}" step="${step}" aria-labelledby="${this.name}-label">
      <input type="number" min="0" step="any" aria-labelledby="${this.name}-label"></div>
      <span class="soft">${hint}</span>`;
    [this.automatic, this.range, this.number] = box.querySelectorAll("input");
    this.label = box.querySelector("span");
    this.text(false);
    this.show(start);
    this.range.addEventListener("input", () => {
      this.automatic.checked = false;
      this.number.value = Number((log ? 10 ** this.range.valueAsNumber : this.range.valueAsNumber).toPrecision(3));
    });
    this.number.addEventListener("input", () => {
      this.automatic.checked = false;
      this.place();
    });
    for (const input of [this.automatic, this.range, this.number]) input.addEventListener("change", changed);
  }

  text(simulated) {
    this.label.textContent = (simulated && this.kind.simulated) || this.kind.label;
  }

  place() {
    const value = this.number.valueAsNumber;
    if (value >= 0) this.range.value = this.kind.log ? Math.log10(Math.max(value, 1e-9)) : value;
  }

  show(value) {
    this.number.value = Number(value.toPrecision(3));
    this.place();
  }

  set(value) {
    this.automatic.checked = false;
    this.show(value);
  }

  get value() {
    const number = this.number.valueAsNumber;
    return this.automatic.checked || this.box.hidden || !Number.isFinite(number) ? null : number;
  }
}
