// The controls on the left: what is chosen, and which controls that leaves.

import { Knob } from "./knobs.js";

const find = (id) => document.getElementById(id);

const GOALS = {
  denoise: "Removes white noise.",
  deblur: "Undoes a blur that you know.",
  upscale: "Makes the picture larger, and sharper than interpolation does.",
  inpaint: "Fills in what is missing.",
  mri: "An image from a fraction of the lines of k-space.",
  ct: "A slice from a few X-ray views.",
};
const DEGRADE = {
  denoise: "The picture is clean: add noise first, then compare",
  deblur: "The picture is sharp: blur it first, then compare",
  upscale: "Make the picture small first, then compare",
  inpaint: "The picture is clean: add a little noise first, then compare",
  mri: "The picture is clean: measure it as a scanner would",
  ct: "The picture is clean: measure it as a scanner would",
};
const KNOBS = { denoise: ["sigma", "lam"], deblur: ["sigma", "lam", "model_sigma"], upscale: ["sigma", "lam", "model_sigma"],
  inpaint: ["sigma", "lam", "model_sigma"], mri: ["lam", "model_sigma"], ct: ["lam", "model_sigma"] };
const SIMULATED_SIGMA = { denoise: 25 };

export class Choices {
  // `changed` is called when something else is to be shown; `moved` when a knob was moved.
  constructor(changed, moved) {
    this.knobs = Object.fromEntries([...document.querySelectorAll(".knob")].map((box) => {
      const knob = new Knob(box, moved);
      return [knob.name, knob];
    }));
    find("controls").addEventListener("change", (event) => {
      if (event.target.closest(".knob")) return;
      this.update();
      changed(event.target);
    });
    this.update();
  }

  get goal() {
    return document.querySelector("[name=goal]:checked").value;
  }

  get simulate() {
    return find("simulate").checked;
  }

  get part() {
    const value = find("part").value;
    return value ? Number(value) : null;
  }

  get paints() {
    return this.goal === "inpaint" && find("mask-kind").value === "brush";
  }

  get draws() {
    return this.goal === "deblur" && find("kernel-kind").value === "draw";
  }

  update() {
    const { goal, simulate } = this;
    find("goal-about").textContent = GOALS[goal];
    find("simulate-label").textContent = DEGRADE[goal];
    if (!simulate && find("mask-kind").value === "random") find("mask-kind").value = "brush";
    find("mask-kind").querySelector("[value=random]").disabled = !simulate;
    for (const [key, value] of [["goal", goal], ["kernel", find("kernel-kind").value], ["mask", find("mask-kind").value]])
      for (const part of document.querySelectorAll(`[data-${key}]`)) part.hidden = part.dataset[key] !== value;
    if (goal === "mri") document.querySelector("fieldset[data-goal=mri]").hidden = !simulate;
    for (const knob of Object.values(this.knobs)) {
      knob.box.hidden = !KNOBS[goal].includes(knob.name);
      knob.text(simulate);
    }
  }

  // A sample is clean: it is degraded, in a way that shows.
  forSample() {
    find("simulate").checked = true;
    find("mask-kind").querySelector("[value=random]").disabled = false;
    if (this.goal === "inpaint") find("mask-kind").value = "random";
    if (this.goal === "deblur") find("boundary").value = "circular"; // many times faster, and right for a simulation
    this.forget();
    this.update();
  }

  forUpload(picture) {
    const measured = ["mri", "ct"].includes(this.goal);
    find("simulate").checked = measured && picture.picture;
    if (this.goal === "deblur") find("boundary").value = "valid";
    this.forget();
    this.update();
  }

  // What was found for another problem does not hold for this one.
  forget() {
    for (const knob of Object.values(this.knobs)) knob.automatic.checked = true;
    const sigma = this.simulate && SIMULATED_SIGMA[this.goal];
    if (sigma) this.knobs.sigma.set(sigma);
  }

  offerParts(picture, most, quick) {
    const { height, width } = picture, longest = Math.max(height, width);
    const sides = [128, 256, 512, 1024].filter((side) => side < longest && side * side <= most);
    const options = sides.map((side) => new Option(`the middle, ${side} x ${side} pixels`, side));
    const whole = height * width <= most;
    if (whole) options.unshift(new Option(`all of it, ${height} x ${width} pixels`, ""));
    find("part").replaceChildren(...options);
    find("part-row").hidden = options.length < 2;
    const small = [...sides].reverse().find((side) => side * side <= quick);
    find("part").value = whole && height * width <= quick ? "" : String(small ?? sides[0] ?? "");
  }

  kernel() {
    const number = (id) => find(id).value;
    const kinds = {
      gaussian: () => `gaussian:${number("kernel-std")}`,
      disk: () => `disk:${number("kernel-radius")}`,
      motion: () => `motion:${number("kernel-length")},${number("kernel-angle")}`,
    };
    return (kinds[find("kernel-kind").value] ?? (() => "file"))();
  }

  wish() {
    const { goal, simulate, part } = this;
    const wish = { goal, simulate, part, weights: find("weights").value, tolerance: Number(find("tolerance").value) };
    for (const knob of Object.values(this.knobs)) wish[knob.name] = knob.value;
    if (goal === "deblur") Object.assign(wish, { kernel: this.kernel(), boundary: find("boundary").value });
    if (goal === "upscale") wish.scale = Number(find("scale").value);
    if (goal === "inpaint") {
      wish.mask = find("mask-kind").value === "random" ? "random" : "brush";
      wish.known = Number(find("known").value);
    }
    if (goal === "mri") Object.assign(wish, { acceleration: Number(find("acceleration").value), centre: Number(find("centre").value) });
    if (goal === "ct") wish.angles = Number(find("angles").value);
    return wish;
  }

  // The values that were found, on the knobs that are automatic.
  found(result) {
    for (const knob of Object.values(this.knobs))
      if (knob.automatic.checked && result[knob.name] != null) knob.show(result[knob.name]);
  }
}
