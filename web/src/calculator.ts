// Evaluates arithmetic as people write it: + - * / % ^, parentheses, a few functions and constants.
// Parsed and computed here; text from a model is never executed.
const constants: Record<string, number> = { pi: Math.PI, e: Math.E, tau: 2 * Math.PI };
const functions: Record<string, (...values: number[]) => number> = {
  abs: Math.abs, sqrt: Math.sqrt, cbrt: Math.cbrt, exp: Math.exp, ln: Math.log, log: Math.log10,
  log2: Math.log2, sin: Math.sin, cos: Math.cos, tan: Math.tan, asin: Math.asin, acos: Math.acos,
  atan: Math.atan, floor: Math.floor, ceil: Math.ceil, round: Math.round, min: Math.min, max: Math.max,
};
const mostCharacters = 500;
const mostDepth = 50;

class Reader {
  private at = 0;
  private depth = 0;
  private readonly parts: string[];

  constructor(text: string) {
    const shape = /\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[A-Za-z]\w*|\*\*|[-+*/%^(),])/y;
    this.parts = [];
    let end = 0;
    while (text.slice(end).trim() !== "") {
      shape.lastIndex = end;
      const match = shape.exec(text);
      if (!match) throw new Error(`“${text.slice(end).trim()[0]}” is not understood here.`);
      this.parts.push(match[1] === "**" ? "^" : match[1]);
      end = shape.lastIndex;
    }
  }

  whole(): number {
    if (this.parts.length === 0) throw new Error("The expression is empty.");
    const value = this.sum();
    if (this.at < this.parts.length) throw new Error(`“${this.parts[this.at]}” was not expected there.`);
    return value;
  }

  private take(...wanted: string[]): string | undefined {
    return wanted.includes(this.parts[this.at]) ? this.parts[this.at++] : undefined;
  }

  private sum(): number {
    let value = this.product();
    for (let sign; (sign = this.take("+", "-")); ) value += sign === "+" ? this.product() : -this.product();
    return value;
  }

  private product(): number {
    let value = this.signed();
    for (let sign; (sign = this.take("*", "/", "%")); ) {
      const by = this.signed();
      if (sign !== "*" && by === 0) throw new Error("Division by zero.");
      value = sign === "*" ? value * by : sign === "/" ? value / by : value % by;
    }
    return value;
  }

  // As in mathematics: -2^2 is -4, and 2^3^2 is 2^9.
  private signed(): number {
    if (++this.depth > mostDepth) throw new Error("The expression is nested too deeply.");
    try {
      if (this.take("-")) return -this.signed();
      if (this.take("+")) return this.signed();
      const base = this.value();
      return this.take("^") ? base ** this.signed() : base;
    } finally {
      --this.depth;
    }
  }

  private value(): number {
    const part = this.parts[this.at++];
    if (part === undefined) throw new Error("The expression is incomplete.");
    if (/^[\d.]/.test(part)) return Number(part);
    if (part === "(") {
      const value = this.sum();
      this.close();
      return value;
    }
    const name = part.toLowerCase();
    if (Object.hasOwn(functions, name) && this.take("(")) {
      const values = [this.sum()];
      while (this.take(",")) values.push(this.sum());
      this.close();
      return functions[name](...values);
    }
    if (Object.hasOwn(constants, name)) return constants[name];
    throw new Error(`“${part}” is not understood here.`);
  }

  private close(): void {
    if (!this.take(")")) throw new Error("A parenthesis is not closed.");
  }
}

/** The value as text; throws an Error that says what is wrong with the expression. */
export function calculate(expression: string): string {
  if (expression.length > mostCharacters) throw new Error("The expression is too long.");
  const text = expression.replaceAll("×", "*").replaceAll("÷", "/").replaceAll("−", "-");
  // 1,000 is a thousand, but min(1,2) has two arguments.
  const value = new Reader(text.replace(/(?<!\w\(|[\w.,])(\d{1,3}(?:,\d{3})+)(?![\d,])/g, (n) => n.replaceAll(",", ""))).whole();
  if (!Number.isFinite(value)) throw new Error("The result is not a number.");
  return String(Number(value.toPrecision(15)));
}
