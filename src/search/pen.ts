/** Follows the colours of text as far as they make it invisible: concealed text, and text in the colour of its background. Pure. */

export class Pen {
  #isConcealed = false;
  #foreground = '';
  #background = '';

  /** True if text that is written now cannot be seen. */
  get isInvisible(): boolean {
    return this.#isConcealed || (this.#foreground !== '' && this.#foreground === this.#background);
  }

  reset(): void {
    this.#isConcealed = false;
    this.#foreground = '';
    this.#background = '';
  }

  /** Takes the parameters of `CSI … m`. */
  take(parameters: string): void {
    if (parameters.length < 3) {
      this.#takeCode(Number(parameters));
      return;
    }
    const codes = parameters.split(';');
    for (let at = 0; at < codes.length; at += 1) {
      const [first = '', ...rest] = (codes[at] ?? '').split(':');
      const code = Number(first);
      if (code !== 38 && code !== 48) {
        this.#takeCode(code);
        continue;
      }
      // the colour follows as subparameters, or as more parameters
      const parts = rest.length > 0 ? rest : codes.slice(at + 1, at + (codes[at + 1] === '2' ? 5 : 3));
      if (rest.length === 0) at += parts.length;
      const colour = colourOf(parts);
      if (code === 38) this.#foreground = colour;
      else this.#background = colour;
    }
  }

  #takeCode(code: number): void {
    if (code === 0) this.reset();
    else if (code === 8) this.#isConcealed = true;
    else if (code === 28) this.#isConcealed = false;
    else if (code >= 30 && code <= 37) this.#foreground = `p${code - 30}`;
    else if (code === 39) this.#foreground = '';
    else if (code >= 40 && code <= 47) this.#background = `p${code - 40}`;
    else if (code === 49) this.#background = '';
    else if (code >= 90 && code <= 97) this.#foreground = `p${code - 82}`;
    else if (code >= 100 && code <= 107) this.#background = `p${code - 92}`;
  }
}

/** `5;n`, `2;r;g;b`, or `2::r:g:b`. */
function colourOf([kind, ...values]: readonly string[]): string {
  if (kind === '5') return `p${Number(values[0])}`;
  return kind === '2' ? values.slice(-3).join(',') : '';
}
