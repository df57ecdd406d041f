// The picture: before and after under a slider, other layers, and the pixel that was clicked.

import * as api from "./api.js";

const find = (id) => document.getElementById(id);

// A picture is shown when it has come, so that nothing flickers.
async function show(image, address) {
  const next = new Image();
  next.src = address;
  try {
    await next.decode();
  } catch {
    return; // a newer one has taken its place
  }
  image.src = address;
}

export class Stage {
  constructor({ clicked }) {
    this.box = find("stage");
    this.slider = find("slider");
    this.size = [1, 1];
    this.clickable = false;
    this.slider.addEventListener("input", () => this.cut());
    this.drag(find("divider"));
    this.box.addEventListener("click", (event) => {
      if (!this.clickable || event.target.id === "divider" || event.target.id === "mask-board") return;
      const box = this.box.getBoundingClientRect();
      const [height, width] = this.size;
      clicked(Math.min(Math.floor(((event.clientY - box.top) / box.height) * height), height - 1),
        Math.min(Math.floor(((event.clientX - box.left) / box.width) * width), width - 1));
    });
    this.cut();
  }

  cut() {
    this.box.style.setProperty("--cut", `${this.slider.value}%`);
    this.slider.setAttribute("aria-valuetext", `${100 - this.slider.value} % of the result is shown`);
  }

  drag(divider) {
    let held = false;
    divider.addEventListener("pointerdown", (event) => {
      held = true;
      divider.setPointerCapture(event.pointerId);
    });
    divider.addEventListener("pointermove", (event) => {
      if (!held) return;
      const box = this.box.getBoundingClientRect();
      this.slider.value = (100 * (event.clientX - box.left)) / box.width;
      this.cut();
    });
    for (const name of ["pointerup", "pointercancel"]) divider.addEventListener(name, () => (held = false));
  }

  // As large as there is room for, and not higher than the window.
  fit(height, width) {
    this.size = [height, width];
    this.box.hidden = false;
    this.box.style.aspectRatio = `${width} / ${height}`;
    this.box.style.maxWidth = `min(${Math.max(width, 720)}px, ${((75 * width) / height).toFixed(1)}vh)`;
    find("slider-row").style.maxWidth = this.box.style.maxWidth;
    find("legend").style.maxWidth = this.box.style.maxWidth;
  }

  // The picture alone, as it was brought.
  async only(address, height, width) {
    this.fit(height, width);
    this.clickable = false;
    this.mark(null);
    this.compare(false);
    find("layer").hidden = true;
    find("after").removeAttribute("src");
    find("after").hidden = true;
    find("before").alt = "The picture that you chose";
    await show(find("before"), address);
  }

  async preview() {
    find("after").hidden = false;
    await show(find("after"), api.picture("preview"));
  }

  async result(result) {
    this.fit(result.height, result.width);
    this.clickable = result.explained;
    Object.assign(find("before"), { alt: "Before: what the measurements look like" });
    Object.assign(find("after"), { alt: "After: the result", hidden: false });
    await Promise.all([show(find("before"), api.picture("before")), show(find("after"), api.picture("after"))]);
  }

  compare(on) {
    this.box.classList.toggle("whole", !on);
    find("slider-row").hidden = !on;
  }

  async layer(name, alt) {
    const layer = find("layer");
    this.compare(name === null);
    if (name === null) {
      layer.hidden = true;
      return;
    }
    await show(layer, api.picture(name));
    layer.alt = alt;
    layer.hidden = false;
  }

  mark(pixel) {
    const marker = find("marker");
    marker.hidden = pixel === null;
    if (pixel === null) return;
    const [height, width] = this.size;
    Object.assign(marker.style, {
      top: `${(100 * (pixel[0] + 0.5)) / height}%`, left: `${(100 * (pixel[1] + 0.5)) / width}%`,
      width: `${130 / width}%`, height: `${130 / height}%`,
    });
  }
}
