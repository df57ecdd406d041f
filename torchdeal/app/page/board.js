// A canvas to paint on, pixel by pixel, with the mouse, a finger or the keyboard.

export class Board {
  // `colour` is what is painted; `size` tells the width of the brush; `changed` is called after each stroke.
  constructor(canvas, { colour, size, erase = () => false, changed = () => {} }) {
    Object.assign(this, { canvas, colour, size, erase, changed, last: null, cursor: null });
    this.pen = canvas.getContext("2d", { willReadFrequently: true });
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.last && this.stroke(this.place(event)));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.end());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  resize(width, height) {
    if (this.canvas.width === width && this.canvas.height === height) return;
    Object.assign(this.canvas, { width, height });
    this.cursor = null;
  }

  clear() {
    this.pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.changed();
  }

  get empty() {
    const { width, height } = this.canvas;
    return !this.pen.getImageData(0, 0, width, height).data.some((value, index) => index % 4 === 3 && value > 0);
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * this.canvas.width,
      ((event.clientY - box.top) / box.height) * this.canvas.height];
  }

  begin(event) {
    event.preventDefault();
    this.canvas.focus();
    this.canvas.setPointerCapture(event.pointerId);
    this.last = this.place(event);
    this.stroke(this.last);
  }

  end() {
    if (this.last) this.changed();
    this.last = null;
  }

  stroke(to) {
    const from = this.last ?? to;
    this.pen.globalCompositeOperation = this.erase() ? "destination-out" : "source-over";
    Object.assign(this.pen, { strokeStyle: this.colour, lineWidth: this.size(), lineCap: "round" });
    this.pen.beginPath();
    this.pen.moveTo(...from);
    this.pen.lineTo(to[0] + 0.01, to[1]);
    this.pen.stroke();
    this.last = to;
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const { width, height } = this.canvas;
    this.cursor ??= [width / 2, height / 2];
    if (event.key in moves) {
      const step = Math.max(1, Math.round(this.size() / 2)) * (event.shiftKey ? 4 : 1);
      const move = moves[event.key];
      this.cursor = [Math.min(Math.max(this.cursor[0] + step * move[0], 0), width - 0.5),
        Math.min(Math.max(this.cursor[1] + step * move[1], 0), height - 0.5)];
      this.canvas.dispatchEvent(new CustomEvent("cursor", { detail: this.cursor }));
    } else if (event.key === " " || event.key === "Enter") {
      this.stroke(this.cursor);
      this.end();
    } else return;
    event.preventDefault();
  }

  // A PNG in black and white: `painted` where something was painted.
  async png(painted, other) {
    const { width, height } = this.canvas;
    const copy = Object.assign(document.createElement("canvas"), { width, height });
    const pen = copy.getContext("2d");
    const pixels = this.pen.getImageData(0, 0, width, height);
    for (let at = 0; at < pixels.data.length; at += 4) {
      const share = pixels.data[at + 3] / 255;
      // A mask is black or white; a kernel has the grays of its soft border.
      const value = painted > other ? other + share * (painted - other) : share > 0.5 ? painted : other;
      pixels.data.fill(value, at, at + 3);
      pixels.data[at + 3] = 255;
    }
    pen.putImageData(pixels, 0, 0);
    return new Promise((resolve) => copy.toBlob(resolve, "image/png"));
  }
}
